"""The slaves that count as replicas, and the offset up to which enough of them have the log, by scripts.

A step is "time: events", the trace is "in sync/need mark", "-" for "this broker is enough", and "refused"
when the master would refuse a new message. "log" moves the end of the log, "up", "ack", "gone" are the HA
port's calls: ``up link replica``, ``ack link received [durable]``, ``gone link``; "judge" lets the master
check its slaves.
"""

from __future__ import annotations

import pytest

from orbitmq.replication.replicas import EVERYTHING, QuorumRule, Replicas, ReportError, Rule

STRICT = QuorumRule(in_sync_replicas=2, max_gap_bytes=1000)
DEGRADING = QuorumRule(in_sync_replicas=2, auto=True, max_gap_bytes=1000)
THREE = QuorumRule(in_sync_replicas=3, max_gap_bytes=1000)


def played(rule: QuorumRule, script: str) -> None:
    """Run a script; each line's trace must be the one behind its arrow."""
    end = 0
    replicas = Replicas(rule, lambda: end)
    for line in filter(None, map(str.strip, script.splitlines())):
        step, _, expected = line.partition("->")
        time_text, _, call = step.partition(":")
        now, words = float(time_text), call.split()
        failed = ""
        match words:
            case ["log", to]:
                end = int(to)
            case ["up", link, replica]:
                replicas.connected(link, replica, now)
            case ["ack", link, *positions]:
                received, durable = int(positions[0]), int(positions[-1])
                try:
                    replicas.reported(link, received, durable, now)
                except ReportError:
                    failed = "error "
            case ["gone", link]:
                replicas.gone(link, now)
            case ["judge"]:
                replicas.judge(now)
            case _:
                raise AssertionError(line)
        mark = "-" if replicas.replicated == EVERYTHING else str(replicas.replicated)
        state = f"{failed}{replicas.in_sync}/{replicas.need} {mark}{'' if replicas.enough else ' refused'}"
        assert state == expected.strip(), line


@pytest.mark.behaviour("QW-02", "QW-05", "QW-10")
def test_a_message_is_replicated_when_the_slave_has_reported_it() -> None:
    played(
        STRICT,
        """
        0.0: log 100        -> 1/2 0 refused
        0.0: up a slave     -> 1/2 0 refused
        0.1: ack a 100      -> 2/2 100
        0.2: log 300        -> 2/2 100
        0.2: judge          -> 2/2 100
        0.3: ack a 250      -> 2/2 250
        0.4: ack a 300      -> 2/2 300
        """,
    )


@pytest.mark.behaviour("QW-07")
def test_the_need_is_fixed_when_it_does_not_follow_what_is_in_sync() -> None:
    played(
        STRICT,
        """
        0.0: up a slave     -> 1/2 0 refused
        0.0: ack a 0        -> 2/2 0
        0.1: log 50         -> 2/2 0
        0.2: gone a         -> 1/2 0 refused
        0.3: up b slave     -> 1/2 0 refused
        0.4: ack b 50       -> 2/2 50
        """,
    )


@pytest.mark.behaviour("QW-06")
def test_with_automatic_adjustment_fewer_in_sync_are_enough() -> None:
    played(
        DEGRADING,
        """
        0.0: log 100        -> 1/1 -
        0.1: up a slave     -> 1/1 -
        0.1: ack a 100      -> 2/2 100
        0.2: log 200        -> 2/2 100
        0.3: gone a         -> 1/1 -
        0.4: log 900        -> 1/1 -
        0.5: up a slave     -> 1/1 -
        0.6: ack a 200      -> 2/2 200
        0.7: ack a 900      -> 2/2 900
        """,
    )


@pytest.mark.behaviour("QW-06")
def test_but_never_fewer_than_the_least() -> None:
    played(
        QuorumRule(in_sync_replicas=3, min_in_sync_replicas=2, auto=True),
        """
        0.0: up a one       -> 1/2 0 refused
        0.0: ack a 0        -> 2/2 0
        0.1: up b two       -> 2/2 0
        0.1: ack b 0        -> 3/3 0
        0.2: log 10         -> 3/3 0
        0.2: ack a 10       -> 3/3 0
        0.3: gone b         -> 2/2 10
        0.4: gone a         -> 1/2 10 refused
        """,
    )


@pytest.mark.behaviour("QW-12")
def test_all_in_sync_must_have_it() -> None:
    played(
        QuorumRule(all_in_sync=True, min_in_sync_replicas=2),
        """
        0.0: up a one       -> 1/2 0 refused
        0.0: ack a 0        -> 2/2 0
        0.0: up b two       -> 2/2 0
        0.0: ack b 0        -> 3/3 0
        0.1: log 10         -> 3/3 0
        0.2: ack a 10       -> 3/3 0
        0.3: ack b 10       -> 3/3 10
        0.4: gone a         -> 2/2 10
        0.5: gone b         -> 1/2 10 refused
        """,
    )


