"""Many histories of one store: puts, write batches, crashes and restarts on a disk that forgets what was not
synced.

Three promises are checked after each restart: what was acknowledged under SYNC_FLUSH is there, byte for byte
and at the offset that was told; what is there was sent, once, without a gap; and index and log agree.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.seeds import seeds

from orbitmq.message.record import iter_records
from orbitmq.store import GetStatus, MessageStore, NewMessage, StoreConfig
from orbitmq.testing.machine.memory_files import Keep, MemorySegment
from orbitmq.testing.machine.simulated import SimulatedRuntime, run, simulated_runtime

pytestmark = pytest.mark.usefixtures("orbitmq_loop")


TOPICS = ("orders", "billing")
QUEUES = 2


def config(**changes: object) -> StoreConfig:
    values: dict[str, object] = {
        "root": "/store",
        "commit_log_file_bytes": 16 * 1024,
        "consume_queue_file_bytes": 20 * 20,
        "batch_bytes": 8 * 1024,
        "tail_entries": 8,
        "index_slots": 50,
        "index_entries": 200,
        "checkpoint_interval_ms": 700,
    }
    values.update(changes)
    return StoreConfig(**values)  # type: ignore[arg-type]


async def open_store(runtime: SimulatedRuntime, settings: StoreConfig) -> MessageStore:
    store = MessageStore(runtime, settings)
    await store.start()
    for topic in TOPICS:
        store.set_topic(topic, read_queues=QUEUES, write_queues=QUEUES, perm=6)
    return store


class History:
    """What was sent and what was promised."""

    def __init__(self) -> None:
        self.sent: dict[tuple[str, int], dict[int, set[bytes]]] = {}
        self.promised: dict[tuple[str, int], dict[int, bytes]] = {}
        self.number = 0

    def body(self, source: random.Random) -> bytes:
        self.number += 1
        return b"%d:" % self.number + source.randbytes(source.randrange(1, 300))

    def note(self, queue: tuple[str, int], offset: int, body: bytes) -> None:
        self.sent.setdefault(queue, {}).setdefault(offset, set()).add(body)


async def put_some(store: MessageStore, history: History, source: random.Random, *, crash: bool) -> None:
    waiting: list[asyncio.Task[None]] = []

    async def promise(queue: tuple[str, int], offset: int, bodies: list[bytes], end: int) -> None:
        await store.stored(end)
        for place, body in enumerate(bodies):
            history.promised.setdefault(queue, {})[offset + place] = body

    for _ in range(source.randrange(1, 60)):
        queue = (source.choice(TOPICS), source.randrange(QUEUES))
        bodies = [history.body(source) for _ in range(source.choice((1, 1, 1, 12)))]
        result = store.put_many([NewMessage(*queue, body, b"TAGS\x01t%d\x02" % len(body)) for body in bodies])
        for place, body in enumerate(bodies):
            history.note(queue, result.queue_offset + place, body)
        waiting.append(asyncio.ensure_future(promise(queue, result.queue_offset, bodies, result.end_offset)))
        if source.random() < 0.3:
            await asyncio.sleep(source.choice((0, 0.001, 0.5)))
    if not crash:
        await asyncio.gather(*waiting)
        return
    await asyncio.sleep(source.choice((0, 0, 0.001, 0.003)))
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def check(store: MessageStore, history: History) -> None:
    for topic in TOPICS:
        for queue_id in range(QUEUES):
            queue = (topic, queue_id)
            offset = 0
            seen: dict[int, bytes] = {}
            while (found := store.get(topic, queue_id, offset, 7)).status is GetStatus.FOUND:
                for record in iter_records(found.body):
                    assert (record.topic, record.queue_id, record.queue_offset) == (*queue, len(seen))
                    assert store.record_at(record.physical_offset) is not None
                    assert record.body in history.sent[queue][record.queue_offset]
                    seen[record.queue_offset] = record.body
                offset = found.next_offset
            assert store.max_offset(topic, queue_id) == len(seen)
            for promised_offset, body in history.promised.get(queue, {}).items():
                assert seen.get(promised_offset) == body
            # What survived is what those offsets mean from now on.
            history.sent[queue] = {place: {body} for place, body in seen.items()}


async def life(seed: int, keep: Keep) -> None:
    source = random.Random(seed)
    runtime = simulated_runtime(seed)
    history = History()
    settings = config()
    for _ in range(5):
        store = await open_store(runtime, settings)
        check(store, history)
        crash = source.random() < 0.7
        await put_some(store, history, source, crash=crash)
        if crash:
            await kill(store)
            runtime.files.crash(keep=keep)
        else:
            await store.stop()
    store = await open_store(runtime, settings)
    check(store, history)
    await store.stop()


async def kill(store: MessageStore) -> None:
    """As far as a process can be killed inside another: nothing of it runs any more."""
    mine = [task for task in asyncio.all_tasks() if task.get_name().startswith("store-")]
    for task in mine:
        task.cancel()
    await asyncio.gather(*mine, return_exceptions=True)


@pytest.mark.parametrize("keep", list(Keep))
def test_promises_survive_crashes(keep: Keep) -> None:
    for seed in seeds(60):
        try:
            run(life(seed, keep), seed=seed)
        except BaseException as error:
            error.add_note(f"seed {seed}, keep {keep}")
            raise


@pytest.mark.parametrize("crash", [False, True])
async def test_lost_consume_queues_are_rebuilt_from_the_log(crash: bool) -> None:
    runtime = simulated_runtime(1)
    history = History()
    source = random.Random(1)
    store = await open_store(runtime, config())
    for _ in range(6):
        await put_some(store, history, source, crash=False)
    if crash:
        await kill(store)
        runtime.files.crash(keep=Keep.ANY)
    else:
        await store.stop()
    runtime.files.remove_tree("/store/consumequeue")
    store = await open_store(runtime, config())
    assert store.recovered is not None
    assert store.recovered.rebuilt
    check(store, history)
    assert sum(len(found) for found in history.promised.values()) > 100
    await put_some(store, history, source, crash=False)
    await store.stop()
    store = await open_store(runtime, config())
    assert not store.recovered.rebuilt
    check(store, history)
    await store.stop()


async def test_a_failed_flush_is_final() -> None:
    runtime = simulated_runtime(1)
    store = await open_store(runtime, config())
    runtime.files.fail("sync", "commitlog")
    result = store.put(NewMessage("orders", 0, b"x", b""))
    with pytest.raises(Exception, match="could not be flushed"):
        await store.stored(result.end_offset)
    assert not store.accepting
    assert "restart the broker" in (store.refusal or "")
    with pytest.raises(Exception, match="takes no messages"):
        store.put(NewMessage("orders", 0, b"y", b""))
    await store.stop()


async def test_a_full_disk_refuses_and_then_goes_on() -> None:
    runtime = simulated_runtime(1)
    settings = config(clean_interval_ms=1000)
    store = await open_store(runtime, settings)
    runtime.files.fail("pwrite", "commitlog", error=28, times=3)
    result = store.put(NewMessage("orders", 0, b"held back", b""))
    waiting = asyncio.ensure_future(store.stored(result.end_offset))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    assert not store.accepting
    assert store.max_offset("orders", 0) == 0
    await asyncio.sleep(4)
    assert store.accepting
    await waiting
    assert store.get("orders", 0, 0, 1).count == 1
    await store.stop()


def fill(store: MessageStore, count: int) -> None:
    for number in range(count):
        store.put(NewMessage("orders", number % QUEUES, b"%d" % number, b""))
    store.write()


def bodies(store: MessageStore) -> list[bytes]:
    told: list[bytes] = []
    for queue_id in range(QUEUES):
        offset = 0
        while (found := store.get("orders", queue_id, offset, 100)).status is GetStatus.FOUND:
            told += [record.body for record in iter_records(found.body)]
            offset = found.next_offset
    return sorted(told)


@pytest.mark.behaviour("DU-01")
@pytest.mark.parametrize("count", [7, 90])  # 90 are more than one file
async def test_what_a_failed_flush_left_in_memory_is_written_again_before_it_counts(count: int) -> None:
    runtime = simulated_runtime(1)
    store = await open_store(runtime, config(commit_log_file_bytes=8 * 1024))
    runtime.files.fail("sync", "commitlog", times=-1)
    fill(store, count)
    await store.flush()
    assert not store.accepting
    await kill(store)
    runtime.files.end_process()
    # The pages are there, and count as clean.
    runtime.files.heal()
    store = await open_store(runtime, config(commit_log_file_bytes=8 * 1024))
    told = bodies(store)
    assert len(told) == count
    assert store.flushed_offset == store.max_commit_log_offset
    await kill(store)
    runtime.files.crash(keep=Keep.NOTHING)
    store = await open_store(runtime, config(commit_log_file_bytes=8 * 1024))
    assert bodies(store) == told
    await store.stop()


@pytest.mark.behaviour("DU-01")
async def test_a_start_that_cannot_bring_the_log_to_the_device_fails() -> None:
    runtime = simulated_runtime(1)
    store = await open_store(runtime, config())
    runtime.files.fail("sync", "commitlog", times=-1)
    fill(store, 7)
    await store.flush()
    await kill(store)
    runtime.files.end_process()
    for operation in ("sync", "pwrite"):
        runtime.files.heal()
        runtime.files.fail(operation, "commitlog")
        with pytest.raises(OSError, match=f"injected into {operation}"):
            await open_store(runtime, config())
    store = await open_store(runtime, config())
    assert len(bodies(store)) == 7
    await store.stop()


@pytest.mark.behaviour("DU-01")
@pytest.mark.parametrize("clean", [True, False])
async def test_only_what_is_behind_the_checkpoint_is_written_again(
    clean: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = simulated_runtime(1)
    store = await open_store(runtime, config())
    fill(store, 40)
    await asyncio.sleep(2)
    safe = store.max_commit_log_offset
    fill(store, 7)
    if clean:
        await store.stop()
    else:
        await kill(store)
        runtime.files.end_process()
    written: list[int] = []
    plain = MemorySegment.pwrite

    def noted(segment: MemorySegment, data: bytes, offset: int) -> None:
        if "commitlog" in segment.path:
            written.append(offset)
        plain(segment, data, offset)

    monkeypatch.setattr(MemorySegment, "pwrite", noted)
    store = await open_store(runtime, config())
    assert written == ([] if clean else [safe])
    assert len(bodies(store)) == 47
    await store.stop()


@pytest.mark.behaviour("DU-02")
async def test_queue_files_of_a_failed_sync_are_written_again() -> None:
    runtime = simulated_runtime(1)
    store = await open_store(runtime, config())
    runtime.files.fail("sync", "consumequeue")
    fill(store, 40)
    told = bodies(store)
    await asyncio.sleep(3)  # the first checkpoint fails, the next one passes
    await kill(store)
    runtime.files.crash(keep=Keep.NOTHING)
    store = await open_store(runtime, config())
    assert store.recovered is not None
    assert store.recovered.records == 0
    assert bodies(store) == told
    await store.stop()
