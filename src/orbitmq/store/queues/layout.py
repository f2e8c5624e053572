"""Numbers that the compiled appender and its callers share: columns, answers, sizes."""

from __future__ import annotations

from orbitmq.message import record_layout
from orbitmq.message.message_types import MESSAGE_TYPES

# Columns of a queue's slot.
Q_NEXT = 0  # the queue offset that the next record gets
Q_VISIBLE = 1  # reads see offsets below this one
Q_MIN = 2  # the smallest offset still stored
Q_TAIL = 3  # where the ring of the queue starts in ``tails``, -1: none yet
Q_TAIL_FIRST = 4  # the smallest offset that the ring may hold
Q_SAVED = 5  # offsets below this one are in the consume queue file
Q_DIRTY = 6  # has records of this batch
Q_WATCHED = 7  # a caller waits for new records
Q_MAP_FIRST = 8  # first offset of the consume queue file mapped for reads
Q_MAP_COUNT = 9  # entries in that map, 0: none
Q_RING = 10  # entries that the queue's ring has room for, 0: it has none
Q_UNSAVED = 11  # is in the list of queues with entries that are not in their file
Q_MIN_PLACE = 12  # log offset of the record at Q_MIN, -1: unknown
Q_CHECKED = 13  # its newest file was checked since the start
Q_COUNTED = 14  # messages below this offset are in the statistics
Q_ID = 15  # its queue id, which its records have
Q_COUNTS = 16  # where the counts of its topic begin in ``counts``, -1: they are not made yet
Q_WIDTH = 17

# Bounds of the statistics of record sizes: a record counts at the first bound that it does not exceed.
SIZE_BOUNDS = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)
# Counts of a topic since the start: for each type of message the records by size, then their bytes.
TYPE_BYTES = len(SIZE_BOUNDS) + 1
TYPE_WIDTH = TYPE_BYTES + 1
COUNTS_WIDTH = len(MESSAGE_TYPES) * TYPE_WIDTH

# Answers of :meth:`Appender.append` and :meth:`Appender.check_room` in place of an offset.
NO_ROOM = -1  # the write batch is full: write it first
ROLL = -2  # the record does not fit in the current file
TAIL_FULL = -3  # the queue's ring holds entries that are not in its file yet, or its topic has no counts

# Answers of :meth:`Lookup.read`.
READ_FOUND = 0
READ_NO_MATCH = 1
READ_NEED_ENTRIES = 2  # the consume queue file with ``need`` (a queue offset) is not mapped
READ_NEED_LOG = 3  # the log file with ``need`` (a physical offset) is not mapped
READ_NO_SPACE = 4  # the first message does not fit into the output
READ_BROKEN = 5  # the index entry leads to bytes that are not a record
READ_SCATTERED = 6  # the records lie in too many places to be returned without a copy

# Filters of :meth:`Lookup.read` other than a count of tags codes.
ALL_CODES = -1  # every message passes
BY_PROPERTIES = -3  # the codes are the program of an SQL92 expression (``store.sql.layout``)

# Answers of :meth:`Dispatcher.scan`, besides BLANK, CUT and BAD_* of the record reader.
SCAN_DONE = 0
SCAN_NEW_QUEUE = 10  # the record's queue is not in the dispatcher's table
SCAN_TAIL_FULL = 11  # the queue's ring holds entries that are not in its file yet
SCAN_NEEDS_CODE = 12  # the topic keeps a number of its own in place of the tags code
SCAN_AHEAD = 13  # the record's queue offset leaves a gap in its queue
SCAN_BEHIND = 14  # the queue has the record's offset already

# Answers of :meth:`RecordReader.read`.
RECORD = 0
BLANK = 1  # the rest of the file is unused; ``size`` is the length of that rest
CUT = 2  # the written bytes end within the record
BAD_SIZE = 3
BAD_MAGIC = 4
BAD_PLACE = 5  # the record's own offset is not its place in the log
BAD_LENGTHS = 6  # the lengths of body, topic and properties do not add up to the size
BAD_CRC = 7  # the body differs from its checksum
BAD_HOLE = 8  # a part beside the body was never written

# Records of a transaction that is not committed are in no queue (MessageSysFlag).
TRANSACTION_MASK = 0xC
PREPARED = 0x4
ROLLED_BACK = 0xC

MAGIC_V1 = record_layout.MAGIC_V1
MAGIC_V2 = record_layout.MAGIC_V2
RECORD_FIXED_BYTES = record_layout.FIXED_BYTES
END_OF_FILE_RESERVE = record_layout.BLANK_BYTES  # room for the blank record that closes a file
CQ_ENTRY_BYTES = 20
SCAN_LIMIT = 4096  # the most index entries read in one call
RECORD_SCAN_LIMIT = 1024  # the same when each record is read, perhaps from the disk
MAX_SPANS = 64  # parts of the log that one read may show: each costs as much as copying some records
