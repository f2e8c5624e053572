"""The deciders about roles, by scripts: a time and its events, and after each step the expected trace."""

from __future__ import annotations

import pytest

from orbitmq.broker.role import Role
from orbitmq.replication.link.errors import LinkError
from orbitmq.replication.members.fence import Fence, Timing, to_acquire, to_renew
from orbitmq.replication.members.lease import (
    MAX_QUESTIONS,
    Lease,
    answer,
    question,
    read_answer,
    read_question,
)
from orbitmq.replication.members.view import MemberViews, Move, ProbeResult, Situation, decide

TERMS = Timing(timeout_s=4.0, look_s=1.0)
ROLE_AFTER = {
    Move.ACT: Role.ACTING_MASTER,
    Move.STEP_DOWN: Role.SLAVE,
    Move.FENCE: Role.FENCED,
    Move.LEAD: Role.MASTER,
    Move.PRE_ONLINE: Role.PRE_ONLINE,
}


class Script:
    """A broker whose name servers, link and master's port follow lines of text.

    A line is a time in seconds, words for the events, and after ``->`` the expected trace: the move, the role
    after it, and the master that is followed. Words: ``n1:01`` name server n1 shows ids 0 and 1 (``n1:-``
    none; ``n1:1/3.5`` only id 1, with 3.5 s since the last heartbeat of another), ``n1:down`` its port
    refuses, ``hb1`` it answers this broker's heartbeat, ``gone1`` it answers that this broker is not
    registered, ``link`` and ``nolink``, ``refuses`` and ``silent`` for the master's port, ``dead1`` for a
    refusing port of broker 1, ``released`` (the master says that it does not lead any more), ``idle`` (the
    broker that did not agree has stopped acting), ``lease1`` (broker 1 leaves the lead to this broker),
    ``promise`` (this broker leaves it to its master), ``yield`` (this broker steps down for a returning
    master), ``moved`` (the master names h9:1 as its address), ``online`` (pre-online has ended with the
    consent of all), ``fenced`` (without it).
    """

    def __init__(self, broker_id: int, role: Role, servers: int = 1, others: int = 1) -> None:
        self.id = broker_id
        self.role = role
        names = [f"n{number}" for number in range(1, servers + 1)]
        self.fence = Fence(TERMS, names, others)
        self.seen = MemberViews(broker_id, f"h{broker_id}:1", TERMS, names)
        self.link = False
        self.released = False
        self.port = ProbeResult.UNKNOWN
        self.yielded = 0.0
        self.asked = False
        self.idle = False

    def play(self, text: str) -> None:
        for line in text.strip().splitlines():
            step, _, expected = line.partition("->")
            time, *words = step.split()
            now = float(time)
            for word in words:
                self.happens(word, now)
            situation = Situation(
                self.id,
                self.role,
                self.fence.is_open(now),
                self.fence.settled(now),
                self.link,
                self.released,
                self.port,
                self.asked,
                self.yielded,
                self.idle,
                self.fence.is_leased(now),
            )
            decision = decide(situation, self.seen, TERMS, now)
            self.role = ROLE_AFTER.get(decision.move, self.role)
            self.asked = self.asked and self.role is Role.FENCED
            if decision.move is Move.FENCE:
                self.fence.withdraw()
            trace = f"{decision.move.value}, {self.role.value}, {decision.master or '-'}"
            assert trace == expected.strip(), f"at {time} s: {trace}"

    def happens(self, word: str, now: float) -> None:
        if word.startswith("hb"):
            self.fence.note_answer(f"n{word[2]}", now, registered=True)
        elif word.startswith("gone"):
            self.fence.note_answer(f"n{word[4]}", now, registered=False)
        elif word.startswith("n") and ":" in word:
            server, _, ids = word.partition(":")
            if ids == "down":
                self.seen.refused(server, now)
            else:
                ids, _, silent = ids.partition("/")
                members = {int(i): f"h{i}:1" for i in ids.strip("-")}
                self.seen.shown(server, members, now, float(silent) if silent else None)
        elif word.startswith("dead"):
            self.seen.is_gone(f"h{word[4:]}:1")
        elif word.startswith("lease"):
            self.fence.lease.given(int(word[5:]), self.fence.lease.new_request(now))
        elif word == "promise":
            self.seen.again(now)
        elif word == "yield":
            self.yielded = now + 15
            self.seen.again(now)
        elif word == "moved":
            self.seen.announced("h9:1")
        elif word in ("online", "fenced"):
            self.role = Role.MASTER if word == "online" else Role.FENCED
            self.asked = word == "fenced"
            if word == "online":
                self.fence.grant(now)
        else:
            self.idle = self.idle or word == "idle"
            self.released = self.released or word == "released"
            self.link = {"link": True, "nolink": False}.get(word, self.link)
            self.port = {"refuses": ProbeResult.REFUSES, "silent": ProbeResult.SILENT}.get(word, self.port)


