"""The heir of the queue locks, by scripts: each line has a time, events, and after ``->`` the
expected state.
"""

from __future__ import annotations

import pytest

from orbitmq.replication.members.fence import Timing
from orbitmq.replication.members.heir import (
    LONGEST_HOLD_S,
    LockCompleteness,
    LockGrantor,
    hold_s,
)
from orbitmq.replication.members.lease import MAX_QUESTIONS, Lease

TERMS = Timing(timeout_s=4.0, look_s=1.0)
HOLD_S = hold_s(TERMS)


def lines(script: str) -> list[tuple[float, list[str], str]]:
    found = []
    for line in script.strip().splitlines():
        what, _, expected = line.partition("->")
        at, *words = what.split()
        found.append((float(at), words, expected.strip()))
    return found


def of_leader(script: str) -> None:
    """Play a script for a leader: with ``ask1`` slave 1 asks, with ``gone`` the heir's port refuses; after
    ``->`` the answers, then the heir.
    """
    will = LockGrantor(TERMS)
    for now_s, words, expected in lines(script):
        seen = []
        for word in words:
            if word == "gone":
                heir = will.heir(now_s)
                assert heir is not None
                will.is_gone(heir)
            else:
                number = int(word.removeprefix("ask"))
                seen.append("yes" if will.request_promise(number, f"h{number}:1", HOLD_S, now_s) else "no")
        heir = will.heir(now_s)
        seen.append("nobody" if heir is None else f"{heir.broker_id}@{heir.address} until {heir.until_s:g}")
        assert " ".join(seen) == expected, f"at {now_s} s"


def of_slave(script: str) -> None:
    """Play a script for a slave: ``ask``, ``1`` the answer to the first question, ``void``; then whether it
    has all locks.
    """
    claim = Lease(1, HOLD_S)
    for now_s, words, expected in lines(script):
        for word in words:
            if word == "ask":
                claim.new_request(now_s)
            elif word == "void":
                claim.withdraw()
            else:
                claim.given(0, int(word))
        assert ("all" if claim.holds(now_s) else "not all") == expected, f"at {now_s} s"


@pytest.mark.behaviour("LK-12")
def test_a_promise_ends_later_than_who_got_it_counts_on_it() -> None:
    assert (HOLD_S, TERMS.guard_s) == (8.5, 0.5)
    of_leader("""
        0.0         -> nobody
        1.0  ask1   -> yes 1@h1:1 until 10
        2.0  ask1   -> yes 1@h1:1 until 11
        10.9        -> 1@h1:1 until 11
        11.0        -> nobody
    """)
    of_slave("""
        0.9  ask    -> not all
        1.1  1      -> all
        1.9  ask    -> all
        9.3         -> all
        9.4         -> not all
        9.5  2      -> all
        10.4        -> not all
    """)


@pytest.mark.behaviour("LK-12")
def test_the_heir_is_the_lowest_of_those_that_ask_and_one_at_a_time() -> None:
    of_leader("""
        0.0   ask2        -> yes 2@h2:1 until 9
        1.0   ask2        -> yes 2@h2:1 until 10
        1.5   ask1        -> no 2@h2:1 until 10
        2.0   ask2        -> no 2@h2:1 until 10
        3.5   ask1 ask2   -> no no 2@h2:1 until 10
        9.5   ask1 ask2   -> no no 2@h2:1 until 10
        10.0  ask1 ask2   -> yes no 1@h1:1 until 19
        12.0  ask2        -> no 1@h1:1 until 19
        13.0  ask2        -> no 1@h1:1 until 19
        19.0  ask2        -> yes 2@h2:1 until 28
    """)


