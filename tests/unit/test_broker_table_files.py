"""The change journal and the table files: what is durable when, and which content wins at a start."""

from __future__ import annotations

import asyncio
import errno
import gc
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from orbitmq.broker.change_feed import FORBIDDEN, GROUPS, OFFSETS, TOPICS, ChangeFeed, FedTable
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import Events, TableSaved
from orbitmq.broker.metadata import change_journal
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.metadata.table_files import SLICE_ENTRIES, Persistence, TableError
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.runtime.seam import Runtime
from orbitmq.testing.machine.memory_files import Keep, MemorySegment
from orbitmq.testing.machine.simulated import SimulatedRuntime, SimulatedThreads
from orbitmq.testing.machines import PowerMachine
from orbitmq.wire import fastjson
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.topic import TopicConfig

T = TypeVar("T")
FOLDER = "/store/config"
MAX_AGE_S = 5.0


class KilledError(Exception):
    """The process ends here."""


def killed(_segment: MemorySegment) -> None:
    raise KilledError


class Tables:
    """A broker's tables on a disk, loaded when they are created."""

    def __init__(self, runtime: SimulatedRuntime, *, load: bool = True) -> None:
        self.files = runtime.files
        self.runtime = runtime
        self.events = Events()
        feed = ChangeFeed()
        config = BrokerConfig()
        self.topics = TopicConfigs(runtime.clock, config, feed, self.events)
        self.groups = SubscriptionGroups(runtime.clock, config, feed, self.events)
        self.offsets = ConsumerOffsets(runtime.clock, feed, self.events)
        self.persistence = Persistence(runtime, FOLDER, feed, self.events)
        self.persistence.register(TOPICS, self.topics)
        self.persistence.register(GROUPS, self.groups, parts=[FORBIDDEN])
        self.persistence.register(OFFSETS, self.offsets)
        if load:
            self.persistence.load()

    async def create(self, topic: str, queues: int = 8) -> None:
        self.topics.update(TopicConfig(topic, queues, queues))
        await self.persistence.flush(TOPICS)

    def of_file(self, file: str = "topics.json") -> Any:
        return fastjson.loads(self.files.read_bytes(f"{FOLDER}/{file}"))

    def journals(self) -> list[str]:
        return [n for n in self.files.list_dir(FOLDER) if n.startswith(change_journal.PREFIX)]


async def test_an_acknowledged_change_is_there_after_power_loss_before_any_table_file(
    runtime: SimulatedRuntime,
) -> None:
    tables = Tables(runtime)
    await tables.create("a")
    await tables.create("b", 3)
    tables.topics.delete("a")
    tables.groups.update(SubscriptionGroupConfig("g", retry_max_times=2))
    tables.groups.set_readable("g", "b", False)
    tables.groups.set_readable("gone", "b", False)
    tables.groups.set_readable("gone", "b", True)
    await tables.persistence.flush(TOPICS)
    await tables.persistence.flush(GROUPS)
    tables.topics.update(TopicConfig("never", 1, 1))
    assert not tables.files.exists(f"{FOLDER}/topics.json")
    version = tables.groups.version
    runtime.files.crash()
    again = Tables(runtime)
    b = again.topics.get("b")
    assert b is not None
    assert b.write_queue_nums == 3
    assert "a" not in again.topics
    assert "never" not in again.topics
    assert again.topics.version.counter == 3
    g = again.groups.get("g")
    assert g is not None
    assert g.retry_max_times == 2
    assert not again.groups.may_read("g", "b")
    assert again.groups.may_read("gone", "b")
    assert again.groups.version == version
    assert again.persistence.saved(TOPICS, "b")