@pytest.mark.behaviour("QW-10")
def test_of_three_brokers_the_slower_slave_decides() -> None:
    played(
        THREE,
        """
        0.0: up a one       -> 1/3 0 refused
        0.0: ack a 0        -> 2/3 0 refused
        0.0: up b two       -> 2/3 0 refused
        0.0: ack b 0        -> 3/3 0
        0.1: log 90         -> 3/3 0
        0.2: ack a 90       -> 3/3 0
        0.3: ack b 30       -> 3/3 30
        0.4: ack b 90       -> 3/3 90
        """,
    )


@pytest.mark.behaviour("QW-03", "QW-04")
def test_in_sync_is_less_than_the_gap_behind() -> None:
    played(
        DEGRADING,
        """
        0.0: log 1500       -> 1/1 -
        0.0: up a slave     -> 1/1 -
        0.1: ack a 500      -> 1/1 -
        0.2: ack a 501      -> 2/2 501
        0.3: log 1502       -> 2/2 501
        0.4: ack a 502      -> 1/1 -
        0.5: ack a 1502     -> 2/2 1502
        """,
    )


@pytest.mark.behaviour("QW-13")
def test_a_connection_without_a_report_has_no_vote() -> None:
    played(
        DEGRADING,
        """
        0.0: up a slave     -> 1/1 -
        0.0: judge          -> 1/1 -
        9.0: judge          -> 1/1 -
        """,
    )


@pytest.mark.behaviour("QW-13")
def test_two_connections_of_one_broker_are_one_replica() -> None:
    played(
        THREE,
        """
        0.0: up a slave     -> 1/3 0 refused
        0.0: ack a 0        -> 2/3 0 refused
        0.1: up b slave     -> 2/3 0 refused
        0.1: ack b 0        -> 2/3 0 refused
        0.2: up c other     -> 2/3 0 refused
        0.2: ack c 0        -> 3/3 0
        0.3: log 40         -> 3/3 0
        0.4: ack c 40       -> 3/3 0
        0.5: ack a 20       -> 3/3 20
        0.6: ack b 40       -> 3/3 40
        0.7: gone b         -> 3/3 40
        """,
    )


@pytest.mark.behaviour("QW-13")
@pytest.mark.parametrize(
    "report", ["-1", "101", "9223372036854775807", "49", "60 61", "60 -5", "55 49", "-9223372036854775808"]
)
def test_a_report_that_cannot_be_true_takes_the_vote_away(report: str) -> None:
    played(
        STRICT,
        f"""
        0.0: log 100        -> 1/2 0 refused
        0.0: up a slave     -> 1/2 0 refused
        0.0: ack a 50       -> 2/2 50
        0.1: ack a {report} -> error 1/2 50 refused
        0.2: ack a 100      -> error 1/2 50 refused
        """,
    )


def test_a_slave_that_owes_bytes_and_is_silent_for_a_second_is_not_in_sync() -> None:
    played(
        DEGRADING,
        """
        0.0: up a slave     -> 1/1 -
        0.0: ack a 0        -> 2/2 0
        1.0: log 10         -> 2/2 0
        1.0: judge          -> 2/2 0
        1.9: judge          -> 2/2 0
        2.0: judge          -> 1/1 -
        9.0: ack a 10       -> 2/2 10
        """,
    )


def test_a_slave_that_has_everything_may_be_silent_for_ever() -> None:
    played(
        STRICT,
        """
        0.0: up a slave     -> 1/2 0 refused
        0.0: ack a 0        -> 2/2 0
        3600: judge         -> 2/2 0
        7200: log 10        -> 2/2 0
        7200.5: judge       -> 2/2 0
        7201.4: judge       -> 2/2 0
        7201.5: judge       -> 1/2 0 refused
        """,
    )


def test_a_slave_that_catches_up_is_not_silent() -> None:
    played(
        STRICT,
        """
        0.0: log 900        -> 1/2 0 refused
        0.0: up a slave     -> 1/2 0 refused
        0.0: ack a 0        -> 2/2 0
        0.9: ack a 100      -> 2/2 100
        1.8: ack a 200      -> 2/2 200
        2.7: ack a 300      -> 2/2 300
        3.7: judge          -> 1/2 300 refused
        """,
    )


def test_what_enough_brokers_have_stays_so_when_one_falls_silent() -> None:
    played(
        STRICT,
        """
        0.0: log 100        -> 1/2 0 refused
        0.0: up a slave     -> 1/2 0 refused
        0.0: ack a 80       -> 2/2 80
        1.0: judge          -> 1/2 80 refused
        """,
    )


