"""What operations tell and do while one of two brokers does not answer: it stands still (SIGSTOP)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from orbitmq import Message, TransportError
from orbitmq.admin import Admin, IncompleteError
from orbitmq.message.model import MessageQueue
from orbitmq.testing import World
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.redrive import RedriveAction, RedriveRequest
from orbitmq.wire.command import Command

ALIVE, FROZEN = "broker-a", "broker-b"
TIMEOUT_S = 2.0
QUEUES = {name: MessageQueue("T", name, 0) for name in (ALIVE, FROZEN)}
DEAD = ("%DLQ%cg", "%DLQ%other", "%DLQ%third")

pytestmark = [pytest.mark.behaviour("MO-24"), pytest.mark.orbitmq(brokers=2)]


@asynccontextmanager
async def prepared(world: World) -> AsyncIterator[Admin]:
    """Both have 10 messages and a dead letter of three groups; a group consumed 4 of each."""
    # Once more in a process that can be frozen.
    for name in QUEUES:
        await world.stop_broker(name)
        await world.machines[name].begin(world.start_broker(name))
    async with world.admin(timeout_ms=round(TIMEOUT_S * 1000)) as admin, world.producer() as producer:
        for topic in ("T", *DEAD):
            await admin.create_topic(topic, queues=1)
        await admin.create_group(SubscriptionGroupConfig("cg"))
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


async def incomplete(world: World, work: Awaitable[object]) -> Any:
    """What the living broker told or did; the wait was one deadline."""
    began = world.clock.monotonic()
    with pytest.raises(IncompleteError) as caught:
        await work
    assert world.clock.monotonic() - began < TIMEOUT_S + 0.5
    assert [(one.name, one.reason, one.uncertain) for one in caught.value.left_out] == [
        (FROZEN, "no answer in 2 s", True)
    ]
    return caught.value.found


Ask = Callable[[Admin], Awaitable[object]]
NOBODY = "7F0000015E4B63947C6B4E1B3C4D0000"


def queues(found: Any) -> list[MessageQueue]:
    return [one.queue for one in found]


# What is asked, what is looked at in the result, and what that is.
READ: dict[str, tuple[Ask, Callable[[Any], object], object]] = {
    "topic status": (lambda a: a.topic_status("T"), queues, [QUEUES[ALIVE]]),
    "lag": (lambda a: a.groups.lag("cg", topic="T"), lambda f: [o.lag for o in f], [6]),
    "lag of a group that may be there": (lambda a: a.groups.lag("nobody"), list, []),
    "groups": (lambda a: a.groups.names(), lambda f: f["cg"], [ALIVE]),
    "a group": (lambda a: a.groups.show("cg"), lambda f: list(f.configs), [ALIVE]),
    "a group that may be there": (lambda a: a.groups.show("nobody"), lambda f: f, None),
    "plan": (lambda a: a.groups.plan_to_first("cg", "T"), queues, [QUEUES[ALIVE]]),
    "dead letters": (lambda a: a.dead_letters.groups(), lambda f: [o.brokers for o in f], [{ALIVE: 1}] * 3),
    "dead letters of one": (lambda a: a.dead_letters.of("cg"), lambda f: f.count, 1),
    "redrives": (lambda a: a.dead_letters.status(), list, []),
    "timers": (lambda a: a.timers.pending(), lambda f: [o.broker_name for o in f], [ALIVE]),
    "by key": (lambda a: a.find("T", key="k"), len, 10),
    "by id": (lambda a: a.message(NOBODY, topic="T"), lambda f: f, None),
}


@pytest.mark.parametrize("what", READ)
async def test_who_answers_is_heard_within_one_deadline(orbitmq_world: World, what: str) -> None:
    """All was an error after 5 s, and of several topics of dead letters each had 5 s of its own."""
    world = orbitmq_world
    ask, facts, expected = READ[what]
    async with prepared(world) as admin:
        with standing_still(world, FROZEN):
            assert facts(await incomplete(world, ask(admin))) == expected


@pytest.mark.parametrize("what", [one for one in READ if "may be there" not in one and one != "by id"])
async def test_who_answers_nonsense_is_left_out(
    orbitmq_world: World, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """What the others told was lost with it."""
    world = orbitmq_world
    ask, facts, expected = READ[what]
    async with prepared(world) as admin:
        address, request = world.brokers[FROZEN].address, RemotingClient.request

        async def spoiled(client: RemotingClient, to: str, command: Command, timeout_ms: int) -> Command:
            answer = await request(client, to, command, timeout_ms)
            return Command(answer.code, answer.ext, b"\xff{") if to == address else answer

        monkeypatch.setattr(RemotingClient, "request", spoiled)
        with pytest.raises(IncompleteError) as caught:
            await ask(admin)
        assert [one.name for one in caught.value.left_out] == [FROZEN]
        assert facts(caught.value.found) == expected


async def test_a_message_that_was_found_needs_no_other_broker(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with prepared(world) as admin, world.producer() as producer:
        sent = await producer.send(Message("T", b"here"), queue=QUEUES[ALIVE])
        await world.sleep(1)
        with standing_still(world, FROZEN):
            assert (await admin.message(sent.message_id, topic="T")).body == b"here"


async def test_nobody_answers_is_the_brokers_own_error(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with prepared(world) as admin:
        with standing_still(world, *QUEUES), pytest.raises(TransportError, match="no answer from"):
            await admin.topic_status("T")


async def test_changes_are_made_where_they_can_be(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with prepared(world) as admin:
        await admin.create_group(SubscriptionGroupConfig("cg2"))
        with standing_still(world, FROZEN):
            assert await incomplete(world, admin.create_topic("U", queues=1)) == [ALIVE]
            assert await incomplete(world, admin.create_group(SubscriptionGroupConfig("new"))) == [ALIVE]
            assert await incomplete(world, admin.groups.clone("cg", "cg2", topic="T")) == [ALIVE]
            assert await incomplete(world, admin.delete_group("cg2")) == [ALIVE]
            (job,) = await incomplete(
                world, admin.dead_letters.redrive(RedriveRequest("cg", to_topic="T", rate=1))
            )
            assert job.broker_name == ALIVE
            # Who is not to send any is not asked.
            chosen = RedriveRequest("other", to_topic="T")
            (job,) = await admin.dead_letters.redrive(chosen, only={ALIVE: [[0, 1]]})
            assert job.broker_name == ALIVE
            services = world.brokers[ALIVE].services
            assert ("U" in services.topics, "new" in services.groups, "cg2" in services.groups) == (
                True,
                True,
                False,
            )
        await world.sleep(1)
        assert await admin.create_topic("U", queues=1) == [ALIVE, FROZEN]


async def test_a_redrive_is_stopped_where_it_can_be(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with prepared(world) as admin, world.producer() as producer:
        for name in QUEUES:
            for _ in range(200):
                await producer.send(Message(DEAD[0], b"x"), queue=MessageQueue(DEAD[0], name, 0))
        await admin.dead_letters.redrive(RedriveRequest("cg", to_topic="T", rate=20))
        with standing_still(world, FROZEN):
            (job,) = await incomplete(world, admin.dead_letters.change("cg", RedriveAction.STOP))
            assert (job.broker_name, job.state.value) == (ALIVE, "STOPPED")


async def test_a_topic_that_is_still_somewhere_stays_in_the_routes(orbitmq_world: World) -> None:
    """Until it is deleted again, which finishes that."""
    world = orbitmq_world
    async with prepared(world) as admin:
        with standing_still(world, FROZEN):
            assert await incomplete(world, admin.delete_topic("T")) == [ALIVE]
            assert [entry.broker_name for entry in await admin.topic_route("T")] == [ALIVE, FROZEN]
        await world.sleep(1)
        assert await admin.topic_status("T") == []
        assert await admin.delete_topic("T") == [ALIVE, FROZEN]
        assert "T" not in await admin.topic_list()


async def test_a_name_server_that_was_not_told_is_named(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with prepared(world) as admin:
        two = f"{world.name_server};127.0.0.1:1"
        async with Admin(two, runtime=world.runtime) as other:
            with pytest.raises(IncompleteError, match=r"name server at 127\.0\.0\.1:1: ") as caught:
                await other.delete_topic("T")
        assert caught.value.found == [ALIVE, FROZEN]
        assert "T" not in await admin.topic_list()


async def test_a_group_is_moved_where_it_can_be(orbitmq_world: World) -> None:
    world = orbitmq_world
    async with prepared(world) as admin:
        moves = await admin.groups.plan_to_first("cg", "T")
        with standing_still(world, FROZEN):
            moved = await incomplete(world, admin.groups.move("cg", moves))
            assert [move.queue for move in moved] == [QUEUES[ALIVE]]
            # Queues that are named are moved without asking the others.
            moves = await admin.groups.plan("cg", {QUEUES[ALIVE]: 3})
            assert list(await admin.groups.move("cg", moves)) == moves
        assert world.brokers[ALIVE].services.offsets.query("cg", "T", 0) == 3


async def test_no_queue_is_moved_when_one_broker_cannot_move_the_group(orbitmq_world: World) -> None:
    """Those of the brokers before it were."""
    world = orbitmq_world
    async with prepared(world) as admin, world.consumer("cg") as consumer:
        consumer.subscribe("T")
        address = world.brokers[FROZEN].address
        await admin.update_broker_config(address, {"useServerSideResetOffset": "false"})
        await world.sleep(1)
        moves = await admin.groups.plan_to_first("cg", "T")
        with pytest.raises(ValueError, match="stop them first"):
            await admin.groups.move("cg", moves)
        assert world.brokers[ALIVE].services.offsets.query("cg", "T", 0) != 0
