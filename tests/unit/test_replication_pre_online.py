"""The way of a broker into service, as scripts: its members, the end of each step, and the step that
follows.
"""

from __future__ import annotations

import pytest

from orbitmq.replication.members.pre_online import MAX_TRIES, Outcome, PreOnlinePlan, Step

SLAVE, OTHER = "10.0.0.3:10911", "10.0.0.4:10911"
DONE, FAILED = Outcome(True), Outcome(False)
AGREES = Outcome(True, consent=True)
LEASE_S = 3.5
# The member agrees each time, and its link does not come up.
NO_LINK = (*[(Step.LINK, FAILED), (Step.ANNOUNCE, AGREES)] * (MAX_TRIES - 1), (Step.LINK, FAILED))


class Way:
    """The way of one broker, whose own log ends at ``log_end``."""

    def __init__(self, broker_id: int = 0, members: dict[int, str] | None = None, log_end: int = 100) -> None:
        self.plan = PreOnlinePlan(broker_id)
        self.members = {1: SLAVE} if members is None else members
        self.log_end = log_end
        self.now_s = 0.0

    def goes(self, *steps: tuple[Step, Outcome]) -> None:
        """Check that these are the next steps, and end them with these outcomes."""
        for step, outcome in steps:
            task = self.plan.next(self.members)
            assert task.step is step
            self.plan.ended(task, outcome, self.log_end, self.now_s)

    def serves(self) -> bool:
        return self.plan.next(self.members).step is Step.SERVE


def test_nobody_is_known_yet_and_nobody_is_there() -> None:
    assert PreOnlinePlan(0).next(None).step is Step.LOOK
    assert Way(members={}).serves()


@pytest.mark.behaviour("PO-06")
def test_a_master_announces_itself_links_and_takes_the_tables() -> None:
    way = Way()
    way.goes(
        (Step.COMPARE, Outcome(True, log_end=100)),
        (Step.ANNOUNCE, AGREES),
        (Step.LINK, DONE),
        (Step.TAKE, DONE),
    )
    assert way.serves()
    assert (way.plan.silent, way.plan.left_out) == ({}, [])


def test_what_only_the_member_has_is_copied_first_until_nothing_is_left() -> None:
    way = Way(log_end=50)
    way.goes((Step.COMPARE, Outcome(True, log_end=100)))
    way.log_end = 100
    way.goes((Step.COPY_BACK, DONE), (Step.COMPARE, Outcome(True, log_end=120)))
    way.log_end = 120
    way.goes((Step.COPY_BACK, DONE), (Step.COMPARE, Outcome(True, log_end=120)), (Step.ANNOUNCE, AGREES))


@pytest.mark.behaviour("PO-29")
def test_a_member_whose_log_ends_within_a_record_is_copied_once() -> None:
    way = Way(log_end=50)
    way.goes((Step.COMPARE, Outcome(True, log_end=100)))
    way.log_end = 90
    way.goes((Step.COPY_BACK, Outcome(True, log_end=100)), (Step.COMPARE, Outcome(True, log_end=100)))
    way.goes((Step.ANNOUNCE, DONE))


def test_a_tail_that_does_not_come_is_left_out_after_three_tries() -> None:
    way = Way(log_end=50)
    way.goes((Step.COMPARE, Outcome(True, log_end=100)), *[(Step.COPY_BACK, FAILED)] * MAX_TRIES)
    way.goes((Step.ANNOUNCE, AGREES))
    assert way.plan.left_out == [f"copy the tail back: broker id 1 at {SLAVE}"]


@pytest.mark.parametrize("step", [Step.COMPARE, Step.ANNOUNCE])
def test_who_does_not_answer_is_left_out_and_has_not_agreed(step: Step) -> None:
    way = Way()
    if step is Step.ANNOUNCE:
        way.goes((Step.COMPARE, Outcome(True, log_end=100)))
    way.goes(*[(step, FAILED)] * MAX_TRIES)
    assert way.serves()
    assert way.plan.silent == {1: SLAVE}


@pytest.mark.behaviour("PO-06")
def test_members_are_visited_in_the_order_of_their_ids() -> None:
    way = Way(members={2: OTHER, 1: SLAVE})
    way.goes((Step.COMPARE, DONE), (Step.ANNOUNCE, AGREES), (Step.LINK, DONE))
    assert way.plan.next(way.members).address == SLAVE
    way.goes((Step.TAKE, DONE))
    assert way.plan.next(way.members).address == OTHER


def test_a_slave_follows_its_master_and_serves_also_without() -> None:
    way = Way(broker_id=1, members={0: OTHER})
    way.goes(*[(Step.FOLLOW, FAILED)] * MAX_TRIES)
    assert way.serves()
    assert way.plan.left_out == [f"the link to the master at {OTHER}"]
    assert Way(broker_id=1, members={2: SLAVE}).serves()


@pytest.mark.behaviour("PO-20")
def test_a_consent_that_got_old_on_the_way_is_asked_for_again() -> None:
    """A slave that restarted in between may act by then, and its master must not lead beside it."""
    way = Way()
    way.goes((Step.COMPARE, Outcome(True, log_end=100)), (Step.ANNOUNCE, AGREES))
    way.goes(*NO_LINK)
    way.now_s = 13.0
    way.goes(*[(Step.TAKE, FAILED)] * MAX_TRIES)
    assert way.serves()
    assert way.plan.ask_again(way.now_s - LEASE_S)
    way.goes((Step.ANNOUNCE, AGREES))
    assert way.serves(), "the link is not waited for once more"
    assert not way.plan.ask_again(way.now_s - LEASE_S)
    assert way.plan.silent == {}


@pytest.mark.behaviour("PO-35")
def test_a_member_whose_link_does_not_come_is_told_again_where_its_master_is() -> None:
    """Seed 6112: the member restarted after the announcement, so no link came up and its tables were not
    taken.
    """
    way = Way()
    way.goes((Step.COMPARE, Outcome(True, log_end=100)), (Step.ANNOUNCE, AGREES), (Step.LINK, FAILED))
    way.goes((Step.ANNOUNCE, AGREES), (Step.LINK, DONE))
    # The link that came up is lost again.
    way.goes((Step.TAKE, FAILED), (Step.ANNOUNCE, AGREES), (Step.LINK, DONE), (Step.TAKE, DONE))
    assert way.serves()
    assert way.plan.left_out == []


def test_a_link_that_never_comes_is_given_up_and_the_tables_are_asked_for() -> None:
    way = Way()
    way.goes((Step.COMPARE, Outcome(True, log_end=100)), (Step.ANNOUNCE, AGREES), *NO_LINK)
    way.goes(*[(Step.TAKE, FAILED)] * MAX_TRIES)
    assert way.serves()
    assert [words.partition(":")[0] for words in way.plan.left_out] == [
        "wait for its link",
        "take its tables",
    ]


@pytest.mark.behaviour("PO-20")
def test_who_has_to_be_asked_again_and_again_has_not_agreed() -> None:
    way = Way()
    way.goes((Step.COMPARE, Outcome(True, log_end=100)))
    for _ in range(MAX_TRIES + 1):
        way.goes((Step.ANNOUNCE, AGREES), (Step.LINK, DONE), (Step.TAKE, DONE))
        way.now_s += 10
        assert way.plan.ask_again(way.now_s - LEASE_S)
    assert way.serves()
    assert not way.plan.ask_again(way.now_s - LEASE_S)
    assert way.plan.silent == {1: SLAVE}
