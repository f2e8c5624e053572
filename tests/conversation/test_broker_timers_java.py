"""Folders with waiting timers that pass between OrbitMQ's broker and Apache's.

The class JavaTimers reads a folder as TimerMessageStore of Apache's broker does.
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Sequence

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config, records

from orbitmq.broker.broker import Broker
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import Record, decode_record
from orbitmq.testing.machine.memory_files import Keep, MemoryFiles
from orbitmq.testing.machine.simulated import SimulatedRuntime

KIB = 1024
LOG_FILE = 256 * KIB
TIMER_FILE = 2000
UNIT = struct.Struct(">iqiqiqiiq")
SLOTS = 7 * 86400
BLANK = struct.unpack(">i", bytes.fromhex("cbd43194"))[0]


class JavaTimers:
    """TimerMessageStore.recover and dequeue, applied to the files of a stopped broker."""

    def __init__(self, files: MemoryFiles) -> None:
        self.files = files
        check = files.read_bytes("/store/config/timercheck")
        self.read_ms, flushed, self.queue_offset, master = struct.unpack_from(">4q", check)
        names = files.list_dir("/store/timerlog")
        self.log = b"".join(files.read_bytes(f"/store/timerlog/{name}") for name in names)
        assert len(self.log) == TIMER_FILE * len(names)
        self.first = int(names[0]) if names else 0
        self.slots: dict[int, int] = {}
        if files.exists("/store/timerwheel"):
            self._wheel(files.read_bytes("/store/timerwheel"))
        last = self._revise(max(0, flushed - TIMER_FILE))
        if last is not None:
            # reviseQueueOffset
            self.queue_offset = min(self.record(last).queue_offset + 1, master)

    def _wheel(self, data: bytes) -> None:
        assert len(data) == SLOTS * 2 * 32
        for place in range(SLOTS * 2):
            time_s, _first, last, number, _ = struct.unpack_from(">qqqii", data, place * 32)
            if number > 0:
                assert time_s % (SLOTS * 2) == place
                self.slots[time_s * 1000] = last

    def _revise(self, begin: int) -> int | None:
        """TimerMessageStore.recoverAndRevise; returns the physical offset of the last unit."""
        last = None
        for start in range(
            max(self.first, begin - begin % TIMER_FILE), self.first + len(self.log), TIMER_FILE
        ):
            for at in range(start, start + TIMER_FILE - UNIT.size + 1, UNIT.size):
                size, _, magic, written, delay, physical, *_ = UNIT.unpack_from(self.log, at - self.first)
                if magic == BLANK:
                    break
                if size != UNIT.size or magic | 15 != 15:
                    return last
                self.slots[(written + delay) // 1000 * 1000] = at
                last = physical
        return last

    def record(self, physical: int) -> Record:
        start = physical - physical % LOG_FILE
        return decode_record(self.files.read_bytes(f"/store/commitlog/{start:020d}"), physical - start)

    def deliveries(self) -> Counter[bytes]:
        """The messages that the broker delivers if it runs long enough."""
        waiting: list[tuple[int, Record]] = []
        for slot, last in sorted(self.slots.items()):
            at = last if slot >= self.read_ms else -1
            while at != -1:
                _, below, magic, written, delay, physical, *_ = UNIT.unpack_from(self.log, at - self.first)
                record = self.record(physical)
                assert written + delay == slot
                assert bool(magic & 4) == (b"TIMER_DEL_UNIQKEY" in record.properties)
                waiting.append((slot, record))
                at = below
        queue = self.files.read_bytes(f"/store/consumequeue/rmq_sys_wheel_timer/0/{0:020d}")
        for offset in range(self.queue_offset, len(queue) // 20):
            physical, size, _ = struct.unpack_from(">qiq", queue, offset * 20)
            if not size:
                break
            waiting.append((-1, self.record(physical)))
        return self._left(waiting)

    def _left(self, waiting: list[tuple[int, Record]]) -> Counter[bytes]:
        """The messages without recalls and recalled ones, which share a slot (5.5 names a recalled one by its
        id alone).
        """
        deleted, found = set(), Counter[bytes]()
        for _, record in waiting:
            properties = decode_properties(record.properties)
            if "TIMER_DEL_UNIQKEY" in properties:
                deleted.add((properties["TIMER_OUT_MS"], properties["TIMER_DEL_UNIQKEY"]))
        for slot, record in waiting:
            properties = decode_properties(record.properties)
            assert slot in (-1, int(properties["TIMER_OUT_MS"]))
            key = properties["UNIQ_KEY"]
            if "TIMER_DEL_UNIQKEY" not in properties and (properties["TIMER_OUT_MS"], key) not in deleted:
                found[record.body] += 1
        return found


class Peer(BrokerPeer):
    """A client that sends timers to topic T, and reads the delivered messages."""

    async def put(self, body: bytes, delay_ms: int) -> str:
        sent = await self.sent(body, properties={"TIMER_DELAY_MS": str(delay_ms), "UNIQ_KEY": body.decode()})
        return sent.recall_handle or ""

    async def delivered(self) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        while page := records(await self.pull(found.total())):
            found.update(record.body for record in page)
        return found


def settings(port: int = 10911) -> dict[str, int | bool]:
    return {"listen_port": port, "mapped_file_size_timer_log": TIMER_FILE, "recall_message_enable": True}


@pytest.mark.behaviour("TW-15")
@pytest.mark.parametrize("keep", [None, Keep.PREFIX, Keep.ANY])
async def test_a_java_broker_delivers_what_ours_has_not(runtime: SimulatedRuntime, keep: Keep | None) -> None:
    broker = Broker(runtime, broker_config(**settings()))
    await broker.start()
    peer = Peer(runtime)
    sent: set[bytes] = set()
    for number in range(150):
        body = b"%d" % number
        handle = await peer.put(body, 100 + number * 37)
        if number % 10:
            sent.add(body)
        elif number > 60:
            await peer.ok(370, topic="T", recallHandle=handle)
        else:
            sent.add(body)
    await runtime.clock.sleep(2.3)
    if keep is None:
        await broker.stop()
    else:
        await runtime.clock.sleep(0.3)
        runtime.files.crash(keep=keep)
    done: Counter[bytes] = Counter()
    if keep is None:
        java = JavaTimers(runtime.files)
        # This start, without timers, only serves to read the delivered messages.
        async with Broker(runtime, broker_config(**settings(), timer_wheel_enable=False)):
            done = await Peer(runtime).delivered()
        assert 40 < done.total() < 120
        assert done + java.deliveries() == Counter(sent)
    else:
        # A broker makes the queues from the log when it opens the folder; here OrbitMQ's does, without
        # timers.
        async with Broker(runtime, broker_config(**settings(10921), timer_wheel_enable=False)):
            done = await Peer(runtime, "127.0.0.1:10921").delivered()
        again = done + JavaTimers(runtime.files).deliveries()
        assert set(again) == sent
        # Progress is kept in whole seconds, so deliveries of the current second are repeated.
        assert sum(count > 1 for count in again.values()) <= 40
    await peer.client.close()


def as_java(files: MemoryFiles) -> None:
    """Change the timer files into those that Apache's broker would have written."""
    for name in files.list_dir("/store/timerlog"):
        path = f"/store/timerlog/{name}"
        data = bytearray(files.read_bytes(path))
        for at in range(0, len(data) - UNIT.size + 1, UNIT.size):
            if data[at : at + 4] == b"\0\0\0\x34":
                data[at + 44 : at + 52] = bytes(8)
        files.write_atomic(path, bytes(data))
    path = "/store/config/timercheck"
    files.write_atomic(path, files.read_bytes(path)[:56] + bytes(4040))
    for name in ("timerProgress.json", "timerProgress.json.bak"):
        files.remove(f"/store/config/{name}")


