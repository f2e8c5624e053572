"""Numbers that the compiled appender and its callers share: columns, answers, sizes."""

from __future__ import annotations

# Columns of a queue's slot.
Q_NEXT = 0  # the queue offset that the next record gets
Q_VISIBLE = 1  # reads see offsets below this one
Q_MIN = 2  # the smallest offset still stored
Q_TAIL = 3  # where the ring of the queue starts in ``tails``, -1: none yet
Q_TAIL_FIRST = 4  # the smallest offset that the ring may hold
Q_SAVED = 5  # offsets below this one are in the consume queue file
Q_DIRTY = 6  # has records of this batch
Q_WATCHED = 7  # somebody waits for new records
Q_MAP_FIRST = 8  # first offset of the consume queue file mapped for reads
Q_MAP_COUNT = 9  # entries in that map, 0: none
Q_LAST_STORED = 10  # store timestamp of the newest record, ms
Q_WIDTH = 12

# What :meth:`Appender.append` and :meth:`Appender.check_room` answer instead of an offset.
NO_ROOM = -1  # the write batch is full: write it first
ROLL = -2  # the record does not fit in the current file
TAIL_FULL = -3  # the queue's ring holds entries that are not in its file yet

# What :meth:`Appender.read` answers.
READ_FOUND = 0
READ_NO_MATCH = 1
READ_NEED_ENTRIES = 2  # the consume queue file with ``need`` (a queue offset) is not mapped
READ_NEED_LOG = 3  # the log file with ``need`` (a physical offset) is not mapped
READ_NO_SPACE = 4  # the first message does not fit into the output
READ_BROKEN = 5  # the index points to something that is not a record

MAGIC_V1 = -626843481  # 0xDAA320A7
MAGIC_V2 = -626843477  # 0xDAA320AB
RECORD_FIXED_BYTES = 75  # all fixed fields but the two hosts, with lengths of body, topic (V1) and properties
END_OF_FILE_RESERVE = 8  # room for the blank record that closes a file
CQ_ENTRY_BYTES = 20
SCAN_LIMIT = 4096  # index entries looked at in one read
