"""Results of operations while one of two brokers does not respond because its process is frozen (SIGSTOP)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from orbitmq import Message, TransportError
from orbitmq.admin import Admin, IncompleteError, Partial
from orbitmq.message.model import MessageQueue
from orbitmq.testing import World
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.command import Command

ALIVE, FROZEN = "broker-a", "broker-b"
TIMEOUT_S = 2.0
QUEUES = {name: MessageQueue("T", name, 0) for name in (ALIVE, FROZEN)}
DEAD = ("%DLQ%cg", "%DLQ%other", "%DLQ%third")

pytestmark = [pytest.mark.behaviour("MO-24"), pytest.mark.orbitmq(brokers=2)]


@asynccontextmanager
async def prepared(world: World) -> AsyncIterator[Admin]:
    """Two brokers, each with 10 messages, of which a group has consumed 4, and with a dead letter of each of
    three groups.
    """
    # Start the brokers again, in processes that can be frozen.
    for name in QUEUES:
        await world.stop_broker(name)
        await world.machines[name].begin(world.start_broker(name))
    async with world.admin(timeout=TIMEOUT_S) as admin, world.producer() as producer:
        for topic in ("T", *DEAD):
            await admin.topics.create(topic, queues=1)
        await admin.groups.create("cg")
        for name, queue in QUEUES.items():
            for number in range(10):
                await producer.send(Message("T", b"%d" % number, keys=["k"]), queue=queue)
            for topic in DEAD:
                await producer.send(Message(topic, b"x"), queue=MessageQueue(topic, name, 0))
            world.brokers[name].services.offsets.commit("cg", "T", 0, 4)
        await world.sleep(1)
        yield admin


@contextmanager
def standing_still(world: World, *names: str) -> Iterator[None]:
    for name in names:
        world.machines[name].freeze()
    try:
        yield
    finally:
        for name in names:
            world.machines[name].thaw()


async def partial(work: Awaitable[object]) -> Partial[Any]:
    """The partial result of a query, or of a change that was not made at all brokers."""
    try:
        answer = await work
    except IncompleteError as error:
        return error.partial
    assert isinstance(answer, Partial)
    with pytest.raises(IncompleteError):
        answer.whole()
    return answer


async def incomplete(world: World, work: Awaitable[object]) -> Any:
    """The part of a result that the living broker gave, within one deadline."""
    began = world.clock.monotonic()
    answer = await partial(work)
    assert world.clock.monotonic() - began < TIMEOUT_S + 0.5
    assert [(one.name, one.reason, one.uncertain) for one in answer.left_out] == [
        (FROZEN, "no answer in 2 s", True)
    ]
    return answer.found


Ask = Callable[[Admin], Awaitable[object]]
NOBODY = "7F0000015E4B63947C6B4E1B3C4D0000"


def queues(found: Any) -> list[MessageQueue]:
    return [one.queue for one in found]


# By name: the operation, the part of its result to compare, and its expected value.
READ: dict[str, tuple[Ask, Callable[[Any], object], object]] = {
    "topic status": (lambda a: a.topics.status("T"), queues, [QUEUES[ALIVE]]),
    "lag": (lambda a: a.groups.lag("cg", topic="T"), lambda f: [o.lag for o in f], [6]),
    "lag of a group that may be there": (lambda a: a.groups.lag("nobody"), list, []),
    "groups": (lambda a: a.groups.list(), lambda f: f["cg"], [ALIVE]),
    "a group": (lambda a: a.groups.show("cg"), lambda f: list(f.settings), [ALIVE]),
    "a group that may be there": (lambda a: a.groups.show("nobody"), lambda f: f, None),
    "plan": (lambda a: a.groups.plan_to_first("cg", "T"), queues, [QUEUES[ALIVE]]),
    "dead letters": (lambda a: a.dead_letters.list(), lambda f: [o.brokers for o in f], [{ALIVE: 1}] * 3),
    "dead letters of one": (lambda a: a.dead_letters.show("cg"), lambda f: f.count, 1),
    "redrives": (lambda a: a.dead_letters.redrives(), list, []),
    "timers": (lambda a: a.timers.list(), lambda f: [o.broker_name for o in f], [ALIVE]),
    "by key": (lambda a: a.messages.find("T", key="k"), len, 10),
    "by id": (lambda a: a.messages.get(NOBODY, topic="T"), lambda f: f, None),
}


@pytest.mark.parametrize("what", READ)
async def test_who_answers_is_heard_within_one_deadline(orbitmq_world: World, what: str) -> None:
    """The answering broker's part is returned after one deadline, also where a query covers several
    topics.
    """
    world = orbitmq_world
    ask, facts, expected = READ[what]
    async with prepared(world) as admin:
        with standing_still(world, FROZEN):
            assert facts(await incomplete(world, ask(admin))) == expected


@pytest.mark.parametrize("what", [one for one in READ if "may be there" not in one and one != "by id"])
async def test_who_answers_nonsense_is_left_out(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A broker whose response cannot be parsed does not spoil the results of the others."""
    world = orbitmq_world
    ask, facts, expected = READ[what]
    async with prepared(world) as admin:
        address, request = world.brokers[FROZEN].address, RemotingClient.request

        async def spoiled(client: RemotingClient, to: str, command: Command, timeout_ms: int) -> Command:
            answer = await request(client, to, command, timeout_ms)
            return Command(answer.code, answer.ext, b"\xff{") if to == address else answer

        monkeypatch.setattr(RemotingClient, "request", spoiled)
        answer = await partial(ask(admin))
        assert [one.name for one in answer.left_out] == [FROZEN]
        assert facts(answer.found) == expected