@pytest.mark.behaviour("LK-12")
def test_nobody_counts_on_the_promise_to_a_process_that_is_gone() -> None:
    of_leader("""
        0.0  ask1         -> yes 1@h1:1 until 9
        0.5  gone         -> nobody
        3.5  ask2         -> yes 2@h2:1 until 12.5
    """)
    will = LockGrantor(TERMS)
    assert will.request_promise(1, "h1:1", HOLD_S, 0.0)
    before = will.heir(0.0)
    assert before is not None
    will.is_gone(before)
    assert will.request_promise(1, "h1:1", HOLD_S, 1.0)
    will.is_gone(before)
    assert will.heir(1.0) is not None, "another one has come since"


def test_nobody_is_promised_what_never_ends() -> None:
    will = LockGrantor(TERMS)
    for hold in (-1.0, 0.0, LONGEST_HOLD_S + 1, float("inf"), float("nan")):
        assert not will.request_promise(1, "h1:1", hold, 0.0)
    assert will.heir(0.0) is None


def test_what_was_promised_before_is_void() -> None:
    of_slave("""
        0.0  ask 1   -> all
        1.0  ask     -> all
        1.1  void    -> not all
        1.2  2       -> not all
        2.0  ask     -> not all
        2.1  3       -> all
        2.2  1       -> all
    """)


def of_one_that_led(script: str, *, of_two: bool = True) -> None:
    """Play a script for a leader's knowledge: it ``begins`` to lead with all locks from a time on or ``?``,
    still ``leads``, ``promises`` to a slave, ``ends``; ``void``; ``all`` locks were received. Then from which
    time on it knows all locks, if it does.
    """
    knowledge, will = LockCompleteness(TERMS.guard_s, of_two=of_two), LockGrantor(TERMS)
    for now_s, words, expected in lines(script):
        match words:
            case ["begins", from_s]:
                knowledge.begins(now_s, None if from_s == "?" else float(from_s))
            case ["leads"]:
                knowledge.leads(now_s)
            case ["promises"]:
                assert will.request_promise(1, "h1:1", HOLD_S, now_s)
            case ["ends"]:
                knowledge.ends(will)
            case ["void"]:
                knowledge.void()
            case ["all"]:
                knowledge.has_all(now_s)
        after_s = knowledge.after(now_s)
        assert ("unknown" if after_s is None else f"{after_s:g}") == expected, f"at {now_s} s"


@pytest.mark.behaviour("LK-14")
def test_what_a_leader_knew_is_all_for_as_long_as_another_one_would_wait() -> None:
    script = """
        0.0            -> unknown
        1.0  begins 0  -> 0
        5.0  leads     -> 0
        40.0 ends      -> unknown
        41.0 begins ?  -> 71
        45.0 leads     -> 71
        46.0 ends      -> {waits}
        74.4           -> {waits}
        74.5           -> unknown
    """
    of_one_that_led(script.format(waits="71"))
    of_one_that_led(script.format(waits="unknown"), of_two=False)


@pytest.mark.behaviour("LK-14")
def test_what_was_passed_on_is_another_brokers() -> None:
    of_one_that_led("""
        1.0  begins 0  -> 0
        5.0  promises  -> 0
        6.0  leads     -> 0
        9.0  ends      -> unknown
        20.0 begins 0  -> 0
        24.0 leads     -> 0
        25.0 ends      -> 0
        26.0 void      -> unknown
        27.0 all       -> 0
        56.4           -> 0
        56.5           -> unknown
    """)


def test_an_answer_that_comes_late_counts_from_its_question() -> None:
    of_slave("""
        0.0  ask     -> not all
        1.0  ask     -> not all
        2.0  2       -> all
        2.1  1       -> all
        9.4          -> all
        9.5          -> not all
        9.6  7       -> not all
    """)


def test_old_questions_are_forgotten() -> None:
    claim = Lease(1, HOLD_S)
    numbers = [claim.new_request(0.0) for _ in range(MAX_QUESTIONS + 1)]
    claim.given(0, numbers[0])
    assert not claim.holds(0.0)
    claim.given(0, numbers[1])
    assert claim.holds(0.0)
