"""A second store fed with pieces of the first one's log becomes the same, file for file; bad pieces are
refused."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.seeds import seeds

from orbitmq.message.record import iter_records
from orbitmq.store import GetStatus, MessageStore, NewMessage, RawAppendError, StoreClosedError, StoreConfig
from orbitmq.testing.machine.memory_files import Keep
from orbitmq.testing.machine.simulated import SimulatedRuntime, run, simulated_runtime

pytestmark = pytest.mark.usefixtures("orbitmq_loop")


FILE_BYTES = 8 * 1024
TOPICS = ("orders", "billing", "t" * 200)


def config(root: str, **changes: object) -> StoreConfig:
    values: dict[str, object] = {
        "root": root,
        "commit_log_file_bytes": FILE_BYTES,
        "consume_queue_file_bytes": 20 * 20,
        "batch_bytes": 4 * 1024,
        "tail_entries": 16,
        "index_slots": 50,
        "index_entries": 200,
        "checkpoint_interval_ms": 700,
    }
    values.update(changes)
    return StoreConfig(**values)  # type: ignore[arg-type]


async def opened(runtime: SimulatedRuntime, root: str, **changes: object) -> MessageStore:
    store = MessageStore(runtime, config(root, **changes))
    await store.start()
    return store


def set_topics(store: MessageStore) -> None:
    for topic in TOPICS:
        store.set_topic(topic, read_queues=2, write_queues=2, perm=6)


def fill(store: MessageStore, source: random.Random, count: int) -> None:
    for number in range(count):
        store.put(
            NewMessage(
                source.choice(TOPICS),
                source.randrange(2),
                source.randbytes(source.randrange(200)),
                b"TAGS\x01t%d\x02KEYS\x01k%d\x02" % (number % 5, number),
                tags_code=0,
            )
        )
    store.write()


def log_of(runtime: SimulatedRuntime, root: str) -> bytes:
    folder = f"{root}/commitlog"
    return b"".join(runtime.files.read_bytes(f"{folder}/{name}") for name in runtime.files.list_dir(folder))


def queues_of(runtime: SimulatedRuntime, root: str) -> dict[str, bytes]:
    files = runtime.files
    found = {}
    for topic in files.list_dir(f"{root}/consumequeue"):
        for queue in files.list_dir(f"{root}/consumequeue/{topic}"):
            for name in files.list_dir(f"{root}/consumequeue/{topic}/{queue}"):
                path = f"{topic}/{queue}/{name}"
                found[path] = files.read_bytes(f"{root}/consumequeue/{path}")
    return found


def messages(store: MessageStore) -> dict[tuple[str, int], list[tuple[int, bytes]]]:
    found: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
    for topic in TOPICS:
        for queue_id in range(2):
            offset = store.min_offset(topic, queue_id)
            here = found.setdefault((topic, queue_id), [])
            while (result := store.get(topic, queue_id, offset, 50)).status is GetStatus.FOUND:
                here += [(record.queue_offset, record.body) for record in iter_records(result.body)]
                offset = result.next_offset
    return found


async def found_by_key(store: MessageStore) -> dict[tuple[str, int], list[int]]:
    """What the index names for each key that :func:`fill` gives."""
    assert store.index is not None
    return {
        (topic, number): await store.index.find(topic, f"k{number}", 0, 1 << 62, 1000)
        for topic in TOPICS
        for number in range(60)
    }


def feed(store: MessageStore, log: bytes, end: int, source: random.Random, most: int) -> None:
    while store.received_offset < end:
        at = store.received_offset
        store.append_raw(at, log[at : min(end, at + source.randrange(1, most))])


async def life(seed: int) -> None:
    source = random.Random(seed)
    runtime = simulated_runtime(seed)
    master = await opened(runtime, "/master")
    slave = await opened(runtime, "/slave")
    set_topics(master)
    most = source.choice((9, 100, 3000, 40_000))
    for _ in range(5):
        fill(master, source, source.randrange(60))
        log = log_of(runtime, "/master")
        end = master.max_commit_log_offset
        feed(slave, log, end if source.random() < 0.5 else max(0, end - source.randrange(200)), source, most)
        await asyncio.sleep(source.choice((0, 0.01, 1)))
        if source.random() < 0.5:
            await slave.stop()
            if source.random() < 0.5:
                # As if it had been killed: only what the kernel wrote by itself is lost.
                runtime.files.write_atomic("/slave/abort", b"")
            slave = await opened(runtime, "/slave")
    feed(slave, log_of(runtime, "/master"), master.max_commit_log_offset, source, most)
    set_topics(slave)
    assert messages(slave) == messages(master)
    assert slave.max_commit_log_offset == master.max_commit_log_offset
    assert await found_by_key(slave) == await found_by_key(master)
    await master.stop()
    await slave.stop()
    assert log_of(runtime, "/slave") == log_of(runtime, "/master")
    wanted = queues_of(runtime, "/master")
    found = queues_of(runtime, "/slave")
    assert found.keys() == wanted.keys()
    # The tests' puts keep no tags code, dispatching makes it: compare the places and sizes of the records.
    for path, content in wanted.items():
        for at in range(0, len(content), 20):
            assert found[path][at : at + 12] == content[at : at + 12]


def test_a_store_fed_with_pieces_becomes_the_same() -> None:
    for seed in seeds(12):
        try:
            run(life(seed), seed=seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


async def both(seed: int = 1) -> tuple[SimulatedRuntime, MessageStore, MessageStore, bytes]:
    runtime = simulated_runtime(seed)
    master = await opened(runtime, "/master")
    slave = await opened(runtime, "/slave")
    set_topics(master)
    set_topics(slave)
    fill(master, random.Random(seed), 100)
    return runtime, master, slave, log_of(runtime, "/master")


@pytest.mark.parametrize(
    ("at", "change", "words"),
    [
        (0, b"\x7f\xff\xff\xff", "size"),
        (4, b"\x00", "magic"),
        (28, b"\x01", "another place"),
        (8, b"\x12\x34\x56\x78", "checksum"),
        (20, b"\x00\x00\x00\x00\x00\x00\x00\x63", "has offset 99 in queue"),
        (84, b"\x00\x00\x0f\xff", "lengths"),
    ],
)
async def test_a_bad_record_is_refused_and_those_before_it_stay(at: int, change: bytes, words: str) -> None:
    _, master, slave, log = await both()
    entries = sorted(
        entry[0]
        for topic in TOPICS
        for queue in range(2)
        for offset in range(master.max_offset(topic, queue))
        if (entry := master.entry(topic, queue, offset))
    )
    place = next(one for one in entries[10:] if master.record_at(one) is not None)
    bad = bytearray(log)
    bad[place + at : place + at + len(change)] = change
    with pytest.raises(RawAppendError, match=words):
        slave.append_raw(0, bytes(bad[: FILE_BYTES - 100]))
    assert slave.received_offset == slave.max_commit_log_offset == place
    # The right bytes go on there.
    feed(slave, log, master.max_commit_log_offset, random.Random(1), 500)
    assert messages(slave) == messages(master)
    await master.stop()
    await slave.stop()


async def test_a_piece_for_another_place_is_refused() -> None:
    _, master, slave, log = await both()
    with pytest.raises(RawAppendError, match="offset 5 of the log came, expected 0"):
        slave.append_raw(5, log[5:50])
    slave.append_raw(0, log[:50])
    for offset in (0, 49, 51, FILE_BYTES):
        with pytest.raises(RawAppendError, match="expected 50"):
            slave.append_raw(offset, log[offset : offset + 10])
    assert slave.received_offset == 50
    assert slave.max_commit_log_offset == 0
    await master.stop()
    await slave.stop()


async def test_an_empty_log_begins_at_any_file_and_its_queues_begin_late() -> None:
    runtime, master, slave, log = await both()
    slave.append_raw(FILE_BYTES, log[FILE_BYTES : FILE_BYTES + 3000])
    feed(slave, log, master.max_commit_log_offset, random.Random(1), 500)
    assert slave.min_commit_log_offset == FILE_BYTES
    wanted = {
        queue: [
            one for one in found if (e := master.entry(*queue, one[0])) is not None and e[0] >= FILE_BYTES
        ]
        for queue, found in messages(master).items()
    }
    assert messages(slave) == wanted
    await slave.stop()
    slave = await opened(runtime, "/slave")
    set_topics(slave)
    assert messages(slave) == wanted
    await master.stop()
    await slave.stop()


async def test_a_log_that_began_and_got_no_record_begins_again_further_on() -> None:
    """The link was lost within the first record, and the master has deleted that file since."""
    _, master, slave, log = await both()
    slave.append_raw(FILE_BYTES, log[FILE_BYTES : FILE_BYTES + 10])
    slave.drop_partial()
    slave.log.files.add()
    slave.append_raw(2 * FILE_BYTES, log[2 * FILE_BYTES : 2 * FILE_BYTES + 10])
    feed(slave, log, master.max_commit_log_offset, random.Random(1), 500)
    assert slave.min_commit_log_offset == 2 * FILE_BYTES
    assert slave.max_commit_log_offset == master.max_commit_log_offset
    await master.stop()
    await slave.stop()


@pytest.mark.behaviour("HL-10")
@pytest.mark.parametrize("killed", [False, True])
async def test_a_log_that_is_cut_to_its_beginning_takes_another_history(killed: bool) -> None:
    """Seed 15943: its first files had expired, queues were longer than the other broker's."""
    runtime, master, slave, log = await both()
    feed(slave, log, master.max_commit_log_offset, random.Random(1), 500)
    slave.log.files.remove_first()
    slave.queues.drop_below(FILE_BYTES)
    set_topics(slave)
    assert min(slave.min_offset("orders", queue) for queue in range(2)) > 1
    await slave.truncate(FILE_BYTES)
    other = await opened(runtime, "/other")
    set_topics(other)
    for number in range(30):
        other.put(NewMessage("orders", number % 2, bytes(1000), b""))
    other.write()
    if killed:
        runtime.files.end_process("/slave")
        slave = await opened(runtime, "/slave")
        set_topics(slave)
    feed(slave, log_of(runtime, "/other"), other.max_commit_log_offset, random.Random(1), 500)
    for queue in range(2):
        assert slave.max_offset("orders", queue) == 15
        assert slave.max_offset("billing", queue) == 0
    behind = {offset for offset, _ in messages(slave)["orders", 0]}
    assert behind == {offset for offset, _ in messages(other)["orders", 0] if offset >= min(behind)}
    for store in (master, slave, other):
        await store.stop()


