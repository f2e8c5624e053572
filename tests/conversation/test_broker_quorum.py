"""Senders that wait for replicas: a real broker and scripted acknowledgements, in fast path and handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.durability import TICK_SECONDS
from orbitmq.broker.extension import Attachment, Host
from orbitmq.broker.role import Role
from orbitmq.replication.gate import ReplicaGate, rule_of
from orbitmq.replication.replicas import Replicas
from orbitmq.testing import SimulatedLoop
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

FLUSH_MODES = ("SYNC_FLUSH", "ASYNC_FLUSH")
OK, SLAVE_LATE, NO_SLAVE, DISK_LATE = 0, 12, 11, 10


class Slave:
    """A slave as the master's HA port presents it: connections and reports."""

    def __init__(self, world: World, name: str = "slave") -> None:
        self._world = world
        self.name = name
        self.frozen = False

    def connect(self) -> None:
        self._world.replicas.connected(self.name, self.name, self._world.now())

    def report(self, upto: int | None = None) -> None:
        end = self._world.end if upto is None else upto
        self._world.replicas.reported(self.name, end, end, self._world.now())

    def leave(self) -> None:
        self._world.replicas.gone(self.name, self._world.now())

    async def follow(self, every_s: float = 0.01) -> None:
        """Acknowledge all writes as long as the slave is not frozen."""
        last = -1
        while True:
            await asyncio.sleep(every_s)
            if not self.frozen and self._world.end != last:
                last = self._world.end
                self.report(last)


class World:
    """A broker with a producer, whose slaves' acknowledgements the test makes."""

    def __init__(self, runtime: SimulatedRuntime, **settings: Any) -> None:
        self._runtime = runtime
        values: dict[str, Any] = {"broker_role": "SYNC_MASTER", "in_sync_replicas": 2}
        self.broker = Broker(runtime, broker_config(**{**values, **settings}), extensions=[self._attach])
        self.peer = BrokerPeer(runtime)
        self.slave = Slave(self)
        self._tasks: list[asyncio.Task[None]] = []
        self.gate: ReplicaGate

    def _attach(self, host: Host) -> Attachment:
        s = host.services
        self.replicas = Replicas(
            rule_of(s.config), lambda: s.store.max_commit_log_offset, changed=lambda: self.gate.moved()
        )
        self.gate = ReplicaGate(s.runtime.clock, s.config, s.events, s.store, s.durability, self.replicas)
        return Attachment(components=[self.gate], status=self.gate.status)

    async def __aenter__(self) -> World:
        await self.broker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.peer.client.close()
        await self.broker.stop()

    @property
    def end(self) -> int:
        return self.broker.services.store.max_commit_log_offset

    def now(self) -> float:
        return self._runtime.clock.monotonic()

    def following_slave(self) -> Slave:
        """A slave that is in sync and stays in sync."""
        self.slave.connect()
        self.slave.report()
        self._tasks.append(asyncio.ensure_future(self.slave.follow()))
        return self.slave

    async def warm(self) -> None:
        """Create the topic and let it reach the disk, so that the fast path takes further sends."""
        await self.peer.sent(b"first")
        await asyncio.sleep(1)

    async def send(self, body: bytes = b"x", **values: Any) -> tuple[int, float]:
        """Send a message; returns the response code and the seconds that it took."""
        start = self.now()
        answer = await self.peer.send(body, **values)
        return int(answer.code), self.now() - start

    async def timer(self) -> Callable[[], Awaitable[Command]]:
        """Send a message with a timer of a minute; returns a function that recalls it."""
        sent = await self.peer.sent(b"later", properties={"TIMER_DELAY_MS": "60000", "UNIQ_KEY": "K"})
        handle = sent.recall_handle or ""
        return lambda: self.peer.call(RequestCode.RECALL_MESSAGE, topic="T", recallHandle=handle)

    def stored(self) -> int:
        return self.broker.services.store.max_offset("T", 0)


def made(request: pytest.FixtureRequest, loop: SimulatedLoop, runtime: SimulatedRuntime) -> World:
    mark = request.node.get_closest_marker("broker")
    return loop.enter(World(runtime, **(mark.kwargs if mark else {})))