ONLINE_SLAVE = """
0.0 n1:01 hb1 link -> stay, slave, h0:1
1.0 n1:01 hb1 -> stay, slave, h0:1
2.0 n1:01 hb1 -> stay, slave, h0:1
3.0 n1:01 hb1 -> stay, slave, h0:1
"""


def test_a_slave_whose_masters_port_refuses_acts_at_once() -> None:
    slave = Script(1, Role.SLAVE)
    slave.play(ONLINE_SLAVE)
    slave.play("""
        3.2 n1:1 nolink -> probe, slave, h0:1
        3.2 refuses -> act, acting master, -
        4.0 n1:1 hb1 -> stay, acting master, -
        5.0 n1:01 hb1 -> step down, slave, h0:1
    """)


@pytest.mark.behaviour("MB-13")
def test_a_slave_asks_over_a_link_that_lives_whatever_a_port_showed() -> None:
    slave = Script(1, Role.SLAVE)
    slave.play(ONLINE_SLAVE)
    slave.play("4.0 n1:1 hb1 refuses -> ask, slave, h0:1")


def test_a_master_that_returns_at_another_address_is_followed_there_before_name_servers_show_it() -> None:
    slave = Script(1, Role.SLAVE)
    slave.play(ONLINE_SLAVE)
    slave.play("""
        3.2 n1:1 nolink -> probe, slave, h0:1
        3.2 refuses -> act, acting master, -
        4.0 n1:1 hb1 yield moved -> stay, acting master, -
    """)
    slave.role = Role.SLAVE
    slave.play("""
        4.1 n1:1 hb1 -> stay, slave, h9:1
        5.0 n1:1 hb1 -> stay, slave, h9:1
    """)


def test_a_slave_of_a_silent_master_waits_for_its_time() -> None:
    slave = Script(1, Role.SLAVE)
    slave.play(ONLINE_SLAVE)
    slave.play("""
        4.0 n1:1 hb1 nolink silent -> probe, slave, h0:1
        5.0 n1:1 hb1 -> probe, slave, h0:1
        6.0 n1:1 hb1 -> probe, slave, h0:1
        7.0 n1:1 hb1 -> probe, slave, h0:1
        8.0 n1:1 hb1 -> probe, slave, h0:1
        8.4 -> probe, slave, h0:1
        8.5 -> act, acting master, -
    """)


SECOND_SLAVE_OF_AN_ACTING_ONE = """
0.0 n1:012 hb1 -> stay, slave, h0:1
1.0 n1:12 hb1 nolink -> stay, slave, h0:1
2.0 n1:12 hb1 -> stay, slave, h0:1
3.0 n1:12 hb1 -> stay, slave, h0:1
3.5 n1:12 hb1 -> stay, slave, h0:1
"""


@pytest.mark.behaviour("MB-12")
@pytest.mark.parametrize("why", ["refuses", "released"])
def test_that_the_master_is_gone_says_nothing_of_a_slave_that_acted_since(why: str) -> None:
    slave = Script(2, Role.SLAVE)
    slave.play(SECOND_SLAVE_OF_AN_ACTING_ONE)
    slave.play(f"""
        4.0 n1:2 hb1 {why} -> probe, slave, h0:1
        5.0 n1:2 hb1 -> probe, slave, h0:1
        6.0 n1:2 hb1 -> probe, slave, h0:1
        7.0 n1:2 hb1 -> probe, slave, h0:1
        8.0 n1:2 hb1 -> probe, slave, h0:1
        8.4 n1:2 hb1 -> probe, slave, h0:1
        8.5 n1:2 hb1 -> act, acting master, -
    """)