async def test_a_queue_that_the_disk_refused_takes_what_comes_once_more() -> None:
    """Records before the one that this was about were in queues, and did not count as being in the log."""
    runtime, master, slave, log = await both()
    end = master.max_commit_log_offset
    runtime.files.fail("pwrite", "/slave/consumequeue")
    with pytest.raises(OSError, match="injected into pwrite"):
        slave.append_raw(0, log[:end])
    slave.drop_partial()
    assert 0 < slave.max_commit_log_offset < end
    feed(slave, log, end, random.Random(1), 3000)
    set_topics(slave)
    assert messages(slave) == messages(master)
    await master.stop()
    await slave.stop()


async def test_a_topic_made_again_begins_anew() -> None:
    runtime, master, slave, _ = await both()
    master.drop_topic("orders")
    set_topics(master)
    fill(master, random.Random(2), 50)
    feed(slave, log_of(runtime, "/master"), master.max_commit_log_offset, random.Random(1), 700)
    assert messages(slave) == messages(master)
    await master.stop()
    await slave.stop()


async def test_what_a_slave_has_of_a_record_is_gone_when_it_puts_its_own() -> None:
    runtime, master, slave, log = await both()
    slave.append_raw(0, log[:1000])
    whole = slave.max_commit_log_offset
    assert whole < 1000
    slave.put(NewMessage("orders", 0, b"mine", b""))
    slave.write()
    written = log_of(runtime, "/slave")
    assert not any(written[slave.max_commit_log_offset :])
    assert slave.received_offset == slave.max_commit_log_offset
    await master.stop()
    await slave.stop()