@pytest.fixture
def entered(
    request: pytest.FixtureRequest, orbitmq_loop: SimulatedLoop, orbitmq_runtime: SimulatedRuntime
) -> World:
    """A SYNC_MASTER that needs one slave, or a broker with the settings in ``pytest.mark.broker``."""
    return made(request, orbitmq_loop, orbitmq_runtime)


@pytest.fixture(params=["fast path", "handlers"])
def quorum(
    request: pytest.FixtureRequest, orbitmq_loop: SimulatedLoop, orbitmq_runtime: SimulatedRuntime
) -> World:
    """Like ``entered``, once with the fast path and once with the handlers only."""
    world = made(request, orbitmq_loop, orbitmq_runtime)
    if request.param == "handlers":
        world.broker.doors.fast_path = None
    return world


@pytest.mark.behaviour("QW-02", "QW-10")
@pytest.mark.parametrize(
    "mode",
    [pytest.param(mode, marks=pytest.mark.broker(flush_disk_type=mode)) for mode in FLUSH_MODES],
)
async def test_an_answer_leaves_when_the_slave_has_the_message(quorum: World, mode: str) -> None:
    world = quorum
    slave = world.following_slave()
    await world.warm()
    slave.frozen = True
    sending = asyncio.ensure_future(world.send())
    await asyncio.sleep(0.5)
    assert not sending.done()
    assert world.stored() == 2
    assert world.broker.config.flush_disk_type == mode
    before, slave.frozen = world.end, False
    slave.report(before - 1)
    await asyncio.sleep(0)
    assert not sending.done()
    slave.report(before)
    code, took = await sending
    assert code == OK
    assert 0.5 <= took < 0.51


@pytest.mark.behaviour("QW-01")
async def test_a_message_that_does_not_wait_is_answered_at_once(quorum: World) -> None:
    world = quorum
    slave = world.following_slave()
    await world.warm()
    slave.frozen = True
    assert await world.send(properties={"WAIT": "false"}) == (OK, pytest.approx(0, abs=0.01))
    await asyncio.sleep(2)  # no sender has waited, so the master has not looked at the silent slave yet
    assert await world.send(properties={"WAIT": "false"}) == (OK, pytest.approx(0, abs=0.01))


@pytest.mark.broker(broker_role="ASYNC_MASTER")
@pytest.mark.behaviour("QW-01")
async def test_an_asynchronous_master_waits_for_nobody(quorum: World) -> None:
    world = quorum
    await world.warm()
    assert await world.send() == (OK, pytest.approx(0, abs=0.01))


@pytest.mark.broker(in_sync_replicas=1)
@pytest.mark.behaviour("QW-08", "QW-11")
async def test_a_synchronous_master_that_needs_one_broker_waits_for_nobody(
    quorum: World,
) -> None:
    world = quorum
    await world.warm()
    assert await world.send() == (OK, pytest.approx(0, abs=0.01))


@pytest.mark.behaviour("QW-05", "QW-07")
async def test_too_few_in_sync_are_refused_before_anything_is_written(quorum: World) -> None:
    world = quorum
    slave = world.following_slave()
    await world.warm()
    slave.frozen = True
    slave.leave()
    end = world.end
    answer = await world.peer.send()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "in-sync replicas not enough: 1 in sync, this broker included, 2 needed"
    assert (world.end, world.stored()) == (end, 1)
    # A message that does not wait for slaves is accepted.
    assert (await world.send(properties={"WAIT": "false"}))[0] == OK
    slave.connect()
    slave.report()
    slave.frozen = False
    assert (await world.send())[0] == OK


@pytest.mark.behaviour("QW-10")
async def test_a_strict_master_with_a_frozen_slave_says_12_and_keeps_the_message(
    quorum: World,
) -> None:
    world = quorum
    slave = world.following_slave()
    await world.warm()
    slave.frozen = True
    code, took = await world.send()
    assert code == SLAVE_LATE
    assert 3.0 <= took <= 3.0 + TICK_SECONDS + 0.01
    assert world.stored() == 2
    # The slave is known to be silent when the wait ends, so the next message is refused at once.
    assert await world.send() == (ResponseCode.SYSTEM_ERROR, pytest.approx(0, abs=0.01))
    slave.frozen = False
    await asyncio.sleep(0.1)
    assert (await world.send())[0] == OK


