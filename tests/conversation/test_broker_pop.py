"""Pop over the wire: popping, acknowledging, waiting, redelivery."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config, records

from orbitmq.broker.broker import Broker
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.message.record import decode_record
from orbitmq.message.tags import tags_code
from orbitmq.store import NewMessage
from orbitmq.testing import Keep, SimulatedRuntime
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire import all_headers as headers
from orbitmq.wire import pop_info
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command


def pop_request(peer: BrokerPeer, **values: Any) -> Command:
    header: dict[str, Any] = {
        "consumer_group": "cg",
        "topic": "T",
        "queue_id": -1,
        "max_msg_nums": 32,
        "invisible_time": 10_000,
        "poll_time": 0,
        "born_time": peer.now(),
        "init_mode": 0,
    }
    return headers.PopMessageRequest(**{**header, **values}).command()


class Popped:
    """A response to a pop: messages with their receipts."""

    def __init__(self, answer: Command) -> None:
        self.code = answer.code
        self.remark = answer.remark
        self.header = headers.PopMessageResponse.from_ext(answer.ext) if answer.ext else None
        self.records = records(answer) if answer.body else []

    @property
    def bodies(self) -> list[bytes]:
        return [record.body for record in self.records]

    def receipt(self, index: int = 0) -> tuple[int, int, str]:
        """Queue id, offset and receipt of a message from the topic itself."""
        assert self.header is not None
        record = self.records[index]
        starts = pop_info.decode_start_offsets(self.header.start_offset_info or "")
        info = pop_info.ExtraInfo(
            starts["0", str(record.queue_id)],
            self.header.pop_time,
            self.header.invisible_time,
            self.header.revive_qid,
            "0",
            "broker-a",
            record.queue_id,
            record.queue_offset,
        )
        return record.queue_id, record.queue_offset, info.encode()


async def pop(peer: BrokerPeer, **values: Any) -> Popped:
    return Popped(await peer.ask(pop_request(peer, **values)))


async def ack(
    peer: BrokerPeer, receipt: tuple[int, int, str], topic: str = "T", group: str = "cg"
) -> Command:
    queue_id, offset, info = receipt
    header = headers.AckMessageRequest(
        consumer_group=group, topic=topic, queue_id=queue_id, extra_info=info, offset=offset
    )
    return await peer.ask(header.command())


async def test_a_popped_message_is_invisible_until_it_is_done(broker: Broker, peer: BrokerPeer) -> None:
    await peer.sent(b"one")
    popped = await pop(peer)
    assert popped.code == ResponseCode.SUCCESS, popped.remark
    assert popped.bodies == [b"one"]
    assert (await pop(peer)).code == ResponseCode.POLLING_TIMEOUT
    answer = await ack(peer, popped.receipt())
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    await asyncio.sleep(30)
    assert (await pop(peer)).code == ResponseCode.POLLING_TIMEOUT


@pytest.mark.behaviour("PE-04")
@pytest.mark.parametrize("invisible_ms", [1000, 10_000, 60_000])
async def test_a_message_not_handled_in_time_comes_again(
    broker: Broker, peer: BrokerPeer, invisible_ms: int
) -> None:
    await peer.sent(b"one")
    first = await pop(peer, invisible_time=invisible_ms)
    while not (again := await pop(peer, poll_time=15_000)).bodies:
        assert again.code == ResponseCode.POLLING_TIMEOUT
    assert again.bodies == [b"one"]
    assert again.header is not None
    assert first.header is not None
    assert invisible_ms <= again.header.pop_time - first.header.pop_time <= invisible_ms + 1000
    record = again.records[0]
    assert record.topic == "T"
    assert record.reconsume_times == 1


@pytest.mark.behaviour("PP-07")
async def test_a_pop_waits_for_messages(broker: Broker, peer: BrokerPeer) -> None:
    await peer.sent(b"zero")
    assert len((await pop(peer)).records) == 1
    waiting = asyncio.ensure_future(pop(peer, poll_time=15_000))
    await asyncio.sleep(3)
    info = await peer.ok(RequestCode.POLLING_INFO, consumerGroup="cg", topic="T", queueId=-1)
    assert info.ext["pollingNum"] == "1"
    await peer.sent(b"one", queue_id=2)
    assert (await waiting).bodies == [b"one"]


async def test_a_batch_of_acknowledgements(broker: Broker, peer: BrokerPeer) -> None:
    for number in range(10):
        await peer.sent(str(number).encode())
    popped = await pop(peer)
    assert popped.header is not None
    batch = bodies.BatchAck(
        consumer_group="cg",
        topic="T",
        retry="0",
        start_offset=0,
        queue_id=0,
        revive_queue_id=popped.header.revive_qid,
        pop_time=popped.header.pop_time,
        invisible_time=popped.header.invisible_time,
        bit_set=bodies.BatchAck.bits(range(9)),
    )
    body = bodies.BatchAckMessageRequestBody(broker_name="broker-a", acks=[batch])
    answer = await peer.call(RequestCode.BATCH_ACK_MESSAGE, body.encode())
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    again = await pop(peer, poll_time=15_000)
    assert again.bodies == [b"9"]


# -- restarts ------------------------------------------------------------------------------------------


class Restarts:
    """A broker that stops and starts again on the same disk, and its client."""

    def __init__(self, runtime: SimulatedRuntime, **settings: Any) -> None:
        self.runtime = runtime
        self.settings = settings

    async def __aenter__(self) -> BrokerPeer:
        self.broker = Broker(self.runtime, broker_config(**self.settings))
        await self.broker.start()
        self.peer = BrokerPeer(self.runtime)
        return self.peer

    async def __aexit__(self, *_: object) -> None:
        await self.peer.leave()
        await self.broker.stop()


def without_own_table(runtime: SimulatedRuntime) -> None:
    """Leave the files that a Java broker would: without OrbitMQ's table of messages in flight and its
    journal.
    """
    folder = "/store/config"
    for name in runtime.files.list_dir(folder):
        if name.startswith(("popInFlight", "tables.journal")):
            runtime.files.remove(f"{folder}/{name}")


@pytest.mark.behaviour("PP-10")
@pytest.mark.parametrize("java_between", [False, True])
async def test_messages_in_flight_outlive_a_clean_stop(
    orbitmq_runtime: SimulatedRuntime, java_between: bool
) -> None:
    """OrbitMQ's own table keeps them exactly; another broker takes over the check points in the
    revive topic.
    """
    world = Restarts(orbitmq_runtime)
    async with world as peer:
        for number in range(5):
            await peer.sent(str(number).encode())
        popped = await pop(peer, invisible_time=30_000)
        assert len(popped.records) == 5
        assert (await ack(peer, popped.receipt(1))).code == ResponseCode.SUCCESS
    if java_between:
        without_own_table(orbitmq_runtime)
    async with world as peer:
        assert (await ack(peer, popped.receipt(3))).code == ResponseCode.SUCCESS
        assert (await pop(peer)).code == ResponseCode.POLLING_TIMEOUT
        again = await pop(peer, poll_time=60_000)
        assert again.header is not None
        assert popped.header is not None
        late_ms = again.header.pop_time - popped.header.pop_time - 30_000
        assert 0 <= late_ms <= (3000 if java_between else 1000)
        bodies = again.bodies
        while len(bodies) < 3:
            bodies += (await pop(peer, poll_time=10_000)).bodies
        assert sorted(bodies) == [b"0", b"2", b"4"]


async def test_a_peer_without_the_table_deals_out_again_and_loses_nothing(
    orbitmq_runtime: SimulatedRuntime,
) -> None:
    """After a power loss a Java broker finds the offset of the first message that is not acknowledged."""
    world = Restarts(orbitmq_runtime)
    peer = await world.__aenter__()
    for number in range(5):
        await peer.sent(str(number).encode())
    popped = await pop(peer, invisible_time=300_000)
    for index in (0, 1, 3):
        assert (await ack(peer, popped.receipt(index))).code == ResponseCode.SUCCESS
    await asyncio.sleep(10)
    await peer.leave()
    await world.broker._lifecycle.kill()
    orbitmq_runtime.files.crash(keep=Keep.NOTHING)
    without_own_table(orbitmq_runtime)
    await world.broker.doors.close()
    offsets = orbitmq_runtime.files.read_bytes("/store/config/consumerOffset.json").decode()
    assert '"T@cg"' in offsets
    assert "0:2" in offsets.replace(" ", "")


async def test_check_points_that_a_java_broker_left_among_its_timers(
    orbitmq_runtime: SimulatedRuntime,
) -> None:
    """The check points arrive when they are due; acknowledgements with their receipts count before that."""
    world = Restarts(orbitmq_runtime)
    async with world as peer:
        for number in range(4):
            await peer.sent(str(number).encode())
        taken_ms = peer.now()
        services = world.broker.services
        revive = f"rmq_sys_REVIVE_LOG_{services.config.broker_cluster_name}"

        def left_by_java(body: bodies.Body, tag: str, deliver_ms: int) -> None:
            properties = {"TAGS": tag, "TIMER_DELIVER_MS": str(deliver_ms)}
            message = NewMessage(
                revive, 3, body.encode(), encode_properties(properties), tags_code=tags_code(tag)
            )
            services.append.put(message, properties)

        point = bodies.PopCheckPoint(
            start_offset=0,
            pop_time=taken_ms,
            invisible_time=20_000,
            num=4,
            topic="T",
            cid="cg",
            queue_offset_diff=[0, 1, 2, 3],
            broker_name="broker-a",
        )
        left_by_java(point, "ck", taken_ms + 19_000)
        done = bodies.AckMsg(
            ack_offset=0, consumer_group="cg", topic="T", pop_time=taken_ms, broker_name="broker-a"
        )
        left_by_java(done, "ack", taken_ms + 20_000)
        services.groups.find("cg")
        services.offsets.commit("cg", "T", 0, 4)
        await asyncio.sleep(2)
    without_own_table(orbitmq_runtime)
    async with world as peer:
        receipt = f"0 {taken_ms} 20000 3 0 broker-a 0 "
        assert (await ack(peer, (0, 1, receipt + "1"))).code == ResponseCode.SUCCESS
        assert (await ack(peer, (0, 1, receipt + "1"))).code == ResponseCode.NO_MESSAGE, "twice"
        changed_ms = peer.now()
        changed = await peer.ask(
            headers.ChangeMessageInvisibletimeRequest(
                consumer_group="cg",
                topic="T",
                queue_id=0,
                extra_info=receipt + "2",
                offset=2,
                invisible_time=40_000,
            ).command()
        )
        assert changed.code == ResponseCode.SUCCESS, changed.remark
        again = await pop(peer, poll_time=50_000, invisible_time=600_000)
        assert again.bodies == [b"3"]
        assert again.header is not None
        assert 20_000 <= again.header.pop_time - taken_ms <= 23_000
        later = await pop(peer, poll_time=50_000, invisible_time=600_000)
        assert later.bodies == [b"2"]
        assert later.header is not None
        assert 40_000 <= later.header.pop_time - changed_ms <= 41_000
        assert (await pop(peer, poll_time=50_000)).code == ResponseCode.POLLING_TIMEOUT


@pytest.mark.behaviour("PE-07")
async def test_a_check_point_as_java_reads_it(orbitmq_runtime: SimulatedRuntime) -> None:
    world = Restarts(orbitmq_runtime)
    async with world as peer:
        for number in range(3):
            await peer.sent(str(number).encode())
        popped = await pop(peer, invisible_time=30_000)
        await ack(peer, popped.receipt(1))
        assert popped.header is not None
        taken_ms, queue_id = popped.header.pop_time, popped.header.revive_qid
    async with world as peer:
        revive = "rmq_sys_REVIVE_LOG_DefaultCluster"
        entry = world.broker.services.store.entry(revive, queue_id, 0)
        assert entry is not None
        stored = world.broker.services.store.record_at(entry[0])
        assert stored is not None
        record = decode_record(stored)
        assert record.body.decode() == (
            f'{{"bm":0,"bn":"broker-a","c":"cg","d":[0,2],"it":30000,"n":2,"pt":{taken_ms},"q":0,'
            f'"reviveTime":{taken_ms + 30_000},"ro":0,"so":0,"t":"T"}}'
        )
        assert decode_properties(record.properties) == {
            "TAGS": "ck",
            "UNIQ_KEY": f"T@0@0@cg@{taken_ms}@broker-a@ck",
            "TIMER_DELIVER_MS": str(taken_ms + 29_000),
        }
