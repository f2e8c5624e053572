"""The actions of a slave on its master's word: that the master stopped, is back, or asks for the lead."""

from __future__ import annotations

from orbitmq.replication.members.fence import Timing
from orbitmq.replication.members.master_word import YIELD_S, MasterWord

TERMS = Timing(timeout_s=4.0, look_s=1.0)


def test_a_master_that_stopped_frees_its_slave_for_the_time_of_a_lost_right() -> None:
    word = MasterWord(TERMS)
    assert not word.is_released(0.0)
    word.stopped(10.0)
    assert word.is_released(10.0 + TERMS.patience_s - 0.1)
    assert not word.is_released(10.0 + TERMS.patience_s)


def test_a_release_behind_the_word_of_the_return_is_stale() -> None:
    word = MasterWord(TERMS)
    word.stopped(0.0)
    word.is_back(1.0)
    assert not word.is_released(1.0)
    word.stopped(1.0 + YIELD_S - 0.1)
    assert not word.is_released(1.0 + YIELD_S - 0.1)
    word.is_shown()
    word.stopped(2.0)
    assert word.is_released(2.0)


def test_a_slave_leaves_the_lead_while_no_name_server_answers_it_and_a_while_longer() -> None:
    word = MasterWord(TERMS)
    assert not word.leaves_lead(0.0, stale=False)
    assert word.leaves_lead(1.0, stale=True)
    assert word.leaves_lead(1.0 + TERMS.patience_s, stale=False)
    assert not word.leaves_lead(1.1 + TERMS.patience_s, stale=False)
    word.stopped(20.0)
    assert not word.leaves_lead(20.0, stale=True), "it may act at once"