@pytest.mark.behaviour("QW-15")
async def test_a_sender_is_told_that_its_message_is_not_even_in_the_log(
    quorum: World, runtime: SimulatedRuntime
) -> None:
    """The master steps down while its disk refuses a message of the fast path and one beside it."""
    world = quorum
    world.following_slave()
    await world.warm()
    runtime.files.fail("pwrite", "commitlog", times=-1)
    sending = [asyncio.ensure_future(world.peer.send(b"x", **each)) for each in ({}, {"queue_id": -1})]
    await asyncio.sleep(0.5)
    await world.gate.stop()
    for answer in await asyncio.gather(*sending):
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "could not be written" in (answer.remark or "")


@pytest.mark.broker(recall_message_enable=True)
@pytest.mark.behaviour("TW-11")
async def test_a_recall_that_no_slave_has_is_not_answered_with_success(quorum: World) -> None:
    """Such a recall may be lost: a slave that takes over would deliver the message."""
    world = quorum
    slave = world.following_slave()
    await world.warm()
    recall = await world.timer()
    slave.frozen = True
    answer = await recall()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "FLUSH_SLAVE_TIMEOUT" in (answer.remark or "")


@pytest.mark.broker(recall_message_enable=True)
@pytest.mark.behaviour("TW-11")
async def test_a_recall_is_refused_as_a_send_is_while_too_few_are_in_sync(quorum: World) -> None:
    """Seed 10033: a recall that only one broker had was lost with that broker's disk."""
    world = quorum
    slave = world.following_slave()
    await world.warm()
    recall = await world.timer()
    slave.frozen = True
    slave.leave()
    end = world.end
    answer = await recall()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "in-sync replicas not enough" in (answer.remark or "")
    assert world.end == end


@pytest.mark.broker(recall_message_enable=True)
@pytest.mark.behaviour("TW-11")
async def test_a_recall_is_not_answered_with_success_when_another_may_have_led(quorum: World) -> None:
    world = quorum
    slave = world.following_slave()
    await world.warm()
    recall = await world.timer()
    slave.frozen = True
    calling = asyncio.ensure_future(recall())
    await asyncio.sleep(0.5)
    world.broker.services.role.may_lead = lambda: False
    slave.frozen = False
    answer = await calling
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "another broker may have delivered" in (answer.remark or "")


@pytest.mark.broker(enable_auto_in_sync_replicas=True)
@pytest.mark.behaviour("QW-06")
async def test_a_degrading_master_lets_out_who_waits_for_a_slave_that_is_killed(
    quorum: World,
) -> None:
    world = quorum
    slave = world.following_slave()
    await world.warm()
    slave.frozen = True
    sending = [asyncio.ensure_future(world.send()) for _ in range(5)]
    await asyncio.sleep(0.2)
    slave.leave()
    assert [code for code, _ in await asyncio.gather(*sending)] == [OK] * 5
    assert await world.send() == (OK, pytest.approx(0, abs=0.01))


@pytest.mark.broker(enable_auto_in_sync_replicas=True)
@pytest.mark.behaviour("QW-06", "QW-13")
async def test_a_degrading_master_waits_a_second_for_a_slave_that_froze(
    quorum: World,
) -> None:
    world = quorum
    slave = world.following_slave()
    await world.warm()
    slave.frozen = True
    code, took = await world.send()
    assert code == OK
    assert 1.0 <= took <= 1.0 + 2 * TICK_SECONDS
    assert await world.send() == (OK, pytest.approx(0, abs=0.01))
    slave.frozen = False
    await asyncio.sleep(0.02)
    slave.frozen = True
    sending = asyncio.ensure_future(world.send())
    await asyncio.sleep(0.5)
    assert not sending.done()  # a slave counts again as soon as it reports
    slave.frozen = False
    assert (await sending)[0] == OK


