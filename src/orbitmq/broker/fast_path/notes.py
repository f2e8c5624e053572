# cython: annotation_typing=False
"""Notes of the fast path's pulls, kept until they are read.

One note for each queue that a group pulls: where its pulls began and ended and how many bytes they returned,
for statistics only, and their commit, which is passed on at once. Typed in ``notes.pxd`` and compiled when a
C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from array import array

from orbitmq.broker.fast_path import layout

NOTE_WIDTH = layout.NOTE_WIDTH
SLOTS = 2 * layout.MAX_NOTES  # a power of two, and never more than half full
MAX_NOTES = layout.MAX_NOTES
NO_COMMIT = -1
FREE = -1


class PullNotes:
    """The notes, in a hash table of fixed size.

    Attributes:
        count: the number of notes; the caller takes them before there are more than ``MAX_NOTES``.
        commits: whether a note commits an offset.
    """

    def __init__(self) -> None:
        self.notes = array("q", [FREE] * (SLOTS * NOTE_WIDTH))
        self.order = array("q", bytes(8 * MAX_NOTES))
        self.count = 0
        self.commits = False

    def full(self) -> bool:
        return self.count >= MAX_NOTES

    def keep(self, pull: int, queue_id: int, commit: int, before: int, after: int, size: int) -> None:
        """Note a pull. If the queue already has a note the last commit wins, as in RocketMQ."""
        slot = (31 * pull + queue_id) & (SLOTS - 1)
        at = slot * NOTE_WIDTH
        while self.notes[at] != FREE and (self.notes[at] != pull or self.notes[at + 1] != queue_id):
            slot = (slot + 1) & (SLOTS - 1)
            at = slot * NOTE_WIDTH
        if self.notes[at] == FREE:
            self.notes[at] = pull
            self.notes[at + 1] = queue_id
            self.notes[at + 2] = NO_COMMIT
            self.notes[at + 3] = before
            self.notes[at + 5] = 0
            self.order[self.count] = at
            self.count += 1
        if commit >= 0:
            self.notes[at + 2] = commit
            self.commits = True
        self.notes[at + 4] = after
        self.notes[at + 5] += size

    def take(self) -> list[tuple[int, int, int, int, int, int]]:
        """Take the notes, in the order in which their queues were first pulled."""
        taken = []
        for i in range(self.count):
            at = self.order[i]
            taken.append(
                (
                    self.notes[at],
                    self.notes[at + 1],
                    self.notes[at + 2],
                    self.notes[at + 3],
                    self.notes[at + 4],
                    self.notes[at + 5],
                )
            )
            self.notes[at] = FREE
        self.count = 0
        self.commits = False
        return taken
