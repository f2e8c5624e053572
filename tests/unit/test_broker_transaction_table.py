"""The table of unfinished half messages, against a plain model; op message bodies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.transactions.forms import immunity_ms, marked_offsets, op_messages
from orbitmq.broker.transactions.half_table import Half, HalfTable, MarkProgress

STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "read", "finish", "ask"]), st.integers(0, 30)), max_size=60
)


@given(STEPS)
def test_the_table_agrees_with_a_list_of_all_half_messages(steps: list[tuple[str, int]]) -> None:
    table = HalfTable(0)
    open_since: dict[int, int] = {}
    ended: set[int] = set()
    end = 0

    def read() -> None:
        if table.next_offset < end:
            if not table.skip():
                offset = table.next_offset
                table.admit(Half(offset, offset * 100, offset, "same", offset, "T"))
            table.next_offset += 1

    for step, number in steps:
        if step == "put":
            open_since[end] = number
            end += 1
        elif step == "read":
            read()
        elif step == "finish" and number < end:
            current = table.current(number, number)
            assert (current is None) == (number in ended)
            if current is not None:
                table.finish(current)
                ended.add(number)
                open_since.pop(number)
        elif step == "ask":
            for half in table.due(number, 100):
                assert half.offset in open_since
                assert half.due_ms <= number
                table.postpone(half, half.due_ms)
        assert table.unfinished(end) == len(open_since)
        assert table.progress <= min(open_since, default=end)
    while table.next_offset < end:
        read()
    assert table.progress == min(open_since, default=end)
    assert [half.offset for half in table.due(10_000, 10_000)] == sorted(open_since)


def test_a_copy_stands_for_its_original_until_it_is_finished() -> None:
    table = HalfTable(0)
    original = Half(0, 0, 0, "U", 6, "T")
    table.admit(original)
    table.next_offset = 1
    copy = Half(1, 100, 0, "U", 36, "T")
    table.replace(original, copy)
    assert original not in table
    assert copy in table
    assert table.current(0, 0) == 1
    assert table.progress == 1
    table.finish(1)
    assert table.current(0, 0) is None
    assert table.current(1, 0) is None
    assert table.skip()


@pytest.mark.behaviour("TX-13")
def test_a_copy_that_is_read_takes_the_place_of_what_it_copies() -> None:
    """The log may end between a copy and the mark of its original: seed 252 of the gRPC simulation."""
    table = HalfTable(0)
    assert table.admit(Half(0, 0, 0, "U", 6, "T")) is None
    assert table.admit(Half(1, 100, 0, "U", 36, "T")) == 0
    assert table.admit(Half(2, 200, 0, "U", 66, "T")) == 1
    table.next_offset = 3
    assert [half.offset for half in table.due(100, 10)] == [2]
    assert [table.current(offset, 0) for offset in range(3)] == [2, 2, 2]
    assert table.progress == 2
    assert table.by_topic == {"T": 1}


def test_an_old_half_message_of_which_nothing_is_known_counts_as_open() -> None:
    assert HalfTable(10).current(3, 3) == 3


def test_the_table_stays_small_behind_one_that_is_never_ended() -> None:
    table = HalfTable(0)
    for offset in range(20_000):
        table.admit(Half(offset, offset, offset, "", 1_000_000, "T"))
        table.next_offset = offset + 1
        if offset:
            table.finish(offset)
    assert len(table) == 1
    assert len(table._order) < 2000
    assert len(table._due) < 2000
    assert table.progress == 0


@given(st.lists(st.integers(0, 100), min_size=1, max_size=50), st.integers(0, 101))
def test_marks_are_kept_until_all_they_name_lies_behind(highest: list[int], half_progress: int) -> None:
    marks = MarkProgress(0)
    for op_offset, mark in enumerate(highest):
        marks.note(op_offset, mark)
    done = marks.progress(half_progress)
    assert all(mark < half_progress for mark in highest[:done])
    assert done == len(highest) or highest[done] >= half_progress


def test_very_many_marks_are_kept_as_runs() -> None:
    marks = MarkProgress(0)
    for op_offset in range(50_000):
        marks.note(op_offset, op_offset)
    assert len(marks._runs) <= 10_000
    assert 0 < marks.progress(30_000) <= 30_000
    assert marks.progress(60_000) == 50_000


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=200), st.integers(1, 300))
def test_op_messages_name_every_offset_once_within_the_limit(offsets: list[int], limit: int) -> None:
    made = op_messages(offsets, limit, 5, ("127.0.0.1", 1))
    assert [offset for message, _ in made for offset in marked_offsets(message.body)] == offsets
    for message, highest in made:
        assert highest == max(marked_offsets(message.body))
        assert len(message.body) < limit + 11


def test_the_body_of_an_op_message_is_rocketmqs() -> None:
    [(message, _)] = op_messages([7, 12], 4096, 5, ("127.0.0.1", 1))
    assert message.body == b"7,12,"
    assert message.topic == "RMQ_SYS_TRANS_OP_HALF_TOPIC"
    assert message.properties == b"TAGS\x01d\x02WAIT\x01true\x02"
    assert marked_offsets(b"7,x,12") == [7, 12]


def test_immunity_is_a_number_of_seconds() -> None:
    for text, expected in (("30", 30_000), ("-1", 6000), ("soon", 6000), ("0", 0)):
        assert immunity_ms({"CHECK_IMMUNITY_TIME_IN_SECONDS": text}, 6000) == expected
    assert immunity_ms({}, 6000) == 6000