@pytest.mark.broker(enable_auto_in_sync_replicas=True)
@pytest.mark.behaviour("QW-06")
async def test_a_degrading_master_without_any_slave_takes_messages(quorum: World) -> None:
    world = quorum
    await world.warm()
    assert await world.send() == (OK, pytest.approx(0, abs=0.01))


@pytest.mark.broker(enable_auto_in_sync_replicas=True, min_in_sync_replicas=2)
@pytest.mark.behaviour("QW-06")
async def test_the_least_number_holds_though_the_master_degrades(quorum: World) -> None:
    world = quorum
    answer = await world.peer.send()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "1 in sync, this broker included, 2 needed" in (answer.remark or "")


@pytest.mark.broker(in_sync_replicas=1, all_ack_in_sync_state_set=True)
@pytest.mark.behaviour("QW-12")
async def test_all_in_sync_are_waited_for(quorum: World) -> None:
    world = quorum
    world.following_slave()
    other = Slave(world, "other")
    other.connect()
    other.report()
    sending = asyncio.ensure_future(world.send())
    await asyncio.sleep(0.5)
    assert not sending.done()
    other.report()
    assert (await sending)[0] == OK


@pytest.mark.broker(sync_master_rule="4.x", in_sync_replicas=1)
@pytest.mark.behaviour("QW-09")
async def test_a_master_by_the_rule_of_4x(quorum: World) -> None:
    world = quorum
    assert await world.send() == (NO_SLAVE, pytest.approx(0, abs=0.01))
    assert world.stored() == 1
    await asyncio.sleep(1)
    assert await world.send() == (NO_SLAVE, pytest.approx(0, abs=0.01))
    slave = world.following_slave()
    assert (await world.send())[0] == OK
    slave.frozen = True
    world.broker.config.ha_slave_silence_ms = 600_000
    await world.peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"haSlaveSilenceMillis=600000")
    code, took = await world.send()
    assert code == SLAVE_LATE
    assert 5.0 <= took <= 5.0 + TICK_SECONDS + 0.01


@pytest.mark.broker(in_sync_replicas=1)
async def test_the_settings_are_followed_while_the_broker_runs(quorum: World) -> None:
    world = quorum
    await world.warm()
    assert (await world.send())[0] == OK
    await world.peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"inSyncReplicas=2")
    assert (await world.send())[0] == ResponseCode.SYSTEM_ERROR
    await world.peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"enableAutoInSyncReplicas=true")
    assert (await world.send())[0] == OK
    slave = world.following_slave()
    slave.frozen = True
    await world.peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"slaveTimeout=200")
    code, took = await world.send()
    assert code == SLAVE_LATE
    assert 0.2 <= took <= 0.2 + TICK_SECONDS + 0.01
    waiting = asyncio.ensure_future(world.send())
    await asyncio.sleep(0.1)
    await world.peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"inSyncReplicas=1")
    assert (await waiting)[0] == OK
    assert (await world.send())[0] == OK


async def test_a_master_that_loses_its_role_answers_who_waits(quorum: World) -> None:
    world = quorum
    slave = world.following_slave()
    await world.warm()
    slave.frozen = True
    sending = asyncio.ensure_future(world.send())
    await asyncio.sleep(0.1)
    await world.broker.change_role(Role.SLAVE)
    code, took = await sending
    assert code == SLAVE_LATE
    assert took <= 0.7


async def test_a_clean_stop_waits_for_the_last_acknowledgements(quorum: World) -> None:
    world = quorum
    slave = world.following_slave()
    await world.warm()
    slave.frozen = True
    sending = asyncio.ensure_future(world.send())
    await asyncio.sleep(0.1)
    stopping = asyncio.ensure_future(world.broker.stop())
    await asyncio.sleep(0.1)
    slave.report()
    assert (await sending)[0] == OK
    await stopping


async def test_the_state_is_shown(entered: World) -> None:
    world = entered
    world.following_slave()
    await world.warm()
    table = (await world.peer.ok(RequestCode.GET_BROKER_RUNTIME_INFO)).body.decode()
    assert '"inSyncReplicaNums":"2"' in table
    assert '"needAckReplicaNums":"2"' in table
    assert f'"replicatedOffset":"{world.end}"' in table