def test_with_a_synchronous_flush_a_copy_counts_when_it_is_on_the_device() -> None:
    played(
        QuorumRule(in_sync_replicas=2, on_device=True),
        """
        0.0: log 100        -> 1/2 0 refused
        0.0: up a slave     -> 1/2 0 refused
        0.0: ack a 100 40   -> 2/2 40
        0.1: ack a 100 100  -> 2/2 100
        """,
    )


@pytest.mark.behaviour("QW-08", "QW-11")
@pytest.mark.parametrize("needed", [0, 1])
def test_one_broker_is_enough_when_no_more_are_asked_for(needed: int) -> None:
    rule = QuorumRule(in_sync_replicas=needed)
    assert not rule.ever_waits
    assert Replicas(rule, lambda: 0).replicated == EVERYTHING
    assert QuorumRule(in_sync_replicas=2).ever_waits
    assert QuorumRule(all_in_sync=True).ever_waits
    # without automatic adjustment this setting has no effect
    assert not QuorumRule(min_in_sync_replicas=2).ever_waits
    assert QuorumRule(min_in_sync_replicas=2, auto=True).ever_waits


@pytest.mark.behaviour("QW-09")
def test_a_master_of_4x_wants_one_slave() -> None:
    played(
        QuorumRule(in_sync_replicas=1, rule=Rule.ONE_SLAVE),
        """
        0.0: log 100        -> 1/2 0 refused
        0.0: up a slave     -> 1/2 0 refused
        0.0: ack a 60       -> 2/2 60
        0.1: ack a 100      -> 2/2 100
        """,
    )


def test_changes_are_told_once_and_only_changes() -> None:
    end, heard = 100, 0

    def changed() -> None:
        nonlocal heard
        heard += 1

    replicas = Replicas(STRICT, lambda: end, changed=changed)
    replicas.connected("a", 1, 0.0)
    assert heard == 0
    replicas.reported("a", 100, 100, 0.0)
    replicas.reported("a", 100, 100, 0.1)
    replicas.judge(0.2)
    assert heard == 1
    replicas.gone("a", 0.3)
    replicas.gone("a", 0.3)
    assert heard == 2


def test_a_broker_whose_log_was_cut_begins_anew() -> None:
    replicas = Replicas(STRICT, lambda: 100)
    replicas.connected("a", 1, 0.0)
    replicas.reported("a", 90, 80, 0.0)
    state = replicas.states["a"]
    assert (state.replica, state.received, state.durable, state.in_sync) == (1, 90, 80, True)
    replicas.forget()
    assert (replicas.in_sync, replicas.replicated, replicas.states) == (1, 0, {})


def shown(replicas: Replicas, now: float) -> tuple[bool, float, int]:
    """Whether the slave is in sync, for how long it is silent as administrators see it, and how many brokers
    count.
    """
    replicas.judge(now)
    state = replicas.states["a"]
    return state.in_sync, state.silent_s, replicas.in_sync


def owing_since_10() -> Replicas:
    """One slave that reported at 9.0 that it has the whole log; at 10.0 the log grew."""
    ends = [0]
    replicas = Replicas(QuorumRule(), lambda: ends[-1], lambda _place, _now: 10.0)
    replicas.connected("a", 1, 0.0)
    replicas.reported("a", 0, 0, 9.0)
    ends.append(100)
    return replicas


def test_the_first_look_knows_since_when_a_silent_slave_owes_bytes() -> None:
    replicas = owing_since_10()
    assert shown(replicas, 10.9) == (True, 0.0, 2)
    replicas.reported("a", 0, 0, 11.0)
    assert shown(replicas, 11.9) == (True, 0.0, 2)
    assert shown(replicas, 12.5) == (False, 1.5, 1)
    replicas.reported("a", 100, 100, 12.6)
    assert shown(replicas, 12.6) == (True, 0.0, 2)


def test_the_first_look_of_all_knows_it() -> None:
    assert shown(owing_since_10(), 12.0) == (False, 3.0, 1)


def test_a_slave_that_has_everything_is_silent_when_its_report_is_overdue() -> None:
    """It counts for senders until the log grows; then it has a second."""
    replicas = Replicas(QuorumRule(report_s=5.0), lambda: 0)
    replicas.connected("a", 1, 0.0)
    replicas.reported("a", 0, 0, 0.0)
    assert shown(replicas, 7.2) == (True, 0.0, 2)
    assert shown(replicas, 7.5) == (False, 7.5, 2)
    replicas.note_alive("a", 8.0)
    assert shown(replicas, 15.0) == (True, 0.0, 2)
    assert shown(replicas, 16.0) == (False, 8.0, 2)
    replicas.note_alive("nobody", 16.0)
    replicas.reported("a", 0, 0, 16.5)
    assert shown(replicas, 16.5) == (True, 0.0, 2)
