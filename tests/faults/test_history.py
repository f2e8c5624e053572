"""The questions that are asked of a run, by histories written down: each check finds what it looks for."""

from __future__ import annotations

from benchmarks.faults.figures import places
from benchmarks.faults.history import AUDIT, Event, History, Pull, Receipt, Send, longest_gap


def sent(role: str, number: int, at: float, *, delay_s: float = 0.0, **more: bool) -> Send:
    return Send(role, number, at, at + 0.01, more.get("stored", True), more.get("wanted", True), delay_s)


def got(role: str, number: int, at: float, offset: int = 0, queue_id: int = 0) -> Receipt:
    return Receipt(role, number, at, "broker-a", queue_id, offset)


def test_lost_is_what_was_acknowledged_and_never_came() -> None:
    history = History(
        sends=[
            sent("once", 1, 0),
            sent("once", 2, 0),
            sent("once", 3, 0, stored=False),
            sent("x", 4, 0, wanted=False),
        ],
        receipts=[got("once", 1, 1), got("other", 2, 1)],
    )
    assert [send.number for send in history.lost()] == [2]


def test_what_a_slow_group_passed_over_is_found() -> None:
    backlog = [sent(AUDIT, number, 0, stored=number != 7) for number in range(200)]
    # The first group has not read far yet. The second one skipped two messages, of which one was never
    # acknowledged.
    receipts = [got("backlog", number, 1) for number in range(40)]
    receipts += [got("restarting", number, 1) for number in range(150) if number not in {7, 30, 120}]
    history = History(sends=backlog, receipts=receipts)
    assert [(send.role, send.number) for send in history.passed_over()] == [("restarting", 30)]
    assert len(history.lost()) == 199


def test_lost_messages_are_told_by_queue() -> None:
    lost = [
        Send("once", number, number, number + 0.5, True, broker="broker-a", queue_id=queue_id, offset=offset)
        for number, (queue_id, offset) in enumerate([(1, 7), (0, 3), (1, 8)])
    ]
    assert places(lost) == [
        "once, broker-a queue 0: 1, offsets 3 to 3, sent from 1.00 to 1.50 s",
        "once, broker-a queue 1: 2, offsets 7 to 8, sent from 0.00 to 2.50 s",
    ]


def test_what_was_rolled_back_or_is_too_early_is_found() -> None:
    history = History(
        sends=[
            sent("tx", 1, 0, wanted=False),
            sent("timer", 1, 1, delay_s=5),
            sent("timer", 2, 1, delay_s=5),
        ],
        receipts=[got("tx", 1, 2), got("timer", 1, 5.9), got("timer", 2, 6.02)],
    )
    assert [receipt.role for receipt in history.unwanted()] == ["tx"]
    assert [receipt.number for receipt in history.early()] == [1]


def test_order_is_that_of_first_deliveries_in_a_queue() -> None:
    again = History(receipts=[got("o", 1, 1, 0), got("o", 2, 2, 1), got("o", 1, 3, 0), got("o", 3, 4, 2)])
    assert again.disorder("o") == []
    other_queue = History(receipts=[got("o", 1, 1, 5), got("o", 2, 2, 0, queue_id=1)])
    assert other_queue.disorder("o") == []
    wrong = History(receipts=[got("o", 1, 1, 1), got("o", 2, 2, 0)])
    assert [receipt.number for receipt in wrong.disorder("o")] == [2]


def test_repetitions_and_those_of_what_was_pending() -> None:
    history = History(
        sends=[sent("delayed", 1, 0, delay_s=5), sent("delayed", 2, 8, delay_s=5)],
        receipts=[got("delayed", 1, 5), got("delayed", 1, 6), got("delayed", 2, 13), got("delayed", 2, 14)],
    )
    assert history.repeated("delayed") == 2
    assert history.repeated_pending("delayed", 10) == 1


def test_lateness_counts_from_the_answer_and_only_what_was_due_then() -> None:
    history = History(
        sends=[sent("timer", number, at, delay_s=5) for number, at in ((1, 0), (2, 6), (3, 20))],
        receipts=[got("timer", 1, 5.01), got("timer", 2, 11.51), got("timer", 3, 40)],
    )
    assert [round(late, 2) for late in history.late("timer", 0, 20)] == [0.0, 0.5]


def test_gaps_reach_to_the_edges_of_the_time() -> None:
    assert longest_gap([1.0, 2.0, 2.5], 0.0, 3.0) == 1.0
    assert longest_gap([], 0.0, 3.0) == 3.0
    assert longest_gap([2.9, -4.0, 9.0], 0.0, 3.0) == 2.9


def test_how_long_sends_fail() -> None:
    history = History(
        sends=[sent("once", 1, 9.9, stored=False), sent("once", 2, 10.5, stored=False), sent("once", 3, 11)]
    )
    assert round(history.failing_s("once", 10, 20), 2) == 0.51
    assert history.longest_gap("once", 9, 12) > 2


def test_the_first_question_about_an_open_transaction() -> None:
    history = History(
        sends=[sent("transaction", 1, 5), sent("transaction", 2, 11)],
        checks=[(1, 12.0), (2, 18.0), (2, 19.0)],
    )
    assert history.first_check(10) == 7.0
    assert history.checked_twice() == 1


def test_events_by_their_beginning() -> None:
    history = History(events=[Event(1, "leads", "a1 leads"), Event(5, "leads", "a1 does not lead")])
    assert history.first("leads", "a1 leads") == 1
    assert history.first("leads", "a1 leads", 2) is None


def test_what_was_committed_and_comes_again() -> None:
    history = History(
        receipts=[got("restarting", 1, 1, 1), got("restarting", 2, 2, 2), got("restarting", 1, 9, 1)],
        committed={"restarting": 1},
    )
    assert history.repeated_committed() == 0
    history.committed["restarting"] = 2
    assert history.repeated_committed() == 1


def stored(role: str, at: float, took: float, broker: str = "broker-a") -> Send:
    return Send(role, 0, at, at + took, True, broker=broker)


def test_sends_that_a_broker_stored() -> None:
    history = History(
        sends=[stored("default", 1, 0.5), stored("default", 2, 3, "broker-b"), stored("timer", 2, 4)]
    )
    assert history.slowest("broker-a", 0, 10) == 0.5
    assert history.slowest("broker-a", 0, 1) == 0.0
    assert history.first_stored("default", "broker-b", 1) == 5
    assert history.first_stored("default", "broker-a", 2) is None


def test_the_queue_that_is_pulled_most_often() -> None:
    pulls = [Pull(at, "default", "g", queue) for at, queue in ((1, 0), (2, 0), (3, 1), (9, 0))]
    history = History(pulls=[*pulls, *[Pull(2, "backlog", "g", 0)] * 5])
    assert history.most_pulls(["default"], 0, 5) == 2
    assert history.most_pulls(["once"], 0, 5) == 0
