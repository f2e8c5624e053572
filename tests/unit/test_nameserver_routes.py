"""The route table against the numbered behaviours, and against a simple model in random histories."""

from __future__ import annotations

from dataclasses import dataclass, replace

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orbitmq.nameserver.brokers import BrokerReport, Registered
from orbitmq.nameserver.routes import RouteTable
from orbitmq.nameserver.topics import GroupQueues
from orbitmq.wire.bodies.route import TopicRouteData
from orbitmq.wire.bodies.topic import DataVersion

RW = GroupQueues(read_queues=8, write_queues=8, perm=6)
RO = GroupQueues(read_queues=8, write_queues=8, perm=4)
TOPICS = {"TopicA": RW, "TopicB": RW}


def version(counter: int, state: int = 0) -> DataVersion:
    return DataVersion(counter=counter, state_version=state, timestamp=1)


def broker(broker_id: int = 0, **changes: object) -> BrokerReport:
    base = BrokerReport(
        cluster="c",
        group="g",
        broker_id=broker_id,
        address=f"h{broker_id}:1",
        ha_address=f"h{broker_id}:2",
        acting_master=False,
        version=version(1),
        topics=TOPICS,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def route(table: RouteTable, topic: str = "TopicA", *, acting_master: bool = False) -> TopicRouteData:
    found = table.route(topic, acting_master=acting_master)
    assert found is not None
    return found


def addresses(table: RouteTable, topic: str = "TopicA", *, acting_master: bool = False) -> dict[int, str]:
    return dict(route(table, topic, acting_master=acting_master).broker_datas[0].broker_addrs)


def perm(table: RouteTable, topic: str = "TopicA") -> int:
    return int(route(table, topic).queue_datas[0].perm)


def test_a_registered_broker_is_in_the_route_of_its_topics() -> None:
    table = RouteTable()
    assert table.register(broker(), 0) == Registered()
    found = route(table)
    assert [(q.broker_name, q.read_queue_nums, q.write_queue_nums, q.perm) for q in found.queue_datas] == [
        ("g", 8, 8, 6)
    ]
    assert [(b.cluster, b.broker_name, dict(b.broker_addrs)) for b in found.broker_datas] == [
        ("c", "g", {0: "h0:1"})
    ]
    assert table.route("Other") is None


@pytest.mark.behaviour("NR-02")
def test_acting_master_is_what_the_last_registrant_says() -> None:
    table = RouteTable()
    table.register(broker(0, acting_master=True), 0)
    table.register(broker(1, acting_master=None), 0)
    assert route(table).broker_datas[0].enable_acting_master is False
    table.register(broker(0, acting_master=True), 0)
    assert route(table).broker_datas[0].enable_acting_master is True


@pytest.mark.behaviour("NR-03")
def test_topics_come_from_the_master_or_the_lowest_slave() -> None:
    table = RouteTable()
    table.register(broker(2), 0)
    assert "TopicA" in table.topics
    table.register(broker(3, topics={**TOPICS, "OnlyOnThree": RW}), 0)
    assert "OnlyOnThree" not in table.topics
    old = RouteTable()
    old.register(broker(1, acting_master=None), 0)
    assert "TopicA" not in old.topics, "a 4.x slave's topics are not taken"


@pytest.mark.behaviour("NR-04")
def test_topics_of_the_lowest_slave_are_read_only_in_acting_mode_only() -> None:
    table = RouteTable()
    table.register(broker(1, acting_master=True), 0)
    assert perm(table) == 4
    table = RouteTable()
    table.register(broker(1, acting_master=False), 0)
    assert perm(table) == 6


@pytest.mark.behaviour("NR-05")
def test_unchanged_version_changes_no_known_topic() -> None:
    table = RouteTable()
    table.register(broker(), 0)
    table.topics.wipe_write("g")
    table.register(broker(topics={**TOPICS, "New": RW}), 1)
    assert perm(table) == 4, "same version: the known topic stays as it is"
    assert "New" in table.topics, "a topic that the group lacks is taken all the same"
    table.register(broker(version=version(2)), 2)
    assert perm(table) == 6


@pytest.mark.behaviour("NR-06")
def test_master_that_comes_back_restores_the_write_bit() -> None:
    table = RouteTable()
    table.register(broker(0, acting_master=True), 0)
    table.register(broker(1, acting_master=True), 0)
    table.unregister("c", "g", "h0:1")
    assert perm(table) == 4
    table.register(broker(0, acting_master=True), 1)
    assert perm(table) == 6


@pytest.mark.behaviour("NR-07")
def test_without_master_the_write_bit_goes_in_acting_mode_only() -> None:
    for acting, expected in ((True, 4), (False, 6)):
        table = RouteTable()
        table.register(broker(0, acting_master=acting), 0)
        table.register(broker(1, acting_master=acting), 0)
        table.unregister("c", "g", "h0:1")
        assert perm(table) == expected
        table.unregister("c", "g", "h1:1")
        assert table.route("TopicA") is None
        assert table.topics.names() == []


@pytest.mark.behaviour("NR-07")
def test_a_master_that_becomes_a_slave_takes_the_write_bit_along() -> None:
    table = RouteTable()
    table.register(broker(0, acting_master=True), 0)
    table.register(broker(1, acting_master=True), 0)
    table.register(broker(2, acting_master=True, address="h0:1"), 1)
    assert table.member_addresses("g") == {1: "h1:1", 2: "h0:1"}
    assert perm(table) == 4
    table.register(broker(0, acting_master=True, address="h1:1"), 2)
    assert table.member_addresses("g") == {0: "h1:1", 2: "h0:1"}
    assert perm(table) == 6


@pytest.mark.behaviour("NR-08")
def test_lowest_slave_is_shown_as_master_under_five_conditions() -> None:
    table = RouteTable()
    member_topic = "rmq_sys_SYNC_BROKER_MEMBER_g"
    topics = {**TOPICS, member_topic: RW}
    for broker_id in (0, 1, 2):
        table.register(broker(broker_id, acting_master=True, topics=topics), 0)
    assert addresses(table, acting_master=True) == {0: "h0:1", 1: "h1:1", 2: "h2:1"}
    table.unregister("c", "g", "h0:1")
    assert addresses(table, acting_master=True) == {0: "h1:1", 2: "h2:1"}
    assert addresses(table) == {1: "h1:1", 2: "h2:1"}, "supportActingMaster is off"
    assert addresses(table, member_topic, acting_master=True) == {1: "h1:1", 2: "h2:1"}
    table.topics.grant_read_write("g")
    assert addresses(table, acting_master=True) == {1: "h1:1", 2: "h2:1"}, "still writable"
    table.topics.wipe_write("g")
    table.register(broker(1, acting_master=False, topics=topics), 1)
    assert addresses(table, acting_master=True) == {1: "h1:1", 2: "h2:1"}, "the group does not act"


@pytest.mark.behaviour("NR-09")
@pytest.mark.behaviour("NR-10")
def test_the_rewrite_leaves_the_table_alone() -> None:
    table = RouteTable()
    table.register(broker(1, acting_master=True), 0)
    assert addresses(table, acting_master=True) == {0: "h1:1"}
    assert table.member_addresses("g") == {1: "h1:1"}
    assert dict(table.cluster_info().broker_addr_table["g"].broker_addrs) == {1: "h1:1"}


@pytest.mark.behaviour("NR-12")
def test_one_address_one_broker_and_the_newer_state_wins() -> None:
    table = RouteTable()
    table.register(broker(1, address="x:1", version=version(1, state=5)), 0)
    table.register(broker(0, address="x:1", version=version(1, state=5)), 0)
    assert table.member_addresses("g") == {0: "x:1"}
    assert table.register(broker(0, address="y:1", version=version(9, state=4)), 0) == Registered()
    assert table.member_addresses("g") == {0: "x:1"}
    table.register(broker(0, address="y:1", version=version(9, state=5)), 0)
    assert table.member_addresses("g") == {0: "y:1"}
    assert table.version_of("c", "x:1") is None


@pytest.mark.behaviour("NR-16")
def test_what_comes_late_from_an_earlier_connection_of_a_broker_does_not_count() -> None:
    """A broker that is restarted at once must not be out of the routes for up to 30 s."""
    table = RouteTable()
    old, new = object(), object()
    table.register(broker(connection=old, opened=1), 0)
    table.register(broker(connection=new, opened=2, version=version(2)), 0)
    assert table.unregister("c", "g", "h0:1", opened=1) is None
    assert table.register(broker(connection=old, opened=1, topics={"Old": RW}), 0) == Registered()
    assert table.connection_closed(old) == ([], [])
    assert table.member_addresses("g") == {0: "h0:1"}
    assert table.version_of("c", "h0:1") == version(2)
    assert "Old" not in table.topics
    table.unregister("c", "g", "h0:1", opened=3)
    assert table.member_addresses("g") == {}


def test_an_address_that_registers_under_another_name_leaves_the_old_one() -> None:
    table = RouteTable()
    table.register(broker(), 0)
    table.register(broker(group="renamed"), 0)
    assert table.member_addresses("g") == {}
    assert [q.broker_name for q in route(table).queue_datas] == ["renamed"]


@pytest.mark.behaviour("NR-13")
def test_a_single_topic_of_an_unknown_broker_is_refused() -> None:
    table = RouteTable()
    assert table.register(broker(topics={"TopicA": RW}), 0) is None
    assert table.cluster_info().cluster_addr_table == {}
    table.register(broker(), 0)
    assert table.register(broker(topics={"New": RW}, version=version(2)), 0) == Registered()
    assert table.topics.names() == ["New", "TopicA", "TopicB"]


@pytest.mark.behaviour("NR-14")
def test_a_slave_learns_its_master() -> None:
    table = RouteTable()
    assert table.register(broker(1), 0) == Registered()
    table.register(broker(0), 0)
    assert table.register(broker(1), 0) == Registered(master_address="h0:1", ha_address="h0:2")


@pytest.mark.behaviour("HB-04")
def test_a_heartbeat_keeps_a_known_broker_alive_and_makes_no_new_one() -> None:
    table = RouteTable()
    assert not table.touch("c", "h0:1", 0)
    table.register(broker(timeout_ms=100), 0)
    assert table.touch("c", "h0:1", 90)
    assert table.expire(190) == ([], [])
    assert table.cluster_info().cluster_addr_table == {"c": {"g"}}


@pytest.mark.behaviour("HB-06")
@pytest.mark.behaviour("HB-07")
@pytest.mark.parametrize(("timeout_ms", "limit"), [(None, 120_000), (10_000, 10_000)])
def test_expiry_is_strict_and_uses_the_brokers_timeout(timeout_ms: int | None, limit: int) -> None:
    table = RouteTable()
    table.register(broker(timeout_ms=timeout_ms), 1000)
    assert table.expire(1000 + limit)[0] == []
    gone, _ = table.expire(1001 + limit)
    assert [member.address for member in gone] == ["h0:1"]
    assert table.route("TopicA") is None


@pytest.mark.behaviour("HB-08")
def test_closing_a_connection_removes_who_registered_through_it_last() -> None:
    table = RouteTable()
    old, new = object(), object()
    table.register(broker(connection=old), 0)
    table.register(broker(connection=new), 0)
    assert table.connection_closed(old) == ([], [])
    gone, _ = table.connection_closed(new)
    assert [member.address for member in gone] == ["h0:1"]


@pytest.mark.behaviour("MB-02")
@pytest.mark.behaviour("MB-03")
@pytest.mark.behaviour("MB-04")
def test_the_lowest_id_changes_are_told_to_the_right_members() -> None:
    table = RouteTable()
    for broker_id in (2, 3):
        table.register(broker(broker_id, acting_master=True), 0)
    result = table.register(broker(1, acting_master=True), 0)
    assert result is not None
    assert result.change is not None
    assert (result.change.min_id, result.change.notify) == (1, ("h2:1", "h3:1"))
    assert (result.change.offline_address, result.change.ha_address) == (None, "h1:2")
    change = table.unregister("c", "g", "h1:1")
    assert change is not None
    assert (change.min_id, change.offline_address, change.notify) == (2, "h1:1", ("h2:1", "h3:1"))
    assert table.unregister("c", "g", "h3:1") is None, "it was not the lowest"
    again = table.register(broker(2, acting_master=True), 0)
    assert again is not None
    assert again.change is None, "it is the lowest already"


@pytest.mark.behaviour("MB-02")
def test_a_single_member_is_told_of_itself() -> None:
    table = RouteTable()
    assert table.register(broker(1, acting_master=True), 0) == Registered(), "an empty group counts as id 0"
    table.register(broker(0, acting_master=True), 0)
    change = table.unregister("c", "g", "h0:1")
    assert change is not None
    assert (change.min_id, change.min_address, change.notify) == (1, "h1:1", ("h1:1",))


@pytest.mark.behaviour("MB-03")
def test_a_loss_is_told_with_acting_masters_only_a_new_lowest_id_always() -> None:
    table = RouteTable()
    table.register(broker(1, acting_master=False), 0)
    table.register(broker(0, acting_master=False), 0)
    assert table.unregister("c", "g", "h0:1") is None
    result = table.register(broker(0, acting_master=False), 0)
    assert result is not None
    assert result.change is not None
    assert result.change.notify == ("h1:1",)


@pytest.mark.behaviour("HB-09")
def test_many_brokers_that_go_together_are_gone_at_once_and_their_topics_in_slices() -> None:
    table, one = RouteTable(), object()
    for number in range(50):
        table.register(broker(group=f"g{number}", address=f"h{number}:1", connection=one), 0)
    gone, _ = table.connection_closed(one)
    assert len(gone) == 50
    assert table.route("TopicA") is None
    assert table.cluster_info().broker_addr_table == {}
    slices = 0
    while table.has_work:
        table.sweep(1)
        slices += 1
    assert slices >= 50
    assert table.topics.names() == []


def test_the_next_expiry_is_that_of_the_broker_that_is_due_first() -> None:
    table = RouteTable()
    assert table.next_expiry_ms() is None
    table.register(broker(0), 0)
    assert table.next_expiry_ms() == 120_001
    table.register(broker(1, timeout_ms=4000), 500)
    assert table.next_expiry_ms() == 4501
    assert table.expire(4500)[0] == []
    assert [member.broker_id for member in table.expire(4501)[0]] == [1]


def test_an_id_that_moves_between_two_living_addresses_is_told_once() -> None:
    table = RouteTable()
    moves = []
    for address in ("h0:1", "x:1", "h0:1", "x:1", "y:1"):
        admission = table.admit(broker(0, address=address), 0)
        assert admission is not None
        moves.append(admission.moved)
    assert moves == [None, ("h0:1", "x:1"), None, None, ("x:1", "y:1")]


def test_the_loser_of_an_id_is_told_too() -> None:
    table = RouteTable()
    table.register(broker(0, version=version(1, state=2)), 0)
    admission = table.admit(broker(0, address="x:1", version=version(9, state=1)), 0)
    assert admission is not None
    assert (admission.member, admission.moved) == (None, ("h0:1", "x:1"))


def test_deleting_and_registering_single_topics() -> None:
    table = RouteTable()
    table.register(broker(), 0)
    table.register(broker(group="other", cluster="c2", address="o:1"), 0)
    table.delete_topic("TopicA", "c2")
    assert [q.broker_name for q in route(table).queue_datas] == ["g"]
    table.delete_topic("TopicA")
    assert table.route("TopicA") is None
    assert table.topics_of_cluster("c") == ["TopicB"]
    assert table.register_topic("TopicA", {"g": RW, "dead": RW}) == ["dead"]
    assert table.route("TopicA") is None
    assert table.register_topic("TopicA", {"g": RO}) == []
    assert perm(table) == 4


def test_topics_missing_in_a_report_go_when_asked() -> None:
    table = RouteTable()
    table.register(broker(), 0)
    two = {"TopicB": RW, "TopicC": RW}
    table.register(broker(topics=two, version=version(2)), 0)
    assert table.topics.names() == ["TopicA", "TopicB", "TopicC"]
    table.register(broker(topics=two, version=version(3)), 0, drop_missing_topics=True)
    assert table.topics.names() == ["TopicB", "TopicC"]


def test_lists_by_unit_flags() -> None:
    table = RouteTable()
    topics = {
        name: msgspec.structs.replace(RW, sys_flag=flag)
        for name, flag in (("n", 0), ("u", 1), ("s", 2), ("us", 3))
    }
    table.register(broker(topics=topics), 0)
    assert table.unit_topics() == ["u", "us"]
    assert table.unit_sub_topics() == ["s", "us"]
    assert table.unit_sub_ununit_topics() == ["s"]


def test_a_zone_hides_groups_of_other_zones_that_have_a_master() -> None:
    table = RouteTable()
    table.register(broker(group="near", address="n:1", zone="Z1"), 0)
    table.register(broker(group="far", address="f:1", zone="Z2"), 0)
    table.register(broker(1, group="headless", address="s:1", zone="Z2"), 0)
    found = table.route("TopicA", zone="z1")
    assert found is not None
    assert [b.broker_name for b in found.broker_datas] == ["headless", "near"]
    assert [q.broker_name for q in found.queue_datas] == ["headless", "near"]


@dataclass
class Live:
    group: str
    broker_id: int
    timeout_ms: int
    last_ms: int
    connection: int
    state: int


class RouteHistory(RuleBasedStateMachine):
    """Random histories, with a plain dictionary of the living brokers as the model."""

    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable()
        self.live: dict[str, Live] = {}
        self.now_ms = 0
        self.counter = 0
        self.connections = [object() for _ in range(3)]

    @rule(
        group=st.sampled_from(["a", "b"]),
        broker_id=st.integers(0, 2),
        address=st.sampled_from(["h1", "h2", "h3", "h4"]),
        topics=st.sets(st.sampled_from(["T1", "T2", "T3"])),
        acting=st.sampled_from([None, False, True]),
        timeout_ms=st.sampled_from([10, 50]),
        state=st.integers(0, 1),
        connection=st.integers(0, 2),
    )
    def register(
        self,
        group: str,
        broker_id: int,
        address: str,
        topics: set[str],
        acting: bool | None,
        timeout_ms: int,
        state: int,
        connection: int,
    ) -> None:
        self.counter += 1
        registration = BrokerReport(
            cluster="c",
            group=group,
            broker_id=broker_id,
            address=address,
            timeout_ms=timeout_ms,
            acting_master=acting,
            version=version(self.counter, state),
            topics=dict.fromkeys(topics, RW),
            connection=self.connections[connection],
        )
        result = self.table.register(registration, self.now_ms)
        holders = [a for a, m in self.live.items() if (m.group, m.broker_id) == (group, broker_id)]
        if not holders and len(topics) == 1:
            assert result is None
            return
        assert result is not None
        if holders and holders[0] != address and self.live[holders[0]].state > state:
            self.live.pop(address, None)
            return
        for gone in {*holders, address}:
            self.live.pop(gone, None)
        self.live[address] = Live(group, broker_id, timeout_ms, self.now_ms, connection, state)
        if broker_id == 0:
            for topic in topics:
                queues = self.table.topics.get(topic, group)
                assert queues is not None
                assert queues.writable

    @rule(address=st.sampled_from(["h1", "h2", "h3", "h4"]), group=st.sampled_from(["a", "b"]))
    def unregister(self, address: str, group: str) -> None:
        self.table.unregister("c", group, address)
        if address in self.live and self.live[address].group == group:
            del self.live[address]

    @rule(connection=st.integers(0, 2))
    def close(self, connection: int) -> None:
        gone, _ = self.table.connection_closed(self.connections[connection])
        expected = {a for a, m in self.live.items() if m.connection == connection}
        assert {member.address for member in gone} == expected
        for address in expected:
            del self.live[address]

    @rule(elapsed_ms=st.integers(0, 40))
    def expire(self, elapsed_ms: int) -> None:
        self.now_ms += elapsed_ms
        gone, _ = self.table.expire(self.now_ms)
        expected = {a for a, m in self.live.items() if m.last_ms + m.timeout_ms < self.now_ms}
        assert {member.address for member in gone} == expected
        for address in expected:
            del self.live[address]

    @rule(address=st.sampled_from(["h1", "h2", "h3", "h4"]))
    def heartbeat(self, address: str) -> None:
        assert self.table.touch("c", address, self.now_ms) == (address in self.live)
        if address in self.live:
            self.live[address].last_ms = self.now_ms

    @precondition(lambda self: self.live)
    @rule(group=st.sampled_from(["a", "b"]), grant=st.booleans())
    def change_permission(self, group: str, grant: bool) -> None:
        change = self.table.topics.grant_read_write if grant else self.table.topics.wipe_write
        count = change(group)
        once = sorted(self.table.topics.items())
        assert change(group) == count
        assert sorted(self.table.topics.items()) == once, "doing it twice changes nothing"

    @invariant()
    def members_are_the_live_brokers(self) -> None:
        for group in ("a", "b"):
            expected = {m.broker_id: a for a, m in self.live.items() if m.group == group}
            assert self.table.member_addresses(group) == expected
        assert {m.address for m in self.table.members()} == set(self.live)

    @invariant()
    def routes_name_live_brokers_only(self) -> None:
        for topic in self.table.topics.names():
            found = self.table.route(topic, acting_master=True)
            assert found is not None
            assert found.queue_datas
            names = [b.broker_name for b in found.broker_datas]
            assert names == [q.broker_name for q in found.queue_datas]
            for data in found.broker_datas:
                assert data.broker_addrs
                assert {self.live[a].group for a in data.broker_addrs.values()} == {data.broker_name}


TestRouteHistory = RouteHistory.TestCase
TestRouteHistory.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_how_long_a_lost_broker_has_not_been_heard() -> None:
    table = RouteTable()
    assert table.silent_ms("g", 0) is None
    table.register(broker(1, timeout_ms=4000), 1000)
    # Before the first report nothing is known: a leader may have sent a heartbeat a moment before.
    assert table.silent_ms("g", 1500) == 500
    table.register(broker(0, timeout_ms=4000), 2000)
    table.touch("c", "h0:1", 3000)
    table.touch("c", "h1:1", 7000)
    table.expire(7001)
    assert addresses(table) == {1: "h1:1"}
    assert table.silent_ms("g", 7100) == 4100
    table.register(broker(0, timeout_ms=4000, connection="c0"), 8000)
    table.touch("c", "h0:1", 8900)
    table.connection_closed("c0")
    assert table.silent_ms("g", 9000) == 100
