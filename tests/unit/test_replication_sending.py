"""How much of the log a follower gets in one step, near the end and far behind."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.broker.config import BrokerConfig
from orbitmq.replication.link.classic import data_frame_header
from orbitmq.replication.link.sending import (
    FAR_LONGEST_PAUSE_S,
    FAR_PAUSE_S,
    FAR_STEP_BYTES,
    GATHER_S,
    LATE_S,
    STEP_BYTES,
    LogSender,
    Pace,
    Rest,
)
from orbitmq.store import MessageStore, NewMessage, StoreConfig
from orbitmq.testing.machine.simulated import SimulatedRuntime


class Steps(asyncio.Transport):
    """Accepts all writes, and records their times and sizes."""

    def __init__(self, runtime: SimulatedRuntime) -> None:
        super().__init__()
        self._clock = runtime.clock
        self.steps: list[tuple[float, int]] = []
        self.data: list[bytes | bytearray | memoryview[int]] = []

    def write(self, data: bytes | bytearray | memoryview[int]) -> None:
        self.writelines([data])
        self.data.append(data)

    def writelines(self, list_of_data: object) -> None:
        size = sum(len(part) for part in list_of_data)  # type: ignore[attr-defined]
        self.steps.append((self._clock.monotonic(), size))

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0


async def filled(runtime: SimulatedRuntime, size_bytes: int) -> MessageStore:
    config = StoreConfig(root="/s", commit_log_file_bytes=4 << 20, batch_bytes=1 << 20, index=False)
    store = MessageStore(runtime, config)
    await store.start()
    store.set_topic("t", read_queues=1, write_queues=1, perm=6)
    write(store, size_bytes)
    return store


def write(store: MessageStore, size_bytes: int) -> None:
    end = store.end + size_bytes
    while store.end < end:
        store.put(NewMessage("t", 0, bytes(10_000), b"", tags_code=0))
    store.write()


def sender(
    runtime: SimulatedRuntime, store: MessageStore, *, awaited: bool = True, limit: int = 0
) -> tuple[LogSender, Steps]:
    config = BrokerConfig(ha_flow_control_enable=bool(limit), max_ha_transfer_bytes_per_second=limit or 1)
    steps = Steps(runtime)
    pace = Pace(runtime.clock, config)
    log = LogSender(runtime.clock, store, pace, steps, 0, data_frame_header, STEP_BYTES, lambda: awaited)
    return log, steps


async def test_who_is_far_behind_gets_little_with_pauses(orbitmq_runtime: SimulatedRuntime) -> None:
    store = await filled(orbitmq_runtime, 20 << 20)
    log, steps = sender(orbitmq_runtime, store)
    log.pump()
    await orbitmq_runtime.clock.sleep(0.02)
    assert all(size <= FAR_STEP_BYTES + 100 for _, size in steps.steps)
    pauses = [later[0] - earlier[0] for earlier, later in zip(steps.steps, steps.steps[1:], strict=False)]
    assert min(pauses) >= FAR_PAUSE_S * 0.99
    log.pump()
    assert len(steps.steps) == len(pauses) + 1, "what is written meanwhile makes no step of its own"
    await orbitmq_runtime.clock.sleep(1)
    assert log.cursor.behind == 0
    log.stop()
    await store.stop()


async def test_it_comes_nearer_however_much_is_written(orbitmq_runtime: SimulatedRuntime) -> None:
    store = await filled(orbitmq_runtime, 20 << 20)
    log, _ = sender(orbitmq_runtime, store)
    log.pump()
    behind = log.cursor.behind
    for _ in range(60):
        write(store, 1_600_000)  # 400 MB/s
        log.pump()
        await orbitmq_runtime.clock.sleep(FAR_PAUSE_S)
    assert log.cursor.behind < behind - (2 << 20)
    log.stop()
    await store.stop()


async def test_near_the_end_nothing_waits(orbitmq_runtime: SimulatedRuntime) -> None:
    store = await filled(orbitmq_runtime, 3 << 20)
    log, steps = sender(orbitmq_runtime, store)
    log.pump()
    begin = orbitmq_runtime.clock.monotonic()
    while log.cursor.behind:
        await asyncio.sleep(0)
    assert orbitmq_runtime.clock.monotonic() == begin
    assert max(size for _, size in steps.steps) <= STEP_BYTES + 100
    log.stop()
    await store.stop()


@pytest.mark.parametrize("awaited", [False, True])
async def test_what_nobody_waits_for_goes_together(orbitmq_runtime: SimulatedRuntime, awaited: bool) -> None:
    store = await filled(orbitmq_runtime, 20_000)
    log, steps = sender(orbitmq_runtime, store, awaited=awaited)
    await orbitmq_runtime.clock.sleep(1)
    for _ in range(5):
        write(store, 10_000)
        log.pump()
    assert len(steps.steps) == (5 if awaited else 1), "the first goes at once"
    await orbitmq_runtime.clock.sleep(GATHER_S * 2)
    assert len(steps.steps) == (5 if awaited else 2)
    assert log.cursor.behind == 0
    log.stop()
    await store.stop()


def test_a_copy_rests_longer_while_the_loop_is_late_and_shorter_again() -> None:
    rest, now = Rest(), 100.0
    rest.ended(now + 5)
    assert rest.begins(now) == FAR_PAUSE_S, "what is no end of a rest says nothing"
    for _ in range(10):
        now += rest.seconds + LATE_S * 1.1
        rest.ended(now)
        rest.begins(now)
    assert rest.seconds == FAR_LONGEST_PAUSE_S
    for _ in range(100):
        now += rest.seconds + LATE_S * 0.9
        rest.ended(now)
        rest.begins(now)
    assert rest.seconds == FAR_PAUSE_S


async def test_a_batch_is_sent_from_memory_only_while_it_stands_there(
    orbitmq_runtime: SimulatedRuntime,
) -> None:
    store = await filled(orbitmq_runtime, 20_000)

    def part(offset: int) -> tuple[bytes, bytes | None]:
        found = store.raw.part(offset, STEP_BYTES)
        assert found is not None
        written = bytes(found.segment.view()[found.start : found.end])
        return written, None if found.memory is None else bytes(found.memory)

    begin = store.max_commit_log_offset
    write(store, 10_000)
    written, memory = part(begin)
    assert memory == written
    assert part(begin - 1)[1] is None
    store.put(NewMessage("t", 0, b"x", b"", tags_code=0))
    assert part(begin) == (written, None), "the next batch takes its place"
    store.write()
    assert part(begin)[1] is None
    await store.stop()


async def test_what_a_master_sends_in_the_place_of_a_batch_is_not_taken_for_it(
    orbitmq_runtime: SimulatedRuntime,
) -> None:
    store = await filled(orbitmq_runtime, 20_000)
    begin = store.max_commit_log_offset
    write(store, 10_000)
    records = store.raw.data(begin, STEP_BYTES)
    assert records is not None
    of_master = bytes(records)
    await store.truncate(begin)
    store.append_raw(begin, of_master)
    found = store.raw.part(begin, STEP_BYTES)
    assert found is not None
    assert found.end - found.start == len(of_master)
    assert found.memory is None
    await store.stop()


async def test_what_senders_wait_for_goes_from_memory_in_one_step(orbitmq_runtime: SimulatedRuntime) -> None:
    store = await filled(orbitmq_runtime, 100_000)
    log, steps = sender(orbitmq_runtime, store)
    log.pump()
    while log.cursor.behind:
        await asyncio.sleep(0)
    for size_bytes in (10_000, 300_000):
        begin = log.cursor.position
        write(store, size_bytes)
        batch = store.log.in_memory(begin)
        assert batch is not None
        sent = steps.data = []
        log.pump()
        assert bytes(sent[-1]) == data_frame_header(begin, len(batch)) + batch
        assert log.cursor.position == store.max_commit_log_offset
    log.stop()
    await store.stop()


async def test_a_paused_follower_and_one_with_a_limit_get_no_batch_at_once(
    orbitmq_runtime: SimulatedRuntime,
) -> None:
    store = await filled(orbitmq_runtime, 100_000)
    log, steps = sender(orbitmq_runtime, store)
    log.pump()
    while log.cursor.behind:
        await asyncio.sleep(0)
    log.pause()
    count = len(steps.steps)
    write(store, 10_000)
    log.pump()
    assert len(steps.steps) == count
    write(store, 10_000)
    log.resume()
    assert log.cursor.behind == 0, "both batches, the first one from the file"
    log.stop()
    limited, _ = sender(orbitmq_runtime, store, limit=5_000)
    begin = limited.cursor.position = store.max_commit_log_offset
    write(store, 10_000)
    limited.pump()
    assert begin < limited.cursor.position <= begin + 5_000
    limited.stop()
    await store.stop()