@pytest.mark.behaviour("MB-12")
@pytest.mark.parametrize("why", ["refuses", "released"])
def test_a_slave_acts_at_once_after_an_acting_one_whose_port_refuses(why: str) -> None:
    slave = Script(2, Role.SLAVE)
    slave.play(SECOND_SLAVE_OF_AN_ACTING_ONE)
    slave.play(f"""
        4.0 n1:2 hb1 {why} -> probe, slave, h0:1
        4.1 dead1 -> act, acting master, -
    """)


@pytest.mark.behaviour("MB-12")
def test_a_slave_that_has_been_gone_for_long_holds_nobody_up() -> None:
    slave = Script(2, Role.SLAVE)
    slave.play("0.0 n1:012 hb1 -> stay, slave, h0:1")
    for second in range(1, 7):
        slave.play(f"{second} n1:02 hb1 -> stay, slave, h0:1")
    slave.play("""
        7.0 n1:2 hb1 nolink -> probe, slave, h0:1
        7.1 refuses -> act, acting master, -
    """)


@pytest.mark.behaviour("MB-12")
def test_a_slave_that_has_been_gone_for_long_holds_nobody_up_when_another_one_was_lost_later() -> None:
    slave = Script(3, Role.SLAVE)
    slave.play("0.0 n1:0123 hb1 -> stay, slave, h0:1")
    for second in range(1, 7):
        slave.play(f"{second} n1:023 hb1 -> stay, slave, h0:1")
    slave.play("""
        7.0 n1:3 hb1 nolink -> probe, slave, h0:1
        7.1 refuses -> probe, slave, h0:1
        7.2 dead2 -> act, acting master, -
    """)


def test_the_wait_begins_when_the_name_server_heard_the_master_last() -> None:
    slave = Script(1, Role.SLAVE)
    slave.play(ONLINE_SLAVE)
    slave.play("""
        7.0 n1:1/3.75 hb1 nolink silent -> probe, slave, h0:1
        7.5 -> probe, slave, h0:1
        7.75 -> act, acting master, -
    """)


def test_a_master_that_was_heard_otherwise_is_waited_for_from_then_on() -> None:
    seen = MemberViews(1, "h1:1", TERMS, ["n1"])
    seen.again(4.0)
    seen.shown("n1", {1: "h1:1"}, 7.0, silent_s=60.0)
    assert seen.leaderless_since_s(7.0) == 4.0
    seen.shown("n1", {1: "h1:1"}, 8.0, silent_s=2.0)
    assert seen.leaderless_since_s(8.0) == 4.0, "what is proved stays proved"


def test_a_master_seen_between_begins_the_wait_anew() -> None:
    slave = Script(1, Role.SLAVE)
    slave.play(ONLINE_SLAVE)
    slave.play("""
        4.0 n1:1 hb1 nolink silent -> probe, slave, h0:1
        6.0 n1:1 hb1 -> probe, slave, h0:1
        7.0 n1:01 hb1 -> stay, slave, h0:1
        8.0 n1:1 hb1 -> probe, slave, h0:1
        10.0 n1:1 hb1 -> probe, slave, h0:1
        12.0 n1:1 hb1 -> probe, slave, h0:1
        12.5 -> act, acting master, -
    """)


def test_looks_that_lie_far_apart_prove_nothing() -> None:
    slave = Script(1, Role.SLAVE)
    slave.play(ONLINE_SLAVE)
    slave.play("""
        4.0 n1:1 hb1 nolink silent -> probe, slave, h0:1
        8.6 n1:1 hb1 -> probe, slave, h0:1
        10.6 n1:1 hb1 -> probe, slave, h0:1
        12.6 n1:1 hb1 -> probe, slave, h0:1
        13.1 -> act, acting master, -
    """)


def test_a_slave_whose_link_lives_asks_instead() -> None:
    slave = Script(1, Role.SLAVE)
    slave.play(ONLINE_SLAVE)
    slave.play("""
        4.0 n1:1 hb1 -> ask, slave, h0:1
        6.0 n1:1 hb1 -> ask, slave, h0:1
        8.0 n1:1 hb1 -> ask, slave, h0:1
        9.0 n1:1 hb1 -> ask, slave, h0:1
        9.5 n1:01 -> stay, slave, h0:1
    """)


