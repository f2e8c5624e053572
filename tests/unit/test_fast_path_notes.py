"""Notes on pulls of the fast path: one for each queue, until they are taken."""

from __future__ import annotations

import random

from orbitmq.broker.fast_path.layout import MAX_NOTES
from orbitmq.broker.fast_path.notes import PullNotes


def test_a_queue_has_one_note_of_its_first_start_its_last_commit_and_its_last_end() -> None:
    notes = PullNotes()
    notes.keep(7, 3, -1, 10, 20, 100)
    notes.keep(7, 4, -1, 5, 6, 0)
    notes.keep(7, 3, 20, 20, 30, 10)
    notes.keep(7, 3, -1, 30, 40, 1)
    assert notes.take() == [(7, 3, 20, 10, 40, 111), (7, 4, -1, 5, 6, 0)]
    assert notes.take() == []
    notes.keep(7, 3, -1, 40, 50, 9)
    assert notes.take() == [(7, 3, -1, 40, 50, 9)]


def test_as_many_queues_as_there_is_room_for_are_told_apart() -> None:
    chance = random.Random(5)
    notes = PullNotes()
    for _ in range(20):
        queues = {(chance.randrange(2000), chance.randrange(64)): number for number in range(MAX_NOTES)}
        for (pull, queue_id), number in queues.items():
            notes.keep(pull, queue_id, -1, number, number + 1, number)
        assert notes.count == len(queues)
        assert notes.take() == [(*key, -1, number, number + 1, number) for key, number in queues.items()]
