"""Delayed messages: commands and responses, in virtual time."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config, records

from orbitmq.broker.broker import Broker
from orbitmq.broker.delay.progress import LevelProgress
from orbitmq.broker.delay.service import ScheduleService
from orbitmq.errors import StartError
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.message.record import Record
from orbitmq.store import NewMessage
from orbitmq.testing import Keep, SimulatedLoop
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.testing.machines import PowerMachine
from orbitmq.wire.headers.send import SendMessageResponse

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
LEVELS_S = [1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200]


class Peer(BrokerPeer):
    """A client that sends to queue 1 of topic T, and reads its messages."""

    async def put(
        self, body: bytes, properties: dict[str, str], topic: str = "T", queue_id: int = 1
    ) -> SendMessageResponse:
        return await self.sent(body, topic=topic, queue_id=queue_id, properties=properties)

    async def read(
        self, offset: int, topic: str = "T", queue_id: int = 1, *, wait_ms: int = 0, tags: str = "*"
    ) -> list[Record]:
        answer = await self.pull(
            offset,
            topic=topic,
            queue_id=queue_id,
            sys_flag=6 if wait_ms else 4,
            suspend_timeout_millis=wait_ms,
            subscription=tags,
        )
        return records(answer)


@pytest.fixture
def peer(broker: Broker, orbitmq_loop: SimulatedLoop) -> Peer:
    return orbitmq_loop.enter(Peer(broker.runtime))


@pytest.mark.behaviour("DL-01")
@pytest.mark.behaviour("DL-02")
@pytest.mark.behaviour("DL-04")
@pytest.mark.behaviour("DL-06")
@pytest.mark.behaviour("DL-07")
async def test_each_level_delivers_after_its_delay(broker: Broker, peer: Peer) -> None:
    await peer.put(b"first", {})
    start = peer.now()
    for level in range(18, 0, -1):
        sent = await peer.put(b"%d" % level, {"DELAY": str(level), "TAGS": "a", "k": "v"})
        assert (sent.queue_id, sent.queue_offset) == (1, 0)
        [waiting] = await peer.read(0, SCHEDULE, level - 1)
        properties = decode_properties(waiting.properties)
        assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "1")
    sent_by = peer.now()
    for level, delay_s in enumerate(LEVELS_S, start=1):
        while not (found := await peer.read(level, wait_ms=15_000)):
            pass
        [record] = found
        assert record.body == b"%d" % level
        assert start + delay_s * 1000 <= record.store_timestamp <= sent_by + delay_s * 1000 + 100
        assert (record.flag, record.born_timestamp, record.topic) == (9, 5, "T")
        properties = decode_properties(record.properties)
        assert properties["DELAY"] == str(level)
        assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("T", "1")
        assert (properties["TAGS"], properties["k"]) == ("a", "v")
    assert [record.body for record in await peer.read(1, tags="a")][:2] == [b"1", b"2"]
    await peer.runtime.clock.sleep(0.5)
    assert [broker.part(ScheduleService).progress(level) for level in range(1, 19)] == [1] * 18


@pytest.mark.behaviour("DL-02")
@pytest.mark.broker(message_delay_level="1s 1d")
async def test_a_level_above_the_highest_is_the_highest_and_one_below_one_is_none(peer: Peer) -> None:
    await peer.put(b"far", {"DELAY": "99"})
    [record] = await peer.read(0, SCHEDULE, 1)
    assert decode_properties(record.properties)["DELAY"] == "2"
    await peer.put(b"now", {"DELAY": "0"})
    await peer.put(b"now too", {"DELAY": "-1"})
    assert [record.body for record in await peer.read(0)] == [b"now", b"now too"]


@pytest.mark.broker(message_delay_level=" ".join(["1h"] * 19 + ["3s"]))
async def test_more_levels_than_rocketmq_has_get_their_queues(peer: Peer) -> None:
    await peer.put(b"x", {"DELAY": "20"})
    assert [record.body for record in await peer.read(0, wait_ms=15_000)] == [b"x"]


@pytest.mark.behaviour("DL-03")
async def test_the_queue_entry_holds_the_time_of_delivery_also_after_a_rebuild(
    runtime: SimulatedRuntime,
) -> None:
    peer = Peer(runtime)
    entries = []
    for crash in (False, True):
        broker = Broker(runtime, broker_config())
        await broker.start()
        if not crash:
            await peer.put(b"x", {"DELAY": "5", "TAGS": "a"})
        [record] = await peer.read(0, SCHEDULE, 4)
        entry = broker.services.store.entry(SCHEDULE, 4, 0)
        assert entry is not None
        assert entry[2] == record.store_timestamp + 60_000
        entries.append(entry)
        await broker.stop()
        runtime.files.write_atomic("/store/abort", b"")
        runtime.files.remove_tree("/store/consumequeue")
        runtime.files.remove("/store/checkpoint")
    assert entries[0] == entries[1]
    await peer.client.close()


@pytest.mark.behaviour("DL-05")
async def test_a_delivery_time_beyond_the_delay_is_now(runtime: SimulatedRuntime) -> None:
    peer = Peer(runtime)
    async with Broker(runtime, broker_config(message_delay_level="2h")):
        await peer.put(b"x", {"DELAY": "1"})
    async with Broker(runtime, broker_config(message_delay_level="3s")):
        assert [record.body for record in await peer.read(0, wait_ms=1000)] == [b"x"]
    await peer.client.close()


@pytest.mark.behaviour("DL-05")
@pytest.mark.parametrize("back_s", [0.2, 30, 3600])
async def test_nothing_comes_early_when_the_clock_was_set_back(
    runtime: SimulatedRuntime, back_s: float
) -> None:
    peer = Peer(runtime)
    async with Broker(runtime, broker_config()):
        if back_s <= 30:  # if set back further, waiting messages are delivered at once
            await peer.put(b"before", {"DELAY": "5"})
        await peer.put(b"stored", {})
        runtime.clock.set_wall(-back_s)
        await peer.put(b"after", {"DELAY": "4"})
        start = runtime.clock.monotonic()
        came: dict[bytes, float] = {}
        while runtime.clock.monotonic() - start < 100:
            await runtime.clock.sleep(0.1)
            for record in await peer.read(1):
                came.setdefault(record.body, runtime.clock.monotonic() - start)
        # The delay starts at the store time, unless that is more than a minute in the future.
        assert 30 <= came[b"after"] < 30.5 + (back_s if back_s <= 30 else 0)
        if back_s <= 30:
            assert 60 <= came[b"before"] < 60.5 + back_s
    await peer.client.close()


@pytest.mark.behaviour("DL-05")
@pytest.mark.behaviour("DL-09")
@pytest.mark.parametrize("back_s", [0.4, 30, 3600])
async def test_what_came_while_store_times_stood_still_does_not_come_again_after_a_kill(
    runtime: SimulatedRuntime, back_s: float
) -> None:
    """After the kill the queue is read from the log, whose store times say that the delayed message is not
    due.
    """
    machine = PowerMachine(runtime.machine("10.0.0.1"))
    config = broker_config(broker_ip1="10.0.0.1")
    await Broker(machine.runtime, config).start()
    async with Peer(runtime, "10.0.0.1:10911") as peer:
        await peer.put(b"stored", {})
        machine.skew_ms = round(-1000 * back_s)
        await peer.put(b"delayed", {"DELAY": "1"})
        await runtime.clock.sleep(1.2 + (back_s if back_s <= 30 else 0))
        machine.kill()
        broker = Broker(machine.runtime, config)
        await broker.start()
        await runtime.clock.sleep(100)
        assert [record.body for record in await peer.read(0)] == [b"stored", b"delayed"]
        await broker.stop()


@pytest.mark.behaviour("DL-09")
async def test_progress_survives_a_restart_and_a_message_comes_once(runtime: SimulatedRuntime) -> None:
    peer = Peer(runtime)
    async with Broker(runtime, broker_config()):
        await peer.put(b"one", {"DELAY": "1"})
        await peer.put(b"two", {"DELAY": "2"})
        await runtime.clock.sleep(2)
        assert [record.body for record in await peer.read(0)] == [b"one"]
    table = runtime.files.read_bytes("/store/config/delayOffset.json").decode()
    assert '"offsetTable":{\n\t\t1:1,\n\t\t2:0,' in table
    assert json.loads(table.split('"dataVersion":')[1].split("}")[0] + "}")["counter"] == 1
    async with Broker(runtime, broker_config()):
        await runtime.clock.sleep(10)
        assert [record.body for record in await peer.read(0)] == [b"one", b"two"]
    await peer.client.close()


@pytest.mark.behaviour("DL-09")
async def test_what_was_delivered_before_a_message_was_sent_back_is_none_of_it(
    broker: Broker, peer: Peer
) -> None:
    """Seed 7052: an acting slave passes on the level's offset, not the deliveries that its master made
    before.

    The second copy, which is not due for long, must not count as already delivered because of the first.
    """
    twice = {"DELAY": "3", "UNIQ_KEY": "K"}
    await peer.put(b"same", twice)
    await peer.put(b"other", {"DELAY": "3"})
    await broker.runtime.clock.sleep(12)
    await peer.put(b"same", twice)
    await broker.runtime.clock.sleep(0.2)
    service = broker.part(ScheduleService)
    service.delays.move(3, LevelProgress(1, 1))
    await service._search.run()
    assert service.delays.place(3).offset == 2
    await broker.runtime.clock.sleep(12)
    assert [record.body for record in await peer.read(0)] == [b"same", b"other", b"same"]


@pytest.mark.behaviour("DL-09")
async def test_a_delivery_names_the_message_that_waited(broker: Broker, peer: Peer) -> None:
    """A property of this name in the waiting message, such as a client's own, is replaced."""
    for number in range(2):
        await peer.put(b"%d" % number, {"DELAY": "1", "__DELIVERY_OF": "0 broker-a"})
        [waited] = await peer.read(number, SCHEDULE, 0)
        assert "__DELIVERY_OF" not in decode_properties(waited.properties)
        [came] = await peer.read(number, wait_ms=5000)
        named = decode_properties(came.properties)["__DELIVERY_OF"]
        assert named == f"{waited.physical_offset} {broker.services.config.broker_name}"