def test_a_slave_that_is_released_acts_and_copies_on() -> None:
    slave = Script(1, Role.SLAVE)
    slave.play(ONLINE_SLAVE)
    slave.play("""
        4.0 n1:1 hb1 -> ask, slave, h0:1
        4.1 released -> act, acting master, h0:1
        5.0 n1:1 hb1 -> stay, acting master, h0:1
        6.0 n1:1 hb1 nolink -> stay, acting master, -
        7.0 n1:01 -> step down, slave, h0:1
    """)


def test_a_release_while_the_master_is_shown_waits_for_its_departure() -> None:
    slave = Script(1, Role.SLAVE)
    slave.play(ONLINE_SLAVE)
    slave.play("""
        3.1 released -> stay, slave, h0:1
        3.2 n1:1 nolink -> act, acting master, -
    """)


def test_a_slave_that_the_name_servers_do_not_answer_does_not_act() -> None:
    slave = Script(1, Role.SLAVE)
    slave.play(ONLINE_SLAVE)
    slave.play("""
        4.0 n1:down nolink silent -> stay, slave, h0:1
        5.0 n1:down -> stay, slave, h0:1
        7.0 n1:down -> stay, slave, h0:1
        9.0 n1:down refuses -> stay, slave, h0:1
        10.0 n1:1 hb1 -> act, acting master, -
    """)


def test_a_slave_that_is_not_the_lowest_does_not_act() -> None:
    slave = Script(2, Role.SLAVE)
    slave.play("""
        0.0 n1:012 hb1 -> stay, slave, h0:1
        3.0 n1:12 hb1 refuses -> stay, slave, h0:1
        5.0 n1:12 hb1 -> stay, slave, h0:1
        9.0 n1:12 hb1 -> stay, slave, h0:1
        10.0 n1:2 hb1 -> probe, slave, h0:1
        10.1 dead1 -> act, acting master, -
        12.0 n1:12 hb1 -> step down, slave, -
    """)


def test_an_acting_master_makes_way_and_takes_up_again_after_15_s() -> None:
    slave = Script(1, Role.SLAVE)
    slave.play(ONLINE_SLAVE)
    slave.play("""
        3.5 n1:1 hb1 nolink refuses -> act, acting master, -
    """)
    slave.role = Role.SLAVE
    slave.play("""
        4.0 n1:1 hb1 yield -> stay, slave, h0:1
        6.0 n1:1 hb1 -> stay, slave, h0:1
        8.0 n1:1 hb1 -> stay, slave, h0:1
        10.0 n1:1 hb1 -> stay, slave, h0:1
        12.0 n1:1 hb1 -> stay, slave, h0:1
        14.0 n1:1 hb1 -> stay, slave, h0:1
        16.0 n1:1 hb1 -> stay, slave, h0:1
        18.0 n1:1 hb1 -> stay, slave, h0:1
        19.0 n1:1 hb1 -> act, acting master, -
    """)


def test_with_two_name_servers_one_that_is_cut_off_makes_no_acting_master() -> None:
    slave = Script(1, Role.SLAVE, servers=2)
    slave.play("""
        0.0 n1:01 n2:01 hb1 hb2 -> stay, slave, h0:1
        2.0 n1:01 n2:01 hb1 hb2 -> stay, slave, h0:1
        3.0 n1:01 n2:01 hb1 hb2 -> stay, slave, h0:1
        4.0 n2:1 hb2 silent -> stay, slave, h0:1
        6.0 n2:1 hb2 -> probe, slave, h0:1
        8.0 n2:1 hb2 -> probe, slave, h0:1
        12.0 n2:1 hb2 -> probe, slave, h0:1
        13.0 n1:down n2:1 hb2 -> probe, slave, h0:1
        15.0 n1:down n2:1 hb2 -> probe, slave, h0:1
        17.0 n1:down n2:1 hb2 -> probe, slave, h0:1
        17.6 -> act, acting master, -
    """)


def test_a_master_is_fenced_before_its_time_is_over_and_asks_before_it_leads_again() -> None:
    master = Script(0, Role.PRE_ONLINE)
    master.play("""
        0.0 n1:1 online hb1 -> stay, master, -
        2.0 n1:01 hb1 -> stay, master, -
        2.5 n1:01 hb1 -> stay, master, -
        5.9 -> stay, master, -
        6.0 -> fence, fenced master, -
        7.0 -> stay, fenced master, -
        9.0 n1:1 gone1 -> pre-online, pre-online, -
        9.5 n1:1 -> stay, pre-online, -
        9.6 n1:01 online hb1 -> stay, master, -
    """)


