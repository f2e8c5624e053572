"""Numbers that the compiled index builder and its callers share."""

from __future__ import annotations

# The parts of an index file (IndexFile, IndexHeader).
HEADER_BYTES = 40
SLOT_BYTES = 4
ENTRY_BYTES = 20

# The results of a scan.
DONE = 0  # everything up to the end was read
MORE = 1  # the entry buffer is full: write it and continue
FULL = 2  # the next record's keys do not fit into the file
BROKEN = 3  # no record begins at the position