async def test_after_a_second_of_quiet_or_the_age_limit_the_files_are_plain_rocketmq(
    runtime: SimulatedRuntime,
) -> None:
    tables = Tables(runtime)
    working = asyncio.ensure_future(tables.persistence.run(MAX_AGE_S))
    await tables.create("quiet")
    await runtime.clock.sleep(0.9)
    assert not tables.files.exists(f"{FOLDER}/topics.json")
    await runtime.clock.sleep(0.3)
    assert "quiet" in tables.of_file()["topicConfigTable"]
    begun = runtime.clock.monotonic()
    for number in range(24):
        await tables.create(f"busy-{number}")
        await runtime.clock.sleep(0.25)
    assert runtime.clock.monotonic() - begun > MAX_AGE_S
    assert "busy-15" in tables.of_file()["topicConfigTable"]
    assert "busy-23" not in tables.of_file()["topicConfigTable"]
    # By then commits are in the file, too, although no request waits for them.
    tables.offsets.commit("cg", "T", 0, 7)
    await runtime.clock.sleep(1.5)
    assert tables.of_file("consumerOffset.json")["offsetTable"] == {"T@cg": {"0": 7}}
    working.cancel()


async def test_a_stop_that_the_disk_refuses_leaves_no_file_open(runtime: SimulatedRuntime) -> None:
    tables = Tables(runtime)
    await tables.create("a")
    runtime.files.fail("write_atomic", "topics", times=-1)
    await tables.persistence.close()
    assert tables.journals(), "the change is in the journal only"
    assert runtime.files.in_use == []