def test_a_master_that_could_not_ask_waits_until_nobody_else_can_lead() -> None:
    master = Script(0, Role.PRE_ONLINE)
    master.play("""
        0.0 n1:1 fenced hb1 -> stay, fenced master, -
        1.0 n1:01 hb1 -> stay, fenced master, -
        3.0 n1:01 hb1 -> stay, fenced master, -
        4.0 n1:01 hb1 -> stay, fenced master, -
        4.5 n1:01 hb1 -> lead, master, -
    """)


def test_a_master_leads_as_soon_as_who_did_not_agree_is_idle() -> None:
    master = Script(0, Role.PRE_ONLINE)
    master.play("""
        0.0 n1:1 fenced hb1 -> stay, fenced master, -
        1.0 n1:01 hb1 idle -> stay, fenced master, -
        2.0 n1:01 hb1 -> stay, fenced master, -
        3.0 n1:01 hb1 -> lead, master, -
    """)


@pytest.mark.parametrize("sight", ["n1:down", ""])
def test_without_name_servers_a_master_leads_as_long_as_all_others_leave_it_to_it(sight: str) -> None:
    master = Script(0, Role.PRE_ONLINE, others=2)
    master.play(f"""
        0.0 n1:12 online hb1 -> stay, master, -
        3.0 n1:012 hb1 -> stay, master, -
        5.0 {sight} lease1 -> stay, master, -
        6.0 {sight} lease1 lease2 -> stay, master, -
        9.4 {sight} lease1 -> stay, master, -
        9.5 {sight} lease1 -> fence, fenced master, -
        10.0 {sight} lease1 -> stay, fenced master, -
        11.0 {sight} lease2 -> lead, master, -
        13.4 {sight} -> stay, master, -
        13.5 {sight} -> fence, fenced master, -
        14.0 n1:012 hb1 -> pre-online, pre-online, -
    """)


def test_a_slave_that_has_promised_does_not_act_before_its_time() -> None:
    slave = Script(1, Role.SLAVE)
    slave.play(ONLINE_SLAVE)
    slave.play("""
        4.0 n1:1 hb1 link -> ask, slave, h0:1
        6.0 n1:1 hb1 promise -> ask, slave, h0:1
        8.0 n1:1 hb1 -> ask, slave, h0:1
        9.0 n1:1 hb1 nolink silent -> probe, slave, h0:1
        10.4 n1:1 hb1 -> probe, slave, h0:1
        10.5 n1:1 hb1 -> act, acting master, -
    """)


def test_a_promise_does_not_hold_beyond_the_life_of_the_master() -> None:
    slave = Script(1, Role.SLAVE)
    slave.play(ONLINE_SLAVE)
    slave.play("""
        4.0 n1:1 hb1 promise nolink refuses -> act, acting master, -
    """)


def test_a_fenced_master_that_is_alone_leads_again_without_pre_online() -> None:
    master = Script(0, Role.MASTER)
    master.play("""
        0.0 n1:down -> fence, fenced master, -
        2.0 n1:down -> stay, fenced master, -
        4.0 n1:down -> stay, fenced master, -
        5.0 n1:down -> stay, fenced master, -
        6.0 n1:0 hb1 -> stay, fenced master, -
        8.0 n1:0 hb1 -> stay, fenced master, -
        8.5 n1:0 hb1 -> lead, master, -
    """)


def test_a_brokers_own_id_at_another_address_is_a_rival() -> None:
    seen = MemberViews(0, "h0:1", TERMS, ["n1"])
    seen.shown("n1", {0: "h0:1"}, 0.0)
    assert seen.rival(0.0) is None
    seen.shown("n1", {0: "other:1"}, 1.0)
    assert seen.rival(1.0) == "other:1"


# ---- the fence


@pytest.mark.parametrize("servers", range(1, 8))
def test_who_renews_and_who_acquires_meet_at_a_name_server(servers: int) -> None:
    assert to_renew(servers) + to_acquire(servers) == servers + 1
    assert to_renew(servers) <= to_acquire(servers) or servers % 2