@pytest.mark.broker(enable_auto_in_sync_replicas=False)
@pytest.mark.behaviour("QW-10")
async def test_answers_of_the_fast_path_have_a_deadline(entered: World) -> None:
    """Many responses wait on one connection in the order of the log; each of them has a deadline."""
    world = entered
    slave = world.following_slave()
    await world.warm()
    fast = world.broker.services.counters.fast_in
    slave.frozen = True
    first = [asyncio.ensure_future(world.send(b"%d" % number)) for number in range(40)]
    await asyncio.sleep(0.5)
    later = [asyncio.ensure_future(world.send(b"%d" % number)) for number in range(40)]
    answers = await asyncio.gather(*first, *later)
    assert world.broker.services.counters.fast_in == fast + 80
    assert {code for code, _ in answers} == {SLAVE_LATE}
    assert all(3.0 <= took <= 3.0 + TICK_SECONDS + 0.01 for _, took in answers)
    assert len(world.broker.services.durability) == 0


@pytest.mark.broker(slave_timeout_ms=3000, sync_flush_timeout_ms=3000, ha_slave_silence_ms=60_000)
async def test_a_slow_disk_and_a_slow_slave_replicas_win(
    entered: World, orbitmq_runtime: SimulatedRuntime
) -> None:
    world = entered
    slave = world.following_slave()
    await world.warm()
    sync = orbitmq_runtime.threads.sync

    def hang(segments: Any, done: Any) -> None:
        sync(segments, lambda error: asyncio.get_running_loop().call_later(30, done, error))

    orbitmq_runtime.threads.sync = hang  # type: ignore[method-assign]
    assert (await world.send())[0] == DISK_LATE
    slave.frozen = True
    assert (await world.send())[0] == SLAVE_LATE
    orbitmq_runtime.threads.sync = sync  # type: ignore[method-assign]
    await asyncio.sleep(60)


async def test_a_message_sent_back_waits_for_the_slave_too(entered: World) -> None:
    world = entered
    world.following_slave()
    await world.warm()
    sent = await world.peer.sent(b"again")
    physical = int((sent.msg_id or "")[16:], 16)
    await world.peer.ok(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"cg"}')

    async def send_back() -> Command:
        return await world.peer.call(
            RequestCode.CONSUMER_SEND_MSG_BACK, offset=physical, group="cg", delayLevel=3, originTopic="T"
        )

    assert (await send_back()).code == OK
    world.slave.leave()
    world.slave.frozen = True
    answer = await send_back()
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "in-sync replicas not enough" in (answer.remark or "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("brokerRole=SYNC_MASTER", "inSyncReplicas=1 waits for no slave"),
        ("inSyncReplicas=2", "only a SYNC_MASTER waits for slaves"),
        ("brokerRole=SYNC_MASTER\ninSyncReplicas=2\nminInSyncReplicas=2", "no effect without"),
        ("brokerRole=SYNC_MASTER\ninSyncReplicas=3\ntotalReplicas=2", "can never be in sync"),
        ("haHousekeepingInterval=9000", "one heartbeat that is late closes a link"),
        ("enableSlaveActingMaster=true\ntotalReplicas=2", "without slaveReadEnable=true"),
        ("enableSlaveActingMaster=true\nslaveReadEnable=true", "totalReplicas=1"),
    ],
)
def test_settings_that_cannot_do_what_they_say_are_named(text: str, says: str) -> None:
    _, warnings = BrokerConfig.load(text)
    assert [warning for warning in warnings if says in warning], warnings


def test_settings_that_do_what_they_say_are_not() -> None:
    for text in (
        "",
        "brokerRole=SLAVE\nbrokerId=1\ninSyncReplicas=2",
        "brokerRole=SYNC_MASTER\nsyncMasterRule=4.x",
        "brokerRole=SYNC_MASTER\ninSyncReplicas=2\ntotalReplicas=2\nenableAutoInSyncReplicas=true",
        "enableSlaveActingMaster=true\nslaveReadEnable=true\ntotalReplicas=2",
    ):
        _, warnings = BrokerConfig.load(text)
        assert [warning for warning in warnings if "does not copy messages" not in warning] == []