@pytest.mark.behaviour("DU-06")
async def test_a_power_loss_leaves_only_what_the_master_has() -> None:
    """The checksum is of the body: properties with a hole counted, in records with whole ones behind them."""
    for seed in seeds(40):
        source = random.Random(seed)
        runtime = simulated_runtime(seed)
        master = await opened(runtime, "/master")
        slave = await opened(runtime, "/slave", checkpoint_interval_ms=100_000)
        set_topics(master)
        for number in range(60):
            # Without a body and without a sum of it, too.
            body, text = source.randbytes(source.randrange(20)), b"v" * source.randrange(1200)
            properties = b"TAGS\x01t\x02KEYS\x01k%d\x02ASIDE\x01%b\x02" % (number, text)
            master.put(NewMessage(source.choice(TOPICS), source.randrange(2), body, properties, tags_code=0))
        master.write()
        log, sent = log_of(runtime, "/master"), messages(master)
        feed(slave, log, master.max_commit_log_offset, source, source.choice((50, 500, 5000)))
        for task in [one for one in asyncio.all_tasks() if one.get_name().startswith("store-")]:
            task.cancel()
        runtime.files.crash(keep=Keep.ANY)
        slave = await opened(runtime, "/slave")
        end = slave.max_commit_log_offset
        assert log_of(runtime, "/slave")[:end] == log[:end], f"seed {seed}"
        set_topics(slave)
        assert all(records == sent[queue][: len(records)] for queue, records in messages(slave).items())
        await slave.stop()