@pytest.mark.behaviour("DL-09")
async def test_a_delivery_that_names_nothing_is_no_progress(broker: Broker, peer: Peer) -> None:
    """RocketMQ's broker delivers so: a message beyond its saved progress is delivered twice, and none is left
    out.
    """
    await peer.put(b"one", {"DELAY": "1"})
    await peer.put(b"two", {"DELAY": "1"})
    await broker.runtime.clock.sleep(0.5)
    java = {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "1"}
    message = NewMessage("T", 1, b"one", encode_properties(java), born_timestamp=5)
    broker.services.append.put_many([message])
    await broker.part(ScheduleService)._search.run()
    assert broker.part(ScheduleService).progress(1) == 0
    await broker.runtime.clock.sleep(2)
    assert [record.body for record in await peer.read(0)] == [b"one", b"one", b"two"]


@pytest.mark.behaviour("DL-09")
async def test_progress_beyond_the_queue_is_brought_back(runtime: SimulatedRuntime) -> None:
    peer = Peer(runtime)
    runtime.files.make_dirs("/store/config")
    runtime.files.write_atomic("/store/config/delayOffset.json", b'{"offsetTable":{1:7,99:1}}')
    async with Broker(runtime, broker_config()):
        await peer.put(b"one", {"DELAY": "1"})
        assert [record.body for record in await peer.read(0, wait_ms=5000)] == [b"one"]
    await peer.client.close()


