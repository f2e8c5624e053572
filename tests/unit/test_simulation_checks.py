"""What the checkers of the one simulation leave out, because the mode does not promise it."""

from __future__ import annotations

import pytest

from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import retry_topic
from orbitmq.runtime.virtual_loop import VirtualClock
from orbitmq.testing.simulation.checks import not_handled
from orbitmq.testing.simulation.history import Delivered, History, Stored
from orbitmq.testing.simulation.plan import Mode, Plan
from orbitmq.testing.simulation.watch import again, behind

PLAN = Plan(1, Mode(name_servers=1, quorum=True, sync_flush=False), ())
QUEUE = MessageQueue("plain", "broker-b", 0)
RETRY = retry_topic("push")


def stored(body: bytes, topic: str, offset: int) -> Stored:
    return Stored(body, "broker-b", topic, 0, offset, place=100 * offset)


def history(*retried: bytes) -> History:
    """``plain-2`` failed, its copy is the last of the retry queue; ``plain-1`` was handled there at 0."""
    made = History(VirtualClock())
    made.stored = {"plain": [stored(b"plain-2", "plain", 7)]}
    made.retried = {"push": [stored(body, RETRY, offset) for offset, body in enumerate(retried)]}
    made.delivered = [
        Delivered(b"plain-2", "push", "one", QUEUE, 7, 1.0),
        Delivered(b"plain-1", "push", "one", QUEUE, 0, 2.0, again=True, ended_s=2.0),
    ]
    made.by_group = {"push": {b"plain-1"}, "pop": {b"plain-2"}, "in-order": set()}
    return made


def test_a_copy_in_the_place_of_a_forgotten_one_may_be_skipped() -> None:
    """Seed 2593: a group goes on behind what it read, and what was stored there next is not read."""
    assert list(not_handled(PLAN, history(b"plain-2"))) == []


@pytest.mark.parametrize("retried", [(b"plain-1", b"plain-2"), (b"plain-1",), (b"other", b"plain-2")])
def test_another_copy_may_not(retried: tuple[bytes, ...]) -> None:
    missing = [(group, one.body) for group, one in not_handled(PLAN, history(*retried))]
    assert missing == [("push", b"plain-2")]


@pytest.mark.parametrize(
    ("now", "end", "broken"),
    [
        (108, 108, False),
        (106, 106, False),  # the queue lost its end (seed 7689), and there is nothing more to commit
        (106, 107, True),
        (106, 200, True),
        (0, 108, True),
    ],
)
def test_an_offset_is_not_behind_where_its_queue_ends(now: int, end: int, broken: bool) -> None:
    place = ("broker-a", "ordered@push", 0)
    found = behind({place: 108}, {place: now}, lambda _: end)
    assert found == ({place: (now, 108)} if broken else {})


@pytest.mark.parametrize(
    ("before", "count", "once_more"),
    [(0, 1, False), (1, 2, True), (1, 0, False), (2, 1, False)],
)
def test_a_slave_that_lost_its_disk_sets_nothing_aside_once_more(
    before: int, count: int, once_more: bool
) -> None:
    assert again(before, count) == once_more
