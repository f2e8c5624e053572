"""Timer messages: commands and responses, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config, records

from orbitmq.broker.broker import Broker
from orbitmq.broker.timers.progress import Check
from orbitmq.message.batch import encode_batch
from orbitmq.message.model import Message
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import Record
from orbitmq.testing import Keep, SimulatedLoop
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.wire.bodies.stats import TimerMetricsSerializeWrapper
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers.send import SendMessageResponse
from orbitmq.wire.recall_handle import RecallHandle

TIMERS = "rmq_sys_wheel_timer"
DAY_S = 86_400


class Peer(BrokerPeer):
    """A client that sends to queue 1 of topic T, and reads its messages."""

    async def put(self, body: bytes, **properties: int | str) -> SendMessageResponse:
        texts = {name: str(value) for name, value in properties.items()}
        return await self.sent(body, queue_id=1, properties=texts)

    async def read(
        self, offset: int = 0, *, wait_ms: int = 0, topic: str = "T", queue_id: int = 1
    ) -> list[Record]:
        answer = await self.pull(
            offset,
            topic=topic,
            queue_id=queue_id,
            sys_flag=6 if wait_ms else 4,
            suspend_timeout_millis=wait_ms,
        )
        return records(answer)

    async def bodies(self) -> list[bytes]:
        return [record.body for record in await self.read()]


@pytest.fixture
def peer(broker: Broker, orbitmq_loop: SimulatedLoop) -> Peer:
    return orbitmq_loop.enter(Peer(broker.runtime))


@pytest.mark.behaviour("TW-01")
@pytest.mark.behaviour("TW-05")
@pytest.mark.parametrize(
    ("name", "value", "delay_ms"),
    [
        ("TIMER_DELAY_SEC", 3, 3000),
        ("TIMER_DELAY_MS", 1, 1),
        ("TIMER_DELAY_MS", 2345, 2345),
        ("TIMER_DELAY_SEC", 600, 600_000),
    ],
)
async def test_a_relative_time(peer: Peer, name: str, value: int, delay_ms: int) -> None:
    await peer.put(b"first")
    start = peer.now()
    await peer.put(b"x", **{name: value, "TAGS": "a", "k": "v"})
    sent_by = peer.now()
    await peer.runtime.clock.sleep(delay_ms / 1000 + 5)
    [record] = await peer.read(1)
    assert start + delay_ms <= record.store_timestamp <= sent_by + delay_ms + 20
    assert (record.body, record.flag, record.born_timestamp, record.topic) == (b"x", 9, 5, "T")
    properties = decode_properties(record.properties)
    assert properties["REAL_TOPIC"] == "T"
    assert properties["REAL_QID"] == "1"
    assert (properties["TAGS"], properties["k"]) == ("a", "v")
    assert int(properties["TIMER_OUT_MS"]) < start + delay_ms + 1000
    [waited] = await peer.read(topic=TIMERS, queue_id=0)
    assert properties["__DELIVERY_OF"].partition(" ")[0] == str(waited.physical_offset)


@pytest.mark.behaviour("TW-02")
@pytest.mark.behaviour("TW-03")
async def test_an_absolute_time_and_a_past_one(peer: Peer) -> None:
    at = peer.now() + 61_234
    await peer.put(b"later", TIMER_DELIVER_MS=at)
    for text in (at - 100_000, 0, -5):
        await peer.put(b"now", TIMER_DELIVER_MS=text)
    await peer.put(b"now", TIMER_DELAY_SEC=0)
    assert await peer.bodies() == [b"now"] * 4
    [waiting] = await peer.read(0, topic=TIMERS, queue_id=0)
    properties = decode_properties(waiting.properties)
    assert properties["TIMER_OUT_MS"] == str((at - 1) // 1000 * 1000)
    while not (found := await peer.read(4, wait_ms=15_000)):
        pass
    assert at <= found[0].store_timestamp <= at + 20


@pytest.mark.behaviour("TW-04")
@pytest.mark.parametrize(
    ("properties", "code", "words"),
    [
        ({"TIMER_DELAY_SEC": "soon"}, ResponseCode.MESSAGE_ILLEGAL, ["TIMER_DELAY_SEC=soon", "seconds"]),
        ({"TIMER_DELIVER_MS": "1.5"}, ResponseCode.MESSAGE_ILLEGAL, ["TIMER_DELIVER_MS=1.5"]),
        ({"TIMER_DELAY_MS": ""}, None, []),
        (
            {"TIMER_DELAY_SEC": str(3 * DAY_S + 1)},
            ResponseCode.MESSAGE_ILLEGAL,
            ["timerMaxDelaySec", "259200000ms", "259201000ms"],
        ),
        ({"TIMER_DELIVER_MS": str(1 << 62)}, ResponseCode.MESSAGE_ILLEGAL, ["259200000ms"]),
        (
            {"TIMER_DELAY_SEC": "5", "k": "v" * 32_600},
            ResponseCode.MESSAGE_ILLEGAL,
            ["properties", "32639"],
        ),
    ],
)
async def test_a_time_that_cannot_be(
    peer: Peer, properties: dict[str, str], code: int | None, words: list[str]
) -> None:
    answer = await peer.send(b"x", properties=properties)
    assert answer.code == (code or ResponseCode.SUCCESS)
    for word in words:
        assert word in (answer.remark or "")
    await peer.put(b"others are served on")
    assert b"others are served on" in await peer.bodies()


@pytest.mark.broker(timer_wheel_enable=False)
async def test_without_a_wheel_a_timer_is_refused(peer: Peer) -> None:
    answer = await peer.send(b"x", properties={"TIMER_DELAY_SEC": "5"})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "timerWheelEnable is false" in (answer.remark or "")


@pytest.mark.behaviour("TW-06")
async def test_a_level_wins_over_a_timer(peer: Peer) -> None:
    await peer.put(b"level", DELAY=1, TIMER_DELAY_SEC=3600)
    [found] = await peer.read(wait_ms=15_000)
    assert "TIMER_DELAY_SEC" not in decode_properties(found.properties)


@pytest.mark.behaviour("TW-08")
@pytest.mark.parametrize("keep", [None, *Keep])
async def test_what_waits_survives(runtime: SimulatedRuntime, keep: Keep | None) -> None:
    broker = Broker(runtime, broker_config())
    await broker.start()
    peer = Peer(runtime)
    start = peer.now()
    for at in range(10):
        await peer.put(b"%d" % at, TIMER_DELAY_SEC=600 - at * 60)
    await runtime.clock.sleep(150)
    assert await peer.bodies() == [b"9", b"8"]
    if keep is None:
        await broker.stop()
    else:
        runtime.files.crash(keep=keep)
    await peer.client.close()
    await runtime.clock.sleep(100)
    # The second broker stands for another machine, so the dead one's port stays out of use.
    async with Broker(runtime, broker_config(listen_port=10921)), Peer(runtime, "127.0.0.1:10921") as peer:
        back = peer.now()
        await asyncio.sleep(1)
        assert await peer.bodies() == [b"9", b"8", b"7", b"6"]
        await runtime.clock.sleep(600)
        found = await peer.read()
        assert [record.body for record in found] == [b"%d" % at for at in range(9, -1, -1)]
        for record in found:
            due = start + (600 - int(record.body) * 60) * 1000
            assert due <= record.store_timestamp <= max(due + 100, back + 1000)


@pytest.mark.behaviour("TW-07")
async def test_a_timer_in_a_batch_is_refused(peer: Peer) -> None:
    items = encode_batch([Message("T", b"a"), Message("T", b"b", properties={"TIMER_DELAY_SEC": "5"})])
    answer = await peer.send(items, batch=True)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "TIMER_DELAY_SEC" in (answer.remark or "")


# -- recall ----------------------------------------------------------------------------------------------

RECALL = pytest.mark.broker(recall_message_enable=True)


@RECALL
@pytest.mark.behaviour("TW-09")
@pytest.mark.behaviour("TW-10")
async def test_a_recalled_message_is_not_delivered(peer: Peer) -> None:
    recalled = await peer.put(b"recalled", TIMER_DELAY_SEC=30, UNIQ_KEY="4711")
    await peer.put(b"kept", TIMER_DELAY_SEC=30, UNIQ_KEY="4712")
    assert recalled.recall_handle
    handle = RecallHandle.decode(recalled.recall_handle)
    assert (handle.topic, handle.broker_name, handle.message_id) == ("T", "broker-a", "4711")
    assert (await peer.put(b"plain")).recall_handle is None
    answer = await peer.ok(370, topic="T", recallHandle=recalled.recall_handle, producerGroup="pg")
    assert answer.ext["msgId"] == "4711"
    again = await peer.call(370, topic="T", recallHandle=recalled.recall_handle)
    assert again.code == ResponseCode.ILLEGAL_OPERATION
    assert "recalled already" in (again.remark or "")
    await peer.runtime.clock.sleep(35)
    assert await peer.bodies() == [b"plain", b"kept"]


@pytest.mark.broker(recall_message_enable=True, recall_unknown_messages=True)
@pytest.mark.behaviour("TW-20")
async def test_a_recall_of_no_message_is_a_success_when_the_broker_is_to_be_as_apaches(peer: Peer) -> None:
    sent = await peer.put(b"x", TIMER_DELAY_SEC=30, UNIQ_KEY="4711")
    await peer.put(b"y", TIMER_DELAY_SEC=30, UNIQ_KEY="4713")
    handle = RecallHandle.decode(sent.recall_handle or "")
    for message_id in ("4712", "4711", "4711"):
        answer = await peer.ok(370, topic="T", recallHandle=handle._replace(message_id=message_id).encode())
        assert answer.ext["msgId"] == message_id
    await peer.runtime.clock.sleep(35)
    assert await peer.bodies() == [b"y"]


@RECALL
@pytest.mark.behaviour("TW-11")
async def test_recalls_that_are_refused(peer: Peer) -> None:
    sent = await peer.put(b"x", TIMER_DELAY_SEC=30, UNIQ_KEY="4711")
    soon = await peer.put(b"y", TIMER_DELAY_MS=100)
    assert sent.recall_handle
    assert soon.recall_handle
    await peer.runtime.clock.sleep(2)
    good = RecallHandle.decode(sent.recall_handle)
    far = str(peer.now() + 4 * DAY_S * 1000)
    await peer.sent(b"z", topic="U")
    for topic, handle, code, words in [
        ("T", soon.recall_handle, ResponseCode.ILLEGAL_OPERATION, "timestamp invalid"),
        ("T", good._replace(timestamp=far).encode(), ResponseCode.ILLEGAL_OPERATION, "timestamp invalid"),
        ("T", good._replace(timestamp="soon").encode(), ResponseCode.ILLEGAL_OPERATION, "timestamp invalid"),
        ("T", good._replace(message_id="4712").encode(), ResponseCode.ILLEGAL_OPERATION, "no message 4712"),
        ("T", good._replace(broker_name="b").encode(), ResponseCode.ILLEGAL_OPERATION, "broker"),
        ("T", "nonsense", ResponseCode.ILLEGAL_OPERATION, "recallHandle"),
        ("U", sent.recall_handle, ResponseCode.ILLEGAL_OPERATION, "topic not match"),
        ("V", sent.recall_handle, ResponseCode.TOPIC_NOT_EXIST, "not exist"),
    ]:
        answer = await peer.call(370, topic=topic, recallHandle=handle)
        assert (answer.code, words in (answer.remark or "")) == (code, True), answer.remark
    await peer.runtime.clock.sleep(35)
    assert b"x" in await peer.bodies()


@pytest.mark.behaviour("TW-11")
async def test_a_broker_that_does_not_recall_says_which_setting_does(peer: Peer) -> None:
    sent = await peer.put(b"x", TIMER_DELAY_SEC=30)
    answer = await peer.call(370, topic="T", recallHandle=sent.recall_handle or "")
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "recallMessageEnable" in (answer.remark or "")


@pytest.mark.behaviour("TW-17")
@pytest.mark.broker(timer_roll_window_slots=60, recall_message_enable=True)
async def test_a_long_wait_is_cut_and_a_recall_finds_its_message(peer: Peer) -> None:
    await peer.put(b"first")
    start = peer.now()
    recalled = []
    for number in range(6):
        sent = await peer.put(b"%d" % number, TIMER_DELAY_SEC=200 + number, UNIQ_KEY=f"id{number}")
        recalled.append(sent.recall_handle or "")
    await peer.ok(370, topic="T", recallHandle=recalled[1])
    await peer.runtime.clock.sleep(100)
    await peer.ok(370, topic="T", recallHandle=recalled[2])
    await peer.runtime.clock.sleep(90)
    await peer.ok(370, topic="T", recallHandle=recalled[3])
    await peer.runtime.clock.sleep(20)
    found = (await peer.read())[1:]
    assert [record.body for record in found] == [b"0", b"4", b"5"]
    for record in found:
        late = record.store_timestamp - start - 200_000 - int(record.body) * 1000
        # A message that was stored again keeps only the second of its time.
        assert 0 <= late <= 1100
        assert int(decode_properties(record.properties)["TIMER_ROLL_TIMES"]) >= 2


@pytest.mark.behaviour("TW-13")
@pytest.mark.parametrize("wait_ms", [10, 60, 300])
async def test_a_long_wait_that_was_cut_just_before_a_crash_comes_once(
    runtime: SimulatedRuntime, wait_ms: int
) -> None:
    """The message is stored again, and the progress on the disk does not show that yet."""
    config = broker_config(timer_roll_window_slots=60)
    broker = Broker(runtime, config)
    await broker.start()
    peer = Peer(runtime)
    for number in range(3):
        await peer.put(b"%d" % number, TIMER_DELAY_SEC=200)
    # The progress is written after this message; the next write is 200 ms later.
    await peer.put(b"first", TIMER_DELIVER_MS=peer.now() // 1000 * 1000 + 60_900)
    while broker.services.store.max_offset(TIMERS, 0) < 7:
        await runtime.clock.sleep(0.01)
    await runtime.clock.sleep(wait_ms / 1000)
    runtime.files.crash(keep=Keep.NOTHING)
    await peer.client.close()
    config = replace(config, listen_port=10921)
    async with Broker(runtime, config) as broker, Peer(runtime, "127.0.0.1:10921") as peer:
        await runtime.clock.sleep(220)
        assert await peer.bodies() == [b"first", b"0", b"1", b"2"]
        assert broker.services.store.max_offset(TIMERS, 0) == 4 + 3 * 3


# -- requests of administrators --------------------------------------------------------------------------


@RECALL
@pytest.mark.behaviour("TW-12")
async def test_metrics_and_check_point(peer: Peer) -> None:
    sent = await peer.put(b"a", TIMER_DELAY_SEC=90)
    for _ in range(3):
        await peer.put(b"b", TIMER_DELAY_SEC=200)
    await peer.ok(370, topic="T", recallHandle=sent.recall_handle or "")
    await peer.runtime.clock.sleep(1)
    answer = await peer.ok(61)
    metrics = TimerMetricsSerializeWrapper.decode(answer.body)
    assert {topic: metric.count for topic, metric in metrics.timing_count.items()} == {"T": 3}
    check = Check.decode((await peer.ok(60)).body)
    assert (check.taken, check.master_taken) == (5, 5)
    await peer.runtime.clock.sleep(300)
    assert TimerMetricsSerializeWrapper.decode((await peer.ok(61)).body).timing_count["T"].count == 0
    assert Check.decode((await peer.ok(60)).body).read_ms > peer.now() - 200_000