async def test_a_disk_that_refuses_a_table_for_long_is_one_line_a_minute(
    runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    tables = Tables(runtime)
    working = asyncio.ensure_future(tables.persistence.run(MAX_AGE_S))
    await tables.create("a")
    runtime.files.fail("write_atomic", "topics", times=-1)
    await runtime.clock.sleep(130)
    lines = [record.getMessage() for record in caplog.records if "cannot write" in record.getMessage()]
    assert len(lines) == 3
    assert all("/topics.json" in line for line in lines)
    assert "11 more within 60 seconds" in lines[1]
    working.cancel()


async def test_a_clean_stop_leaves_no_journal(runtime: SimulatedRuntime) -> None:
    tables = Tables(runtime)
    await tables.create("a")
    assert tables.journals()
    await tables.persistence.close()
    assert tables.journals() == []
    assert tables.of_file()["topicConfigTable"]["a"]["writeQueueNums"] == 8
    assert tables.of_file()["dataVersion"] == tables.topics.version.to_plain()
    again = Tables(runtime)
    await again.persistence.close()
    assert "a" in again.topics
    assert again.topics.version == tables.topics.version


async def test_what_another_program_wrote_wins_over_an_older_journal(
    runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    """A Java broker ran in the folder after OrbitMQ's was killed, so its topics.json is newer than OrbitMQ's
    journal.
    """

    tables = Tables(runtime)
    await tables.create("both")
    assert await tables.persistence.fold()
    await tables.create("ours")
    tables.groups.update(SubscriptionGroupConfig("untouched"))
    await tables.persistence.flush(GROUPS)
    runtime.files.crash()
    theirs = tables.of_file()
    theirs["topicConfigTable"]["theirs"] = TopicConfig("theirs", 2, 2).to_plain()
    theirs["dataVersion"]["counter"] += 1
    written = fastjson.dumps(theirs)
    runtime.files.write_atomic(f"{FOLDER}/topics.json", written)
    for _ in range(2):  # the file wins at each later start, too
        again = Tables(runtime)
        assert "both" in again.topics
        assert "theirs" in again.topics
        assert "ours" not in again.topics
        assert "untouched" in again.groups
        await again.create("later")
        runtime.files.crash()
    assert "later" in Tables(runtime).topics
    assert sum("was written by another program" in record.message for record in caplog.records) == 1


async def test_a_journal_that_a_table_file_has_overtaken_changes_nothing(runtime: SimulatedRuntime) -> None:
    """Power is lost after the table files are written and before the old journal files are removed."""

    tables = Tables(runtime)
    await tables.create("a", 1)
    tables.offsets.commit("cg", "T", 0, 1)
    await tables.persistence.flush(OFFSETS)
    runtime.files.fail("remove", change_journal.PREFIX, times=-1)
    tables.topics.delete("a")
    tables.offsets.commit("cg", "T", 0, 2)
    assert await tables.persistence.fold()
    assert len(tables.journals()) > 1
    runtime.files.crash()
    runtime.files.heal()
    again = Tables(runtime)
    assert "a" not in again.topics
    assert again.offsets.query("cg", "T", 0) == 2
    again.persistence._changed.set()
    await again.persistence.close()
    assert again.journals() == []


async def test_flushes_that_come_together_are_one_write(runtime: SimulatedRuntime) -> None:
    tables = Tables(runtime)
    await tables.create("first")
    syncs = 0
    original = tables.persistence._journal.append

    def counted(frames: list[bytes]) -> None:
        nonlocal syncs
        syncs += 1
        original(frames)

    tables.persistence._journal.append = counted  # type: ignore[method-assign]
    await asyncio.gather(*(tables.create(f"t-{number}") for number in range(50)))
    assert syncs <= 2
    runtime.files.crash()
    assert len(Tables(runtime).topics) == len(tables.topics)


async def test_what_a_flush_has_saved_is_told_by_key(runtime: SimulatedRuntime) -> None:
    tables = Tables(runtime)
    told: list[TableSaved] = []
    tables.events.subscribe(TableSaved, told.append)
    tables.topics.update(TopicConfig("a"))
    assert not tables.persistence.saved(TOPICS, "a")
    await tables.persistence.flush(TOPICS)
    assert tables.persistence.saved(TOPICS, "a")
    tables.topics.update(TopicConfig("b"))
    assert not tables.persistence.saved(TOPICS, "b")
    assert await tables.persistence.fold()
    assert tables.persistence.saved(TOPICS, "b")
    assert told == [TableSaved(TOPICS, ["a"]), TableSaved(TOPICS, ["b"])]


async def test_changes_that_the_disk_refused_are_written_with_the_next_flush(
    runtime: SimulatedRuntime,
) -> None:
    tables = Tables(runtime)
    await tables.create("a")
    for operation in ("pwrite", "sync"):
        runtime.files.fail(operation, change_journal.PREFIX, error=errno.ENOSPC, times=3)
        results = await asyncio.gather(
            *(tables.create(f"{operation}-{number}") for number in range(3)), return_exceptions=True
        )
        assert all(isinstance(result, OSError) for result in results)
        assert not tables.persistence.saved(TOPICS, f"{operation}-0")
        await tables.create(f"after-{operation}")
    runtime.files.crash()
    again = Tables(runtime)
    assert {"a", "pwrite-0", "pwrite-2", "after-pwrite", "sync-1", "after-sync"} <= {
        config.topic_name for config in again.topics
    }


@pytest.mark.behaviour("DU-04")
@pytest.mark.parametrize("refused", [True, False])
async def test_what_a_start_reads_of_the_journal_outlives_a_power_loss(
    runtime: SimulatedRuntime, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker was killed before its last change was on the device, or continued without it."""
    tables = Tables(runtime)
    await tables.create("a")
    if refused:
        runtime.files.fail("sync", change_journal.PREFIX)
    else:
        monkeypatch.setattr(MemorySegment, "sync", killed)
    with pytest.raises((OSError, KilledError)):
        await tables.create("b")
    monkeypatch.undo()
    runtime.files.end_process()
    told = {config.topic_name for config in Tables(runtime).topics}
    assert "b" in told
    runtime.files.crash()
    assert {config.topic_name for config in Tables(runtime).topics} == told


@pytest.mark.behaviour("DU-04")
@pytest.mark.parametrize("damaged", [True, False], ids=["a table is damaged", "the disk refuses"])
async def test_a_start_that_cannot_read_the_tables_leaves_all_as_it_is(
    runtime: SimulatedRuntime, damaged: bool
) -> None:
    """Seed 4301: the stop after such a start must not remove the journal, which holds a topic with
    messages.
    """
    await Tables(runtime).create("a")
    runtime.files.end_process()
    kept = {name: runtime.files.read_bytes(f"{FOLDER}/{name}") for name in runtime.files.list_dir(FOLDER)}
    if damaged:
        runtime.files.write_atomic(f"{FOLDER}/topics.json", b"{")
    else:
        runtime.files.fail("open_segment", change_journal.PREFIX)
    failed = Tables(runtime, load=False)
    with pytest.raises((OSError, TableError)):
        failed.persistence.load()
    await failed.persistence.close()
    runtime.files.heal()
    if damaged:
        runtime.files.remove(f"{FOLDER}/topics.json")
    assert {name: runtime.files.read_bytes(f"{FOLDER}/{name}") for name in kept} == kept
    assert "a" in {config.topic_name for config in Tables(runtime).topics}


async def test_the_journal_goes_on_in_another_file_when_one_is_full(
    runtime: SimulatedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_journal, "FILE_BYTES", 4096)

    tables = Tables(runtime)
    for number in range(60):
        await tables.create(f"topic-{number}")
    for number in range(60):
        tables.topics.update(TopicConfig(f"big-{number}", attributes={"+message.type": "FIFO"}))
    await tables.persistence.flush(TOPICS)  # this one write is larger than a file
    assert len(tables.journals()) > 3
    runtime.files.crash()
    again = Tables(runtime)
    assert len(again.topics) == len(tables.topics)
    await again.persistence.close()
    assert again.journals() == []


class HeldThreads(SimulatedThreads):
    """Ends calls only while ``go`` is set."""

    def __init__(self) -> None:
        super().__init__(random.Random(0))
        self.begun = 0
        self.go = asyncio.Event()

    def run(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        async def work() -> T:
            await self.go.wait()
            return function(*args)

        self.begun += 1
        return asyncio.ensure_future(work())


async def test_a_flush_that_is_cancelled_is_on_disk_before_the_next_one(runtime: SimulatedRuntime) -> None:
    threads = HeldThreads()
    runtime = replace(runtime, threads=threads)
    tables = Tables(runtime)
    first = asyncio.create_task(tables.create("a"))
    await asyncio.sleep(1)
    first.cancel()
    second = asyncio.create_task(tables.create("b"))
    await asyncio.sleep(1)
    assert threads.begun == 1
    threads.go.set()
    await asyncio.gather(first, second, return_exceptions=True)
    assert first.cancelled()
    runtime.files.crash()
    again = Tables(runtime)
    assert "a" in again.topics
    assert "b" in again.topics


async def test_a_flush_that_is_cancelled_while_the_disk_refuses_leaves_no_error_behind(
    runtime: SimulatedRuntime,
) -> None:
    threads = HeldThreads()
    tables = Tables(replace(runtime, threads=threads))
    noticed: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, found: noticed.append(found["message"]))
    runtime.files.fail("pwrite", "tables.journal")
    flush = asyncio.create_task(tables.create("a"))
    await asyncio.sleep(1)
    flush.cancel()
    await asyncio.sleep(1)
    threads.go.set()
    await asyncio.wait({flush})
    assert flush.cancelled()
    del flush
    await asyncio.sleep(0)
    gc.collect()
    assert noticed == []
    await tables.persistence.flush(TOPICS)
    runtime.files.crash()
    assert "a" in Tables(runtime).topics


async def test_a_change_made_while_a_table_file_is_written_is_not_taken_for_saved(
    runtime: SimulatedRuntime,
) -> None:
    threads = HeldThreads()
    runtime = replace(runtime, threads=threads)
    tables = Tables(runtime)
    tables.topics.update(TopicConfig("a", 1, 1))
    writing = asyncio.ensure_future(tables.persistence.fold())
    await asyncio.sleep(1)
    tables.topics.update(TopicConfig("a", 2, 2))
    tables.topics.update(TopicConfig("b", 2, 2))
    threads.go.set()
    assert await writing
    assert not tables.persistence.saved(TOPICS, "a")
    await tables.persistence.flush(TOPICS)
    runtime.files.crash()
    again = Tables(runtime).topics
    a = again.get("a")
    assert a is not None
    assert a.write_queue_nums == 2
    assert "b" in again


async def test_the_backup_is_used_when_the_file_is_damaged(runtime: SimulatedRuntime) -> None:
    tables = Tables(runtime)
    await tables.create("a")
    assert await tables.persistence.fold()
    await tables.create("b")
    assert await tables.persistence.fold()
    assert "b" not in tables.of_file("topics.json.bak")["topicConfigTable"]
    runtime.files.write_atomic(f"{FOLDER}/topics.json", b"{torn")
    again = Tables(runtime)
    assert "a" in again.topics
    runtime.files.write_atomic(f"{FOLDER}/topics.json.bak", b"[]")
    with pytest.raises(TableError, match=r"topics\.json"):
        Tables(runtime)


async def test_the_backup_is_whole_behind_a_power_loss(runtime: SimulatedRuntime) -> None:
    tables = Tables(runtime)
    for topic in ("a", "b"):
        await tables.create(topic)
        assert await tables.persistence.fold()
    runtime.files.crash(keep=Keep.NOTHING)
    runtime.files.write_atomic(f"{FOLDER}/topics.json", b"{torn")
    assert "a" in Tables(runtime).topics


async def test_a_table_of_many_entries_is_written_in_slices(runtime: SimulatedRuntime) -> None:
    """Between two slices the event loop does its other work."""

    class Counting:
        pieces = 0

        def file_text(self) -> Iterator[str]:
            for _ in range(10_000):
                self.pieces += 1
                yield " "

        def restore(self, content: Mapping[str, Any]) -> None: ...

    feed = ChangeFeed()
    table = Counting()
    persistence = Persistence(runtime, FOLDER, feed, Events())
    persistence.register("t", table)
    persistence.load()
    feed.changed("t", "k", 1)
    writing = asyncio.ensure_future(persistence.fold())
    most = before = 0
    for _ in range(1000):
        await asyncio.sleep(0)
        most, before = max(most, table.pieces - before), table.pieces
    assert await writing
    assert table.pieces == 10_000
    assert most <= 100


class Numbers:
    """A table of one number."""

    def __init__(self, feed: ChangeFeed, name: str) -> None:
        self.number = 0
        self._feed, self._name = feed, name
        feed.register(name, FedTable(int, self._apply))

    def count(self) -> None:
        self.number += 1
        self._feed.changed(self._name, "number", self.number)

    def _apply(self, _key: str, number: int) -> None:
        self.number = number

    def file_text(self) -> Iterator[str]:
        yield f'{{"number": {self.number}, "text": ['
        yield from (f'"{number}", ' for number in range(2 * SLICE_ENTRIES))
        yield '""]}'

    def restore(self, content: Mapping[str, Any]) -> None:
        self.number = int(content["number"])


@pytest.mark.parametrize("orbitmq_seed", range(6))
async def test_what_comes_first_is_on_disk_first(runtime: SimulatedRuntime, orbitmq_seed: int) -> None:
    """A number copied from an earlier table is on the disk only after that table, at any power loss."""
    dice = random.Random(orbitmq_seed)
    machine = PowerMachine(runtime.machine("10.0.0.9"))
    seen: list[int] = []

    async def life(runtime: Runtime) -> None:
        feed = ChangeFeed()
        later, between, first = (Numbers(feed, name) for name in ("later", "between", "first"))
        persistence = Persistence(runtime, FOLDER, feed, Events())
        persistence.register("later", later, after=["between", "not here"])
        persistence.register("between", between, after=["first"])
        persistence.register("first", first)
        persistence.load()
        seen.append(later.number)
        assert first.number >= later.number
        working = asyncio.ensure_future(persistence.run(0.05))
        while not working.done():
            first.count()
            later.count()
            if dice.random() < 0.1:
                await persistence.flush("later")
            await runtime.clock.sleep(0.003 * dice.random())

    for _ in range(40):
        living = machine.begin(life(machine.runtime))
        await runtime.clock.sleep(0.3 * dice.random())
        assert not living.done(), living.result()
        machine.crash(dice.choice(list(Keep)))
    machine.bury()
    assert seen == sorted(seen)
    assert seen[-1] > 1000


@pytest.mark.parametrize("keep", list(Keep))
@pytest.mark.parametrize("orbitmq_seed", range(4))
async def test_flushed_changes_survive_power_loss_at_any_time(
    runtime: SimulatedRuntime, orbitmq_seed: int, keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After random changes, folds and failures, all acknowledged changes are there at each start."""
    monkeypatch.setattr(change_journal, "FILE_BYTES", 16 * 1024)
    dice = random.Random(orbitmq_seed)

    async def life(runtime: SimulatedRuntime, promised: dict[str, int]) -> None:
        tables = Tables(runtime)
        for topic, queues in promised.items():
            config = tables.topics.get(topic)
            assert config is not None, topic
            assert config.write_queue_nums >= queues
        working = asyncio.ensure_future(tables.persistence.run(0.5))
        for _ in range(dice.randrange(3)):
            operation = dice.choice(["write_atomic", "sync", "pwrite", "remove"])
            runtime.files.fail(operation, dice.choice(["topics", "journal"]), skip=dice.randrange(10))

        async def changing(name: int) -> None:
            for number in range(1000):
                topic = f"topic-{dice.randrange(10)}-{name}"
                queues = promised.get(topic, 0) + 1
                tables.topics.update(TopicConfig(topic, queues, queues))
                try:
                    await tables.persistence.flush(TOPICS)
                except OSError:
                    continue
                promised[topic] = max(queues, promised.get(topic, 0))
                await asyncio.sleep(0.01 * dice.random() * (number % 3))

        workers = [asyncio.ensure_future(changing(name)) for name in range(4)]
        await asyncio.sleep(2 * dice.random())
        runtime.files.crash(keep=keep)
        runtime.files.heal()
        for task in (*workers, working):
            task.cancel()
        await asyncio.gather(*workers, working, return_exceptions=True)

    promised: dict[str, int] = {}
    for _ in range(4):
        await life(runtime, promised)
    tables = Tables(runtime)
    await tables.persistence.close()
    plain = tables.of_file()["topicConfigTable"]
    assert all(plain[topic]["writeQueueNums"] >= queues for topic, queues in promised.items())


async def test_offsets_of_a_java_broker_are_read(runtime: SimulatedRuntime) -> None:
    """fastjson writes queue ids without quotes, and a name may look like such a key."""
    content = (
        b'{\n\t"dataVersion":{\n\t\t"counter":3,\n\t\t"stateVersion":0,\n\t\t"timestamp":5\n\t},\n'
        b'\t"offsetTable":{\n\t\t"T@g\\n 7:":{0:11,1:12},\n'
        b'\t\t"U@g":{\n\t\t\t0:1,\n\t\t\t 10:2\n\t\t}\n\t}\n}'
    )
    runtime.files.make_dirs(FOLDER)
    runtime.files.write_atomic(f"{FOLDER}/consumerOffset.json", content)
    offsets = Tables(runtime).offsets
    assert dict(offsets.table()) == {"T@g\n 7:": {0: 11, 1: 12}, "U@g": {0: 1, 10: 2}}
    assert offsets.version.counter == 3
