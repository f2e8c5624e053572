"""Allocation of queues to members, and the process queue."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.consumer.allocation import (
    Allocation,
    average,
    average_by_circle,
    by_config,
    by_machine_room,
    consistent_hash,
    nearest_room,
)
from orbitmq.client.consumer.process_queue import DeliveryState, ProcessQueue
from orbitmq.message.model import MessageQueue, ReceivedMessage

QUEUES = [MessageQueue("t", "b", number) for number in range(8)]


def message(offset: int, size: int = 10) -> ReceivedMessage:
    made = ReceivedMessage("t", bytes(size))
    made.queue_offset = offset
    return made


@pytest.mark.parametrize("allocate", [average, average_by_circle, consistent_hash()])
@given(st.integers(0, 40), st.integers(1, 12))
def test_every_queue_has_exactly_one_owner(allocate: Allocation, queues: int, members: int) -> None:
    wanted = [MessageQueue("t", "b", number) for number in range(queues)]
    names = [f"c{number:02}" for number in range(members)]
    shares = [allocate(name, wanted, names) for name in names]
    assert sorted(queue for share in shares for queue in share) == wanted
    if allocate is not average and allocate is not average_by_circle:
        return
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


def test_average_gives_neighbours() -> None:
    members = ["a", "b", "c"]
    assert [[q.queue_id for q in average(m, QUEUES, members)] for m in members] == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7],
    ]


def test_circle_deals_like_cards() -> None:
    members = ["a", "b", "c"]
    assert [[q.queue_id for q in average_by_circle(m, QUEUES, members)] for m in members] == [
        [0, 3, 6],
        [1, 4, 7],
        [2, 5],
    ]


@pytest.mark.parametrize("allocate", [average, average_by_circle, consistent_hash()])
def test_a_stranger_gets_nothing(allocate: Allocation) -> None:
    assert allocate("stranger", QUEUES, ["a"]) == []


def test_config_gives_the_fixed_list_as_far_as_it_exists() -> None:
    other = MessageQueue("other", "b", 0)
    assert by_config([QUEUES[2], other])("anyone", QUEUES, ["a"]) == [QUEUES[2]]


def test_consistent_hash_moves_few_queues() -> None:
    queues = [MessageQueue("t", "b", number) for number in range(200)]
    before = {m: set(consistent_hash()(m, queues, ["a", "b", "c"])) for m in "abc"}
    after = {m: set(consistent_hash()(m, queues, ["a", "b"])) for m in "ab"}
    assert before["a"] <= after["a"]
    assert before["b"] <= after["b"]


@pytest.mark.behaviour("CR-10")
def test_the_offset_is_that_of_the_smallest_unfinished_message() -> None:
    held = ProcessQueue(QUEUES[0], 5)
    assert held.committable() == -1
    held.add([message(5), message(6), message(8)])
    assert held.committable() == 5
    for offset, then in ((6, 5), (5, 8), (8, 9)):
        assert held.finish(offset)
        assert held.committable() == then
    assert not held.finish(8)


def test_messages_pulled_twice_are_delivered_once() -> None:
    held = ProcessQueue(QUEUES[0], 0)
    assert len(held.add([message(0), message(1)])) == 2
    assert [m.queue_offset for m in held.add([message(1), message(2)])] == [2]
    assert held.unfinished_bytes == 30
    assert held.span == 2
    assert 1 in held
    assert 3 not in held
    for offset in range(3):
        held.finish(offset)
    assert (len(held), held.unfinished_bytes, held.committable(), held.span) == (0, 0, 3, 0)


def test_a_message_that_ended_before_its_loop_was_left_holds_up_no_move() -> None:
    held = ProcessQueue(QUEUES[0], 0)
    held.add([message(0), message(1)])
    held.begun |= {0: (DeliveryState.HANDLER, 0), 1: (DeliveryState.LOOP, 0)}
    assert (held.in_flight, held.at_work) == (2, True)
    held.finish(0)  # the message took too long and was sent back
    held.leave_open(0)
    assert (held.in_flight, held.at_work, held.state(0)) == (1, True, None)
    held.leave_open(1)
    assert (held.in_flight, held.at_work, held.state(1)) == (1, False, DeliveryState.LEFT)
    held.put_aside(1)
    assert (held.in_flight, held.at_work) == (0, False)


@given(st.permutations(range(30)), st.integers(1, 30))
@pytest.mark.behaviour("CR-10")
def test_finishing_in_any_order_never_skips_an_unfinished_message(order: list[int], upto: int) -> None:
    held = ProcessQueue(QUEUES[0], 0)
    held.add(message(offset) for offset in range(30))
    unfinished = set(range(30))
    commits = []
    for offset in order[:upto]:
        unfinished.discard(offset)
        assert held.finish(offset)
        commits.append(held.committable())
        assert commits[-1] == min(unfinished, default=30)
        assert held.unfinished_bytes == 10 * len(unfinished) == 10 * len(held)
    assert all(later >= earlier for earlier, later in pairwise(commits))
    assert [m.queue_offset for m in held.messages()] == sorted(unfinished)


def in_room(room: str, number: int) -> MessageQueue:
    return MessageQueue("t", f"{room}@b", number)


def test_only_brokers_of_the_named_rooms_are_read() -> None:
    queues = [in_room("near", n) for n in range(5)] + [in_room("far", 0), MessageQueue("t", "roomless", 0)]
    allocate = by_machine_room(["near"])
    assert [[q.queue_id for q in allocate(m, queues, ["a", "b"])] for m in "ab"] == [[0, 1, 4], [2, 3]]
    assert allocate("stranger", queues, ["a", "b"]) == []


def test_the_nearest_members_get_a_rooms_queues_and_all_those_of_an_empty_room() -> None:
    queues = [in_room(room, n) for room in ("r1", "r2", "r3") for n in range(4)]
    allocate = nearest_room(lambda queue: queue.broker_name.split("@")[0], lambda client: client[:2])
    members = ["r1a", "r1b", "r2a"]
    shares = {member: allocate(member, queues, members) for member in members}
    assert sorted(queue for share in shares.values() for queue in share) == sorted(queues)
    assert {queue.broker_name for queue in shares["r2a"]} == {"r2@b", "r3@b"}
    assert [queue.queue_id for queue in shares["r1a"] if queue.broker_name == "r1@b"] == [0, 1]
    with pytest.raises(ValueError, match="no room is known of c"):
        nearest_room(lambda queue: "r1", lambda client: "")("c", queues, ["c"])