async def test_a_message_that_was_found_needs_no_other_broker(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with prepared(world) as admin, world.producer() as producer:
        sent = await producer.send(Message("T", b"here"), queue=QUEUES[ALIVE])
        await world.sleep(1)
        with standing_still(world, FROZEN):
            assert (await admin.messages.get(sent.message_id, topic="T")).body == b"here"


async def test_nobody_answers_is_the_brokers_own_error(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with prepared(world) as admin:
        with standing_still(world, *QUEUES), pytest.raises(TransportError, match="no answer from"):
            (await admin.topics.status("T")).whole()


async def test_changes_are_made_where_they_can_be(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with prepared(world) as admin:
        await admin.groups.create("cg2")
        with standing_still(world, FROZEN):
            assert await incomplete(world, admin.topics.create("U", queues=1)) == [ALIVE]
            assert await incomplete(world, admin.groups.create("new")) == [ALIVE]
            assert await incomplete(world, admin.groups.clone("cg", "cg2", topic="T")) == [ALIVE]
            assert await incomplete(world, admin.groups.delete("cg2")) == [ALIVE]
            (job,) = await incomplete(world, admin.dead_letters.redrive("cg", to_topic="T", rate=1))
            assert job.broker_name == ALIVE
            # A broker that is not to send any dead letters gets no request.
            (job,) = await admin.dead_letters.redrive("other", to_topic="T", only={ALIVE: [(0, 1)]})
            assert job.broker_name == ALIVE
            services = world.brokers[ALIVE].services
            assert ("U" in services.topics, "new" in services.groups, "cg2" in services.groups) == (
                True,
                True,
                False,
            )
        await world.sleep(1)
        assert await admin.topics.create("U", queues=1) == [ALIVE, FROZEN]


async def test_a_redrive_is_stopped_where_it_can_be(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with prepared(world) as admin, world.producer() as producer:
        for name in QUEUES:
            for _ in range(200):
                await producer.send(Message(DEAD[0], b"x"), queue=MessageQueue(DEAD[0], name, 0))
        await admin.dead_letters.redrive("cg", to_topic="T", rate=20)
        with standing_still(world, FROZEN):
            (job,) = await incomplete(world, admin.dead_letters.stop("cg"))
            assert (job.broker_name, job.state) == (ALIVE, "stopped")


async def test_a_topic_that_is_still_somewhere_stays_in_the_routes(orbitmq_world: World) -> None:
    """The route remains until a second deletion completes the first."""
    world = orbitmq_world
    async with prepared(world) as admin:
        with standing_still(world, FROZEN):
            assert await incomplete(world, admin.topics.delete("T")) == [ALIVE]
            assert [entry.broker_name for entry in await admin.topics.route("T")] == [ALIVE, FROZEN]
        await world.sleep(1)
        assert (await admin.topics.status("T")).whole() == []
        assert await admin.topics.delete("T") == [ALIVE, FROZEN]
        assert "T" not in await admin.topics.list()


async def test_a_name_server_that_was_not_told_is_named(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with prepared(world) as admin:
        two = f"{world.name_server};127.0.0.1:1"
        async with Admin(two, runtime=world.runtime) as other:
            with pytest.raises(
                IncompleteError, match=r"name server: cannot connect to 127\.0\.0\.1:1: "
            ) as caught:
                await other.topics.delete("T")
        assert caught.value.partial.found == [ALIVE, FROZEN]
        assert "T" not in await admin.topics.list()


async def test_a_group_is_moved_where_it_can_be(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with prepared(world) as admin:
        moves = (await admin.groups.plan_to_first("cg", "T")).whole()
        with standing_still(world, FROZEN):
            moved = await incomplete(world, admin.groups.move("cg", moves))
            assert [move.queue for move in moved] == [QUEUES[ALIVE]]
            # For named queues the other brokers get no request.
            moves = (await admin.groups.plan("cg", {QUEUES[ALIVE]: 3})).whole()
            assert list(await admin.groups.move("cg", moves)) == moves
        assert world.brokers[ALIVE].services.offsets.query("cg", "T", 0) == 3


async def test_no_queue_is_moved_when_one_broker_cannot_move_the_group(orbitmq_world: World) -> None:
    """The brokers in front of the one that refuses do not move their queues either."""
    world = orbitmq_world
    async with prepared(world) as admin, world.consumer("cg") as consumer:
        consumer.subscribe("T")
        address = world.brokers[FROZEN].address
        await admin.brokers.change_settings(address, {"useServerSideResetOffset": "false"})
        await world.sleep(1)
        moves = (await admin.groups.plan_to_first("cg", "T")).whole()
        with pytest.raises(ValueError, match="stop them first"):
            await admin.groups.move("cg", moves)
        assert world.brokers[ALIVE].services.offsets.query("cg", "T", 0) != 0
