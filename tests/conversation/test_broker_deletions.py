"""A kill during the deletion of a topic or group: a new one of the same name finds no offset of the
old one.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config

from orbitmq.broker.broker import Broker
from orbitmq.broker.change_feed import GROUPS, OFFSETS, TOPICS
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.testing.machines import PowerMachine
from orbitmq.wire.bodies.topic import TopicConfig
from orbitmq.wire.codes import RequestCode, ResponseCode

Gone = Callable[[Broker], bool]


def topic_is_gone(broker: Broker) -> bool:
    return "T" not in broker.services.topics


def group_is_gone(broker: Broker) -> bool:
    return "cg" not in broker.services.groups


async def with_offset(runtime: SimulatedRuntime) -> tuple[Broker, BrokerPeer]:
    """A broker with a topic that a group has read up to offset 5; topic and offset are on the disk."""
    broker = Broker(runtime, broker_config())
    await broker.start()
    peer = BrokerPeer(runtime)
    await peer.create()
    for _ in range(5):
        await peer.sent()
    broker.services.groups.find("cg")
    broker.services.offsets.commit("cg", "T", 0, 5)
    assert await broker.services.persistence.fold()
    return broker, peer


@pytest.mark.behaviour("DU-08")
@pytest.mark.parametrize(
    ("code", "ext", "is_gone"),
    [
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}, topic_is_gone),
        (
            RequestCode.DELETE_SUBSCRIPTIONGROUP,
            {"groupName": "cg", "cleanOffset": "true"},
            group_is_gone,
        ),
    ],
)
@pytest.mark.parametrize("writes", range(4))
async def test_a_kill_between_two_writes_leaves_no_offset_of_what_is_gone(
    runtime: SimulatedRuntime, code: int, ext: dict[str, str], is_gone: Gone, writes: int
) -> None:
    broker, peer = await with_offset(runtime)
    runtime.files.fail("pwrite", "tables.journal", skip=writes, times=-1)
    runtime.files.fail("write_atomic", "/config/", times=-1)
    answer = await peer.call(code, b"", **ext)
    await peer.client.close()
    await broker._lifecycle.kill()
    runtime.files.end_process()
    runtime.files.heal()
    async with Broker(runtime, broker_config(listen_port=10921)) as again:
        offset = again.services.offsets.query("cg", "T", 0)
        assert is_gone(again) is (offset is None)
        assert is_gone(again) or answer.code != ResponseCode.SUCCESS
        made_again = topic_is_gone(again)
        async with BrokerPeer(runtime, again.address) as second:
            await second.create()
            at = (await second.sent()).queue_offset
        assert at == (0 if made_again else 5)


@pytest.mark.behaviour("DU-08")
async def test_table_files_that_are_written_one_by_one_leave_no_offset_of_what_is_gone(
    runtime: SimulatedRuntime,
) -> None:
    broker, peer = await with_offset(runtime)
    await peer.client.close()
    s = broker.services
    s.offsets.drop_topic("T")
    s.topics.delete("T")
    runtime.files.fail("write_atomic", "consumerOffset", times=-1)
    await s.persistence.fold()
    await broker._lifecycle.kill()
    runtime.files.end_process()
    runtime.files.heal()
    async with Broker(runtime, broker_config(listen_port=10921)) as again:
        assert topic_is_gone(again) is (again.services.offsets.query("cg", "T", 0) is None)


@pytest.mark.behaviour("DU-08")
@pytest.mark.parametrize("orbitmq_seed", range(4))
async def test_a_topic_made_again_is_read_from_its_beginning_whenever_the_power_is_lost(
    runtime: SimulatedRuntime, orbitmq_seed: int
) -> None:
    """Power is lost also while the table files are written because of another change."""
    dice = random.Random(orbitmq_seed)
    machine = PowerMachine(runtime.machine("10.0.0.9"))
    machine.disk_delay_s = 0.01
    config = broker_config(broker_ip1="10.0.0.9")
    seen = {True: 0, False: 0}

    async def life() -> None:
        broker = Broker(machine.runtime, config)
        await broker.start()
        s = broker.services
        gone = "T" not in s.topics
        assert not gone or s.offsets.query("cg", "T", 0) is None
        seen[gone] += 1
        s.topics.update(TopicConfig("T", 1, 1))
        await s.persistence.flush(TOPICS)
        s.offsets.commit("cg", "T", 0, 5)
        assert await s.persistence.fold()
        s.topics.update(TopicConfig("other", dice.randrange(1, 9), 1))
        folding = asyncio.ensure_future(s.persistence.fold())
        await machine.runtime.clock.sleep(0.03 * dice.random())
        async with BrokerPeer(runtime, broker.address) as peer:
            await peer.ok(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
        await folding

    for _ in range(20):
        living = machine.begin(life())
        await runtime.clock.sleep(0.02 + 0.06 * dice.random())
        assert not living.done() or not living.exception(), living.exception()
        machine.crash()
    machine.bury()
    assert seen[True]
    assert seen[False]


@pytest.mark.behaviour("DU-08")
async def test_a_deletion_that_was_cut_short_is_done_when_it_is_asked_for_again(
    runtime: SimulatedRuntime,
) -> None:
    """After a kill the queues of a topic that the table lacks may be recovered from the log."""
    broker, peer = await with_offset(runtime)
    for file in ("queuePositions", "checkpoint"):
        runtime.files.fail("pwrite", file, times=-1)
        runtime.files.fail("write_atomic", file, times=-1)
    await peer.call(RequestCode.DELETE_TOPIC_IN_BROKER, b"", topic="T")
    await peer.client.close()
    await broker._lifecycle.kill()
    runtime.files.end_process()
    runtime.files.heal()
    async with Broker(runtime, broker_config(listen_port=10921)) as again:
        assert topic_is_gone(again)
        assert again.services.store.queues.unknown_topics() == ["T"]
        async with BrokerPeer(runtime, again.address) as second:
            await second.ok(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
            await second.create()
            assert again.services.store.max_offset("T", 0) == 0
            assert (await second.sent()).queue_offset == 0


@pytest.mark.behaviour("DU-08")
async def test_a_slave_is_told_of_the_offsets_before_what_is_gone(broker: Broker, peer: BrokerPeer) -> None:
    """A slave that is killed between the two changes keeps no offset of a topic or group that it lacks."""
    await peer.create()
    s = broker.services
    for group in ("cg", "other"):
        s.groups.find(group)
        s.offsets.commit(group, "T", 0, 5)
    told: list[str] = []
    s.feed.subscribe(lambda table, _key, _value: told.append(table))
    await peer.ok(RequestCode.DELETE_SUBSCRIPTIONGROUP, b"", groupName="cg", cleanOffset="true")
    await peer.ok(RequestCode.DELETE_TOPIC_IN_BROKER, b"", topic="T")
    assert [table for table in told if table in (OFFSETS, GROUPS, TOPICS)] == [
        OFFSETS,
        GROUPS,
        OFFSETS,
        TOPICS,
    ]
