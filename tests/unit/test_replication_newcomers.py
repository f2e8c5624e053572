"""Slaves that connect by themselves: those whose consent a master needs before it serves, and the others."""

from __future__ import annotations

from orbitmq.replication.members.newcomers import COPY_AGAIN_S, Newcomers


def test_a_slave_of_before_counts_only_while_its_master_prepares() -> None:
    newcomers = Newcomers()
    assert not newcomers.greeted(1, "s1", counts=False, led_since=False)
    assert newcomers.greeted(1, "s1", counts=True, led_since=False)
    assert newcomers.members == {1: "s1"}
    assert newcomers.lacks(100, 0.0) is None
    assert newcomers.members == {}, "it has nothing that its master lacks"


def test_a_slave_that_led_since_or_has_a_log_sends_its_master_back_once() -> None:
    newcomers = Newcomers()
    assert newcomers.greeted(1, "s1", counts=False, led_since=True)
    assert newcomers.greeted(2, "s2", counts=False, led_since=False), "one of a higher term is among them"
    assert newcomers.lacks(100, 0.0) == "the tables of a slave that led since"
    assert newcomers.lacks(0, 1.0) == "the log, a slave has one"
    assert newcomers.lacks(100, 2.0) is None


def test_a_longer_log_counts_while_ours_ends_where_it_ended_and_not_too_often() -> None:
    newcomers = Newcomers()
    assert newcomers.longer(1, "s1", 100, 0.0)
    assert newcomers.lacks(120, 1.0) is None, "messages were stored behind the common end meanwhile"
    assert newcomers.longer(1, "s1", 120, 2.0)
    assert newcomers.lacks(120, 3.0) == "the end of the log, a slave has it"
    assert not newcomers.longer(1, "s1", 120, 3.0 + COPY_AGAIN_S - 0.1)
    assert newcomers.longer(1, "s1", 120, 3.0 + COPY_AGAIN_S)
