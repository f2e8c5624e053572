"""Services of the broker without a broker: long polling, clients, locks, names, subscriptions."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.feeds import follow

from orbitmq.broker import names
from orbitmq.broker.change_feed import ChangeFeed
from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.clients.registry import Client, ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import Events, MembersChanged
from orbitmq.broker.messaging.filters import Filters, parse
from orbitmq.broker.messaging.held_pulls import LongPolling
from orbitmq.broker.metadata.attributes import parse as parse_attributes
from orbitmq.broker.role import Role, RoleChanged
from orbitmq.message.model import MessageQueue
from orbitmq.message.tags import java_hash
from orbitmq.store import MessageFilter
from orbitmq.wire.bodies.client import ConsumerData, MessageModel, SubscriptionData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nobody sleeps here, not even {seconds} s")


# -- long polling --------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Waiter:
    offset: int = 0
    answers: bool = True
    gone: bool = False
    events: list[str] = field(default_factory=list)

    def wake(self) -> bool:
        self.events.append("wake")
        return self.answers

    def is_of(self, user: str) -> bool:
        return False

    def recheck(self) -> None:
        raise AssertionError("no rights change here")

    def expire(self) -> None:
        self.events.append("expire")


def polling(limit: int = 10) -> tuple[Clock, LongPolling, list[tuple[str, int]]]:
    clock = Clock()
    watched: list[tuple[str, int]] = []
    return (
        clock,
        LongPolling(clock, Events(), lambda topic, queue: watched.append((topic, queue)), limit=limit),
        watched,
    )


def test_an_arrival_wakes_those_who_have_not_seen_it() -> None:
    _, waiting, watched = polling()
    early, late, other = Waiter(offset=3), Waiter(offset=4), Waiter(offset=0)
    waiting.park("T", 0, early, 1000)
    waiting.park("T", 0, late, 1000)
    waiting.park("T", 1, other, 1000)
    waiting.on_arrival("T", 0, 4)
    assert (early.events, late.events, other.events) == (["wake"], [], [])
    assert (len(waiting), waiting.waiting("T", 0)) == (2, 1)
    assert watched == [("T", 0), ("T", 0), ("T", 1), ("T", 0)]


def test_a_waiter_that_finds_nothing_waits_on_and_one_that_left_is_forgotten() -> None:
    _, waiting, _ = polling()
    picky, left = Waiter(answers=False), Waiter(gone=True)
    waiting.park("T", 0, picky, 1000)
    waiting.park("T", 0, left, 1000)
    waiting.on_arrival("T", 0, 1)
    assert (picky.events, left.events) == (["wake"], [])
    assert len(waiting) == 1


def test_time_runs_out() -> None:
    clock, waiting, _ = polling()
    short, long = Waiter(), Waiter()
    waiting.park("T", 0, short, 1000)
    waiting.park("T", 0, long, 5000)
    clock.ms += 999
    waiting.tick()
    assert short.events == []
    clock.ms += 101
    waiting.tick()
    assert (short.events, long.events) == (["expire"], [])
    waiting.expire_all()
    assert long.events == ["expire"]
    assert len(waiting) == 0


def test_the_number_of_waiters_has_a_limit() -> None:
    _, waiting, _ = polling(limit=1)
    assert waiting.park("T", 0, Waiter(), 1000)
    assert not waiting.park("T", 0, Waiter(), 1000)
    assert len(waiting) == 1


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 500), st.booleans()), max_size=40))
def test_nobody_is_lost_or_answered_twice(steps: list[tuple[int, int, bool]]) -> None:
    clock, waiting, _ = polling(limit=1000)
    waiters: list[Waiter] = []
    for queue, number, answers in steps:
        waiter = Waiter(offset=number, answers=answers)
        waiters.append(waiter)
        waiting.park("T", queue, waiter, number * 10)
        waiting.on_arrival("T", queue, number // 2 + 1)
        clock.ms += number
        waiting.tick()
    waiting.expire_all()
    assert len(waiting) == 0
    for waiter in waiters:
        answered = waiter.answers and "wake" in waiter.events
        assert waiter.events.count("expire") == (0 if answered else 1)
        assert waiter.events.count("wake") <= 1 or not waiter.answers


# -- clients -------------------------------------------------------------------------------------------------


class Peer:
    """A connection that only records."""

    def __init__(self, name: str) -> None:
        self.remote_address = name
        self.told: list[Command] = []
        self.closed = False

    def oneway(self, command: Command) -> None:
        self.told.append(command)

    async def request(self, command: Command, timeout_ms: int) -> Command:
        raise AssertionError(f"nobody asks a client here: {command.code} within {timeout_ms} ms")

    def close(self) -> None:
        self.closed = True


def client(name: str) -> Client:
    return Client(Peer(name), name, 3, 479)


def consumer(*topics: str, version: int = 1, group: str = "g") -> ConsumerData:
    return ConsumerData(
        group, subscription_data_set=[SubscriptionData(t, sub_version=version) for t in topics]
    )


def told(member: Client) -> int:
    assert isinstance(member.peer, Peer)
    return len(member.peer.told)


@pytest.mark.usefixtures("orbitmq_loop")
async def test_changes_of_a_group_are_told_to_its_members_and_listeners() -> None:
    events = Events()
    manager = ClientManager(Clock(), events)
    seen: list[tuple[str, list[str]]] = []

    def note(event: MembersChanged) -> None:
        seen.append((event.group, event.state.client_ids if event.state is not None else []))

    events.subscribe(MembersChanged, note)
    one, two = client("one"), client("two")
    manager.register_consumer(one, consumer("T"))
    manager.register_consumer(two, consumer("T"))
    manager.register_consumer(two, consumer("T"))
    assert seen == [("g", ["one"]), ("g", ["one", "two"])]
    assert (told(one), told(two)) == (2, 1)
    manager.register_consumer(two, consumer("T", "U"))
    assert (told(one), told(two)) == (3, 2)
    manager.connection_closed(two.peer)
    assert (told(one), told(two)) == (4, 2)
    manager.unregister(one.peer, producer_group=None, consumer_group="g")
    assert seen[-1] == ("g", [])
    assert manager.consumers("g") is None


@pytest.mark.behaviour("MO-15")
def test_a_master_that_is_back_learns_of_members_one_by_one_and_tells_all_it_knows() -> None:
    manager = ClientManager(Clock(), Events())
    members = [client(name) for name in ("one", "two", "three")]
    for number, member in enumerate(members, 1):
        manager.register_consumer(member, consumer("T"))
        assert [told(each) for each in members] == [max(0, number - place) for place in range(3)]


def test_a_member_with_two_connections_counts_once() -> None:
    manager = ClientManager(Clock(), Events())
    for peer in (Peer("old"), Peer("new")):
        manager.register_consumer(Client(peer, "one", 3, 479), consumer("T"))
    state = manager.consumers("g")
    assert state is not None
    assert state.client_ids == ["one"]


def test_consumers_hear_of_a_broker_that_begins_to_lead() -> None:
    events = Events()
    manager = ClientManager(Clock(), events)
    one, two = client("one"), client("two")
    broadcast = consumer("T", group="all")
    broadcast.message_model = MessageModel.BROADCASTING
    manager.register_consumer(one, consumer("T"))
    manager.register_consumer(two, broadcast)
    events.publish(RoleChanged(Role.SLAVE, Role.PRE_ONLINE, 0))
    assert (told(one), told(two)) == (1, 0)
    events.publish(RoleChanged(Role.SLAVE, Role.ACTING_MASTER, 0))
    assert (told(one), told(two)) == (2, 1)


def test_broadcasting_and_quiet_groups_are_not_told() -> None:
    manager = ClientManager(Clock(), Events())
    one = client("one")
    data = consumer("T")
    data.message_model = MessageModel.BROADCASTING
    manager.register_consumer(one, data)
    manager.register_consumer(one, consumer("T", group="quiet"), notify=False)
    assert told(one) == 0


def test_subscriptions_follow_the_newest_version() -> None:
    manager = ClientManager(Clock(), Events())
    one = client("one")
    manager.register_consumer(one, consumer("T", "U", version=5))
    assert manager.groups_reading("U") == {"g"}
    older = ConsumerData("g", subscription_data_set=[SubscriptionData("T", "a", sub_version=4)])
    manager.register_consumer(one, older)
    subscription = manager.subscription("g", "T")
    assert subscription is not None
    assert subscription.sub_string == "*"
    assert manager.subscription("g", "U") is None


@pytest.mark.usefixtures("orbitmq_loop")
async def test_members_that_disagree_are_named(caplog: pytest.LogCaptureFixture) -> None:
    manager = ClientManager(Clock(), Events())
    first = ConsumerData("g", subscription_data_set=[SubscriptionData("T", "a", sub_version=1)])
    second = ConsumerData("g", subscription_data_set=[SubscriptionData("T", "b", sub_version=2)])
    manager.register_consumer(client("one"), first)
    manager.register_consumer(client("two"), second)
    assert "group g lose messages" in caplog.text
    assert "topic T: client two wants 'b', client one wants 'a'" in caplog.text


@pytest.mark.usefixtures("orbitmq_loop")
async def test_a_member_that_changes_its_mind_in_each_heartbeat_writes_few_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    manager = ClientManager(Clock(), Events())
    member = client("two")
    manager.register_consumer(
        client("one"), ConsumerData("g", subscription_data_set=[SubscriptionData("T", "a")])
    )
    for number in range(100):
        wanted = [SubscriptionData("T", f"b{number}", sub_version=number)]
        manager.register_consumer(member, ConsumerData("g", subscription_data_set=wanted))
    assert manager.conflict_count("g") == 100
    assert caplog.text.count("lose messages") == 1


@pytest.mark.usefixtures("orbitmq_loop")
async def test_silent_clients_are_closed() -> None:
    clock = Clock()
    manager = ClientManager(clock, Events(), expire_ms=120_000)
    silent, lively = client("silent"), client("lively")
    manager.register_consumer(silent, consumer("T"))
    manager.register_producer("pg", lively)
    clock.ms += 100_000
    manager.register_producer("pg", lively)
    clock.ms += 30_000
    assert manager.expire() == 1
    assert isinstance(silent.peer, Peer)
    assert silent.peer.closed
    assert [c.client_id for c in manager.producers("pg")] == ["lively"]


@pytest.mark.usefixtures("orbitmq_loop")
async def test_clients_of_another_door_are_left_to_that_door() -> None:
    clock = Clock()
    manager = ClientManager(clock, Events(), expire_ms=120_000)
    one, member = client("one"), client("two")
    one.remoting = False
    manager.register_consumer(one, consumer("T"))
    told_before = told(one)
    manager.register_consumer(member, consumer("T"))
    clock.ms += 100_000
    manager.register_consumer(member, consumer("T"))
    clock.ms += 30_000
    assert manager.expire() == 0
    assert (told(one), manager.consumer_groups()["g"]) == (told_before, [one, member])


@pytest.mark.usefixtures("orbitmq_loop")
@pytest.mark.parametrize("seed", range(20))
async def test_clients_come_and_go_as_in_a_simple_book(seed: int) -> None:
    """The table is compared with a list of (connection, role, group) and the time of its last heartbeat."""
    choice = random.Random(seed)
    clock = Clock()
    manager = ClientManager(clock, Events(), expire_ms=120_000)
    clients = [client(f"c{number}") for number in range(12)]
    book: dict[tuple[int, str, str], int] = {}
    for _ in range(600):
        clock.ms += choice.randrange(20_000)
        number, group = choice.randrange(len(clients)), choice.choice(["a", "b", "c"])
        one = clients[number]
        match choice.randrange(6):
            case 0 | 1:
                manager.register_producer(group, one)
                book[number, "p", group] = clock.ms
            case 2 | 3:
                manager.register_consumer(one, consumer("T", group=group))
                book[number, "c", group] = clock.ms
            case 4:
                manager.unregister(one.peer, producer_group=group, consumer_group=None)
                book.pop((number, "p", group), None)
            case 5 if choice.random() < 0.3:
                manager.connection_closed(one.peer)
                book = {key: seen for key, seen in book.items() if key[0] != number}
        silent = {who for who, _, _ in book if clients[who].seen_ms < clock.ms - 120_000}
        if choice.random() < 0.5:
            assert manager.expire() == len(silent)
            book = {key: seen for key, seen in book.items() if key[0] not in silent}
        for name in ("a", "b", "c"):
            online = {one.client_id for one in manager.producers(name)}
            assert online == {f"c{who}" for who, role, group in book if (role, group) == ("p", name)}
            state = manager.consumers(name)
            members = set(state.client_ids) if state is not None else set()
            assert members == {f"c{who}" for who, role, group in book if (role, group) == ("c", name)}


def test_a_changed_topic_wakes_its_own_pulls_only() -> None:
    _, waiting, _ = polling()
    ours, others = [Waiter() for _ in range(3)], [Waiter() for _ in range(3)]
    for queue in range(3):
        waiting.park("T", queue, ours[queue], 1000)
        waiting.park("U", queue, others[queue], 1000)
    waiting.wake_topic("T")
    assert [waiting.waiting("T", queue) for queue in range(3)] == [0, 0, 0]
    assert [waiting.waiting("U", queue) for queue in range(3)] == [1, 1, 1]


# -- locks, names, expressions -------------------------------------------------------------------------------


def test_a_lock_that_is_not_renewed_is_free_after_a_minute() -> None:
    clock = Clock()
    locks = QueueLocks(clock, ChangeFeed())
    queue = MessageQueue("T", "b", 0)
    assert locks.lock("g", "one", [queue]) == [queue]
    clock.ms += 60_000
    assert locks.lock("g", "two", [queue]) == []
    assert locks.any_held("g")
    clock.ms += 1
    assert not locks.any_held("g")
    assert locks.lock("g", "two", [queue]) == [queue]
    locks.unlock("g", "one", [queue])
    assert locks.lock("g", "one", [queue]) == []
    locks.unlock("g", "two", [queue])
    assert locks.lock("g", "one", [queue]) == [queue]


@pytest.mark.behaviour("LK-01")
def test_a_step_of_the_wall_clock_gives_no_lock_away() -> None:
    class Stepping(Clock):
        ahead_ms = 0

        def now_ms(self) -> int:
            return self.ms + self.ahead_ms

    clock = Stepping()
    feed, other_feed = ChangeFeed(), ChangeFeed()
    locks, copy = QueueLocks(clock, feed), QueueLocks(clock, other_feed)
    follow(feed, other_feed.apply)
    queue = MessageQueue("T", "b", 0)
    assert locks.lock("g", "one", [queue]) == [queue]
    for clock.ahead_ms in (3_600_000, -3_600_000):
        assert locks.lock("g", "two", [queue]) == copy.lock("g", "two", [queue]) == []
    clock.ms += 60_001
    assert locks.lock("g", "two", [queue]) == [queue]


@pytest.mark.behaviour("MV-03")
@pytest.mark.parametrize("good", ["T", "%RETRY%g", "a|b-c_9", "t" * 127, "%DLQ%" + "g" * 250])
def test_good_topic_names(good: str) -> None:
    names.check_topic(good)


@pytest.mark.behaviour("MV-03")
@pytest.mark.parametrize("bad", ["", " ", "a b", "ü", "a/b", "..", "t" * 128, "%DLQ%" + "g" * 251, "a\n"])
def test_bad_topic_names(bad: str) -> None:
    with pytest.raises(RemotingError) as caught:
        names.check_topic(bad)
    assert caught.value.code == ResponseCode.INVALID_PARAMETER


@pytest.mark.behaviour("MV-04")
def test_group_names_are_shorter() -> None:
    names.check_group("g" * 120)
    with pytest.raises(RemotingError, match="120"):
        names.check_group("g" * 121)


@pytest.mark.parametrize(
    ("expression", "tags"), [("a", {"a"}), ("a || b", {"a", "b"}), (" a||b|| ", {"a", "b"}), ("x y", {"x y"})]
)
def test_tag_expressions(expression: str, tags: set[str]) -> None:
    data = parse("T", expression)
    assert data.tags_set == tags
    assert Filters(BrokerConfig()).of_subscription(data) == MessageFilter(java_hash(tag) for tag in tags)


@pytest.mark.parametrize("expression", ["*", "", None])
def test_expressions_for_everything(expression: str | None) -> None:
    assert Filters(BrokerConfig()).of_subscription(parse("T", expression)).passes_all


def test_attribute_lists() -> None:
    assert parse_attributes("+a=1,-b") == {"+a": "1", "-b": ""}
    assert parse_attributes(None) == {}
    for bad in ("a=1", "+a", "-a=1", "+=1", "+a=1,+a=2"):
        with pytest.raises(RemotingError):
            parse_attributes(bad)