@pytest.mark.behaviour("TW-15")
@pytest.mark.parametrize("with_topic", [False, True])
async def test_ours_goes_on_with_what_a_java_broker_has_left(
    runtime: SimulatedRuntime, with_topic: bool
) -> None:
    peer = Peer(runtime)
    config = broker_config(**settings(), append_topic_for_timer_delete_key=with_topic)
    async with Broker(runtime, config):
        start = peer.now()
        for number in range(100):
            await peer.put(b"%d" % number, 1000 + number * 100)
        handle = await peer.put(b"recalled", 8000)
        await peer.ok(370, topic="T", recallHandle=handle)
        await runtime.clock.sleep(4.2)
    as_java(runtime.files)
    await peer.client.close()
    async with Broker(runtime, broker_config(**settings(10921))), Peer(runtime, "127.0.0.1:10921") as peer:
        await asyncio.sleep(20)
        found = await peer.delivered()
        assert found == Counter(b"%d" % number for number in range(100))
        for record in records(await peer.pull(60, max_msg_nums=100)):
            due = start + 1000 + int(record.body) * 100
            # A unit of Apache's has only the second of its due time.
            assert due <= record.store_timestamp <= due + 1200


@pytest.mark.behaviour("TW-16")
@pytest.mark.parametrize("what", ["timerlog", "timerwheel", "unit", "check", "all but the log"])
async def test_derived_files_are_made_again(runtime: SimulatedRuntime, what: str) -> None:
    peer = Peer(runtime)
    async with Broker(runtime, broker_config(**settings())):
        for number in range(100):
            await peer.put(b"%d" % number, 1000 + number * 100)
        await runtime.clock.sleep(4.2)
    files = runtime.files
    if what in ("timerlog", "all but the log"):
        files.remove_tree("/store/timerlog")
    if what in ("timerwheel", "all but the log"):
        files.remove("/store/timerwheel")
    if what in ("check", "all but the log"):
        files.remove("/store/config/timercheck")
    if what == "unit":
        path = f"/store/timerlog/{TIMER_FILE:020d}"
        data = bytearray(files.read_bytes(path))
        data[520:540] = bytes(20)
        files.write_atomic(path, bytes(data))
    await peer.client.close()
    async with Broker(runtime, broker_config(**settings(10921))), Peer(runtime, "127.0.0.1:10921") as peer:
        await asyncio.sleep(20)
        assert await peer.delivered() == Counter(b"%d" % number for number in range(100))