@pytest.mark.parametrize("orbitmq_seed", seeds(12))
@pytest.mark.parametrize("keep", list(Keep))
async def test_truncation_is_durable_and_the_log_goes_on_there(orbitmq_seed: int, keep: Keep) -> None:
    runtime, master, slave, log = await both(orbitmq_seed)
    source = random.Random(orbitmq_seed)
    feed(slave, log, master.max_commit_log_offset, source, 5000)
    await asyncio.sleep(source.choice((0, 1)))
    entries = sorted(
        entry[0]
        for topic in TOPICS
        for queue in range(2)
        for offset in range(master.max_offset(topic, queue))
        if (entry := master.entry(topic, queue, offset))
    )
    to = source.choice(entries)
    with pytest.raises(RawAppendError, match="no record begins at"):
        await slave.truncate(to + 1)
    await slave.truncate(to)
    assert slave.received_offset == slave.max_commit_log_offset == to
    wanted = {
        queue: [one for one in found if (e := master.entry(*queue, one[0])) is not None and e[0] < to]
        for queue, found in messages(master).items()
    }
    assert messages(slave) == wanted
    if source.random() < 0.7:
        for task in [one for one in asyncio.all_tasks() if one.get_name().startswith("store-")]:
            task.cancel()
        runtime.files.crash(keep=keep)
    else:
        await slave.stop()
    slave = await opened(runtime, "/slave")
    set_topics(slave)
    assert messages(slave) == wanted
    # The other history of a new master.
    slave.put(NewMessage("orders", 1, b"other", b""))
    slave.write()
    assert slave.get("orders", 1, slave.max_offset("orders", 1) - 1, 1).count == 1
    await slave.stop()


@pytest.mark.behaviour("DU-03")
async def test_a_part_of_a_record_that_cannot_be_wiped_ends_all_flushes() -> None:
    runtime, master, slave, log = await both()
    slave.append_raw(0, log[: master.max_commit_log_offset - 5])
    runtime.files.fail("sync", "/slave/commitlog")
    with pytest.raises(StoreClosedError):
        slave.drop_partial()
    # The same refusal took what was written before and is not flushed yet.
    await slave.flush()
    assert slave.flushed_offset == 0
    assert "a flush of the commit log failed" in (slave.refusal or "")
    await master.stop()
    await slave.stop()


@pytest.mark.behaviour("DU-03")
async def test_a_cut_that_the_device_refuses_is_not_done_by_asking_again() -> None:
    runtime, master, slave, log = await both()
    slave.append_raw(0, log[: master.max_commit_log_offset])
    await slave.flush()
    await master.stop()
    to = slave.entry("orders", 0, 3)
    assert to is not None
    runtime.files.fail("sync", "/slave/commitlog")
    with pytest.raises(OSError, match="injected into sync"):
        await slave.truncate(to[0])
    assert slave.refusal is not None
    for task in [one for one in asyncio.all_tasks() if one.get_name().startswith("store-")]:
        task.cancel()
    runtime.files.end_process("/slave")
    slave = await opened(runtime, "/slave")
    set_topics(slave)
    told = messages(slave)
    assert slave.max_commit_log_offset == to[0]
    for task in [one for one in asyncio.all_tasks() if one.get_name().startswith("store-")]:
        task.cancel()
    runtime.files.crash("/slave")
    slave = await opened(runtime, "/slave")
    set_topics(slave)
    assert messages(slave) == told
    await slave.stop()