@pytest.mark.behaviour("DL-12")
@pytest.mark.parametrize("keep", [None, Keep.PREFIX])
async def test_levels_that_were_gone_for_a_while_go_on_where_they_were(
    runtime: SimulatedRuntime, keep: Keep | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Level 3 continues at its offset instead of delivering again all its messages in the log."""
    runs = [{}, {"message_delay_level": "1s 5s"}, {}]
    for number, levels in enumerate(runs):
        port = 10911 + number
        broker = Broker(runtime, broker_config(listen_port=port, **levels))
        await broker.start()
        async with Peer(runtime, f"127.0.0.1:{port}") as peer:
            if number == 0:
                for name in (b"one", b"two"):
                    await peer.put(name, {"DELAY": "3"})
                await runtime.clock.sleep(12)
                await peer.put(b"three", {"DELAY": "3"})
            else:
                # This put lets the table be written without level 3.
                await peer.put(b"other", {"DELAY": "1"}, topic="U")
            await runtime.clock.sleep(8 if number else 1)
            found = [record.body for record in await peer.read(0)]
        if number < 2 and keep is not None:
            runtime.files.crash(keep=keep)
        else:
            await broker.stop()
    assert found == [b"one", b"two", b"three"]
    [told] = [text for text in caplog.messages if "messageDelayLevel does not have" in text]
    assert "levels [3] wait" in told


@pytest.mark.behaviour("ES-14")
async def test_what_was_delivered_ahead_is_left_out_and_nothing_that_came_later(
    runtime: SimulatedRuntime,
) -> None:
    """Entries beyond the end of a queue are dropped, since those offsets get other messages."""
    peer = Peer(runtime)
    async with Broker(runtime, broker_config()):
        for number in range(3):
            await peer.put(b"%d" % number, {"DELAY": "3"})
    table = b'{"offsetTable":{3:0},"aheadTable":{"3":[1,3,5]}}'
    runtime.files.write_atomic("/store/config/delayOffset.json", table)
    async with Broker(runtime, broker_config()):
        for number in range(3, 7):
            await peer.put(b"%d" % number, {"DELAY": "3"})
        await runtime.clock.sleep(15)
        assert [record.body for record in await peer.read(0)] == [b"0", b"2", b"3", b"4", b"5", b"6"]
    await peer.client.close()


async def test_power_fails_and_no_delayed_message_is_lost(runtime: SimulatedRuntime) -> None:
    peer = Peer(runtime)
    broker = Broker(runtime, broker_config())
    await broker.start()
    for number in range(20):
        await peer.put(b"%d" % number, {"DELAY": "1"})
        await runtime.clock.sleep(0.05)
    await runtime.clock.sleep(0.4)
    runtime.files.crash()
    await peer.client.close()
    # The first broker's machine is off: nothing that the broker still does reaches the disk.
    peer = Peer(runtime, "127.0.0.1:10921")
    async with Broker(runtime, broker_config(listen_port=10921)):
        await runtime.clock.sleep(5)
        got = {record.body for record in await peer.read(0)}
        assert got == {b"%d" % number for number in range(20)}
    await peer.client.close()


@pytest.mark.behaviour("DU-05")
async def test_a_start_that_fails_after_a_crash_leaves_the_crash_to_the_next_one(
    runtime: SimulatedRuntime,
) -> None:
    """A failed start must not mark the stop as clean, or the next one does not search the log for
    deliveries.
    """
    peer = Peer(runtime)
    broker = Broker(runtime, broker_config(flush_disk_type="SYNC_FLUSH"))
    await broker.start()
    for number in range(5):
        await peer.put(b"%d" % number, {"DELAY": "1"})
    await runtime.clock.sleep(1.2)
    runtime.files.crash()
    await peer.client.close()
    config = broker_config(listen_port=10921)
    damaged = "/store/config/consumerFilter.json"
    assert not runtime.files.exists(damaged)
    runtime.files.write_atomic(damaged, b"{")
    with pytest.raises(StartError, match="no readable backup"):
        await Broker(runtime, config).start()
    assert runtime.files.exists("/store/abort")
    runtime.files.remove(damaged)
    peer = Peer(runtime, "127.0.0.1:10921")
    async with Broker(runtime, config):
        await runtime.clock.sleep(5)
        assert Counter(record.body for record in await peer.read(0)) == {b"%d" % n: 1 for n in range(5)}
    assert not runtime.files.exists("/store/abort")
    await peer.client.close()


@pytest.mark.behaviour("DL-08")
async def test_a_message_that_cannot_be_delivered_does_not_hold_up_the_others(
    broker: Broker, peer: Peer
) -> None:
    store, levels = broker.services.store, broker.part(ScheduleService).levels
    await peer.put(b"x", {})
    for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "Deleted"):
        waiting = levels.delayed(NewMessage("Elsewhere", 0, b"lost", b""), {"DELAY": "1"})
        waiting.properties = waiting.properties.replace(b"Elsewhere", topic.encode())
        store.put(waiting)
    await peer.put(b"after", {"DELAY": "1"})
    assert [record.body for record in await peer.read(1, wait_ms=5000)] == [b"after"]
    assert await peer.read(0, "RMQ_SYS_TRANS_HALF_TOPIC", 0) == []


@pytest.mark.behaviour("DL-04")
async def test_a_refused_delivery_is_tried_again_every_second(broker: Broker, peer: Peer) -> None:
    await peer.put(b"x", {})
    sent_ms = peer.now()
    await peer.put(b"late", {"DELAY": "1"})
    store = broker.services.store
    store.refuse("no room")
    # The message is due after 1 s; it is refused then, and again after 2 and 3 s.
    await peer.runtime.clock.sleep(3.3)
    assert await peer.read(1) == []
    store.write_gate.accept()
    [record] = await peer.read(1, wait_ms=5000)
    assert record.body == b"late"
    assert 4000 <= record.store_timestamp - sent_ms <= 4050


@pytest.mark.behaviour("DL-10")
async def test_a_slave_delivers_nothing(runtime: SimulatedRuntime) -> None:
    peer = Peer(runtime)
    async with Broker(runtime, broker_config()):
        await peer.put(b"x", {"DELAY": "1"})
    async with Broker(runtime, broker_config(broker_role="SLAVE", broker_id=1)):
        await runtime.clock.sleep(5)
        assert await peer.read(0) == []
    async with Broker(runtime, broker_config()):
        assert len(await peer.read(0, wait_ms=1000)) == 1
    await peer.client.close()


async def test_many_due_at_once_are_delivered_in_order(peer: Peer) -> None:
    for number in range(600):
        await peer.put(b"%d" % number, {"DELAY": "1"}, queue_id=0)
    await peer.runtime.clock.sleep(1.2)
    got: list[bytes] = []
    while page := await peer.read(len(got), queue_id=0):
        got += [record.body for record in page]
    assert got == [b"%d" % number for number in range(600)]