async def killed_with(runtime: SimulatedRuntime, deliver_ms: Sequence[int]) -> None:
    """Cut the power of a broker with these waiting messages; the timer log is on the device."""
    broker = Broker(runtime, broker_config(**settings()))
    await broker.start()
    peer = Peer(runtime)
    for number, at in enumerate(deliver_ms):
        properties = {"TIMER_DELIVER_MS": str(at), "UNIQ_KEY": str(number)}
        await peer.sent(b"%d" % number, properties=properties)
    await asyncio.sleep(1)
    runtime.files.crash(keep=Keep.PREFIX)
    await peer.client.close()


@pytest.mark.behaviour("TW-16")
@pytest.mark.parametrize("waiting", [1, 3])
async def test_the_due_time_of_a_torn_unit_is_read_from_its_message(
    runtime: SimulatedRuntime, waiting: int
) -> None:
    """Seed 2940: a unit with zeros at its end looks like one of Apache's, which is due at the end of its
    second.

    The master must not deliver its message at that later time, after an acting slave delivered it on time.
    """
    second = runtime.clock.now_ms() // 1000 * 1000
    due = [second + 10_377 + 2000 * number for number in range(waiting)]
    await killed_with(runtime, due)
    path = f"/store/timerlog/{0:020d}"
    data = bytearray(runtime.files.read_bytes(path))
    end = UNIT.size * waiting
    assert any(data[end - 8 : end])
    data[end - 8 : end] = bytes(8)
    runtime.files.write_atomic(path, bytes(data))
    async with Broker(runtime, broker_config(**settings(10921))), Peer(runtime, "127.0.0.1:10921") as peer:
        await asyncio.sleep(20)
        found = records(await peer.pull())
        assert [record.body for record in found] == [b"%d" % number for number in range(waiting)]
        late = [record.store_timestamp - at for record, at in zip(found, due, strict=True)]
        assert all(0 <= by_ms <= 20 for by_ms in late), late


@pytest.mark.behaviour("TW-15")
async def test_units_of_apache_are_not_taken_for_torn_ones_after_a_crash(runtime: SimulatedRuntime) -> None:
    """Apache's units all have zeros at their end; treating them as torn would read a million timers anew."""
    await killed_with(runtime, [runtime.clock.now_ms() + 60_000 + number for number in range(3)])
    as_java(runtime.files)
    path = f"/store/timerlog/{0:020d}"
    before = runtime.files.read_bytes(path)
    async with Broker(runtime, broker_config(**settings(10921))):
        await asyncio.sleep(1)
        assert runtime.files.read_bytes(path) == before