def test_the_right_counts_from_the_sending_of_the_heartbeat() -> None:
    fence = Fence(TERMS, ["n1"])
    assert fence.closes_s is None
    for sent in (0.0, 1.0, 2.0):
        fence.note_answer("n1", sent, registered=True)
    assert fence.closes_s is None, "a slave may not have seen this broker yet"
    fence.note_answer("n1", 3.0, registered=True)
    assert fence.closes_s == 6.5
    assert fence.is_open(6.4)
    assert not fence.is_open(6.5)
    fence.note_answer("n1", 2.9, registered=True)
    assert fence.closes_s == 6.5, "an older heartbeat renews nothing"


def test_an_answer_without_our_registration_renews_nothing() -> None:
    fence = Fence(TERMS, ["n1"])
    for sent in (0.0, 3.0):
        fence.note_answer("n1", sent, registered=True)
    fence.note_answer("n1", 4.0, registered=False)
    fence.note_answer("n1", 5.0, registered=True)
    fence.note_answer("n1", 7.4, registered=True)
    assert fence.closes_s == 6.5, "registered again, but not for the time of two looks"
    fence.note_answer("n1", 7.5, registered=True)
    assert fence.closes_s == 11.0


def test_nobody_else_leads_when_we_were_shown_without_a_gap() -> None:
    fence = Fence(TERMS, ["n1"])
    for sent in (0.0, 2.0, 4.0):
        fence.note_answer("n1", sent, registered=True)
    assert not fence.settled(4.4)
    assert fence.settled(4.5)
    assert not fence.settled(6.6), "the last answer is too old"
    fence.note_answer("n1", 6.7, registered=True)
    assert not fence.settled(9.0), "it may have lost us meanwhile"
    for sent in (8.7, 10.7):
        fence.note_answer("n1", sent, registered=True)
    assert fence.settled(11.3)


def test_of_three_name_servers_two_have_to_answer() -> None:
    fence = Fence(TERMS, ["n1", "n2", "n3"])
    for server in ("n1", "n2", "n3"):
        fence.note_answer(server, 0.0, registered=True)
    fence.note_answer("n1", 9.0, registered=True)
    assert fence.closes_s is None
    fence.note_answer("n2", 5.0, registered=True)
    assert fence.closes_s == 8.5
    fence.servers(["n1"])
    assert fence.closes_s == 12.5


def test_consent_gives_the_right_and_giving_it_back_ends_it() -> None:
    fence = Fence(TERMS, ["n1"])
    fence.grant(1.0)
    assert fence.closes_s == 4.5
    fence.withdraw()
    assert not fence.is_open(1.0)


def test_a_promise_counts_from_its_question_and_only_of_all_others() -> None:
    lease = Lease(2, 3.5)
    first, second = lease.new_request(1.0), lease.new_request(2.0)
    lease.given(1, second)
    lease.given(1, first)
    assert lease.since_s is None
    lease.given(2, first)
    assert lease.since_s == 1.0
    lease.given(2, second)
    lease.given(2, 99)
    assert lease.since_s == 2.0
    lease.withdraw()
    lease.given(1, second)
    lease.given(2, second)
    assert lease.since_s is None, "what was under way gives nothing either"
    number = lease.new_request(3.0)
    for other in range(4, 4 + MAX_QUESTIONS):
        lease.new_request(float(other))
    lease.given(1, number)
    lease.given(2, number)
    assert lease.since_s is None, "so many later ones were not answered"


def test_a_broker_without_others_gets_no_lease() -> None:
    lease = Lease(0, 3.5)
    lease.given(1, lease.new_request(1.0))
    assert lease.since_s is None


def test_questions_and_promises_of_another_length_are_refused() -> None:
    assert read_question(question(7, 3)) == (7, 3)
    assert read_answer(answer(7)) == 7
    with pytest.raises(LinkError, match="has 3 bytes"):
        read_question(b"abc")
    with pytest.raises(LinkError, match="has 3 bytes"):
        read_answer(b"abc")


def test_a_short_timeout_has_a_small_guard() -> None:
    assert Timing(1.0, 0.2).lease_s == 0.875
    assert Timing(10.0, 1.0).lease_s == 9.5
    assert Timing(10.0, 1.0).patience_s == 10.5
