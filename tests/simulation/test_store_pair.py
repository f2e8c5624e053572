"""Two stores, one a copy of the other's log, against a plain model of what was put: topics that are deleted
and made again, kills and power losses of both, files that expire, ends of the log that are set aside."""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, field

import pytest
from tests.seeds import seed_blocks

from orbitmq.message.record import iter_records
from orbitmq.store import GetStatus, Made, MessageStore, NewMessage, StoreClosedError, StoreConfig, StoreError
from orbitmq.testing.machine.memory_files import Keep
from orbitmq.testing.machine.simulated import SimulatedRuntime, simulated_runtime

pytestmark = pytest.mark.usefixtures("orbitmq_loop")

FILE_BYTES = 4 * 1024
TOPICS = ("a", "b")
QUEUES = 2
STEPS = 40
# Seeds of one test, of which each has a minute.
BLOCK = 50
ROOT = "/store"


@dataclass
class Put:
    """A message that the master has put: its offset in its queue, and its place in the log."""

    offset: int
    place: int
    body: bytes


@dataclass
class Side:
    """One broker: its disk, its store while it runs, and the table of topics that it was told."""

    runtime: SimulatedRuntime
    copies: bool
    store: MessageStore = field(init=False)
    made: dict[str, Made | None] = field(default_factory=dict)
    tasks: set[asyncio.Task[object]] = field(default_factory=set)
    fails: bool = False

    async def open(self) -> None:
        before = asyncio.all_tasks()
        config = StoreConfig(
            root=ROOT,
            commit_log_file_bytes=FILE_BYTES,
            consume_queue_file_bytes=20 * 20,
            batch_bytes=2 * 1024,
            index=False,
            checkpoint_interval_ms=700,
        )
        self.store = MessageStore(self.runtime, config)
        await self.store.start()
        self.tasks = asyncio.all_tasks() - before
        for topic, made in self.made.items():
            self.set_topic(topic)
            if made is not None:
                self.store.incarnations.resume(topic, made, copies=self.copies)

    def set_topic(self, topic: str) -> None:
        self.store.set_topic(topic, read_queues=QUEUES, write_queues=QUEUES, perm=6)

    def tell(self, topic: str, made: Made | None) -> None:
        """A change of the table of topics."""
        self.made[topic] = made
        self.set_topic(topic)
        if made is not None:
            self.store.incarnations.take(topic, made)

    def hear_all(self, other: Side) -> None:
        """The other broker tells its topics, and where queues end that have no message there."""
        for topic, made in other.made.items():
            self.tell(topic, made)
        for topic, ends in other.store.quiet_ends():
            for queue, offset in ends:
                self.store.go_on_at(topic, queue, offset)

    def kill(self) -> None:
        """The process does nothing more."""
        for task in self.tasks:
            task.cancel()

    async def end(self, source: random.Random) -> None:
        """A stop, a kill or a power loss, and a start."""
        kind = source.randrange(3)
        if kind == 0:
            await self.store.stop()
        self.kill()
        if kind == 1:
            self.runtime.files.end_process()
        elif kind == 2:
            self.runtime.files.crash(keep=source.choice(list(Keep)))
        try:
            await self.open()
        except (OSError, StoreError):
            self.heal()
            self.kill()
            self.runtime.files.end_process()
            await self.open()

    def fail(self, source: random.Random) -> None:
        """The disk refuses something, for a while or until it is healed."""
        operation = source.choice(("pwrite", "sync", "write_atomic", "remove", "open_segment"))
        skip, times = source.randrange(8), source.choice((1, 2, 5, -1))
        self.runtime.files.fail(operation, source.choice(("", "consumequeue")), skip=skip, times=times)
        self.fails = True

    def heal(self) -> None:
        """The disk works again."""
        self.runtime.files.heal()
        self.fails = False

    async def expire(self) -> None:
        """The first file of the log is too old."""
        await self.store.flush()
        if self.store.min_commit_log_offset + 2 * FILE_BYTES <= self.store.flushed_offset:
            with contextlib.suppress(OSError):
                self.store._upkeep._delete_files(1)
                self.store.queues.drop_below(self.store.min_commit_log_offset)

    def log(self) -> tuple[int, bytes]:
        """Where the log begins, and all that it holds."""
        first, data = self.store.min_commit_log_offset, b""
        while piece := self.store.raw.data(first + len(data), 1 << 20):
            data += piece
        return first, data


class Pair:
    """The two, and what the master's queues have to hold."""

    def __init__(self, seed: int, *, fails: bool = False) -> None:
        self.fails = fails
        self.source = random.Random(seed)
        self.master = Side(simulated_runtime(seed), copies=False)
        self.slave = Side(simulated_runtime(seed + 1), copies=True)
        self.put: dict[tuple[str, int], list[Put]] = {}
        self.next: dict[tuple[str, int], int] = {}
        self.number = 0
        self.linked = False
        # Topics that were made again, which the slave is to hear when its log has come to a place.
        self.untold: list[tuple[int, str]] = []

    async def start(self) -> None:
        for side in (self.master, self.slave):
            await side.open()
        for topic in TOPICS:
            self.make(topic)

    def make(self, topic: str) -> None:
        """A topic is made, or deleted and made again."""
        store = self.master.store
        if topic in self.master.made:
            store.drop_topic(topic)
        self.master.tell(topic, None)
        self.master.tell(topic, store.incarnations.now(topic))
        if self.linked:
            self.untold.append((store.end, topic))
        for queue in range(QUEUES):
            self.put[topic, queue] = []
            self.next[topic, queue] = 0

    def hear(self, end: int) -> None:
        """The slave makes changes that were told."""
        while self.untold and self.untold[0][0] <= end:
            topic = self.untold.pop(0)[1]
            self.slave.tell(topic, self.master.made[topic])

    def unlink(self) -> None:
        """The link is lost: what was told counts."""
        self.hear(1 << 62)
        self.linked = False

    def fill(self) -> None:
        """Some messages are put, as far as the disk takes them."""
        store, source = self.master.store, self.source
        for _ in range(source.randrange(1, 12)):
            topic, queue = source.choice(TOPICS), source.randrange(QUEUES)
            self.number += 1
            body = b"%d" % self.number + bytes(source.choice((0, 0, 100, 700)))
            try:
                result = store.put(NewMessage(topic, queue, body, b""))
            except StoreClosedError:
                return
            assert result.queue_offset == self.next[topic, queue], (topic, queue)
            self.put[topic, queue].append(Put(result.queue_offset, result.commit_log_offset, body))
            self.next[topic, queue] += 1
        with contextlib.suppress(StoreClosedError):
            store.write()

    async def end_master(self) -> None:
        """The master begins anew; a power loss may have taken the end of its log."""
        self.unlink()
        await self.master.end(self.source)
        self.forget_behind(self.master.store.max_commit_log_offset)

    async def lose_master(self) -> None:
        """The master gets a new disk, and what its slave has: the log first, then the tables."""
        slave = self.slave.store
        self.hear(slave.max_commit_log_offset)
        is_copy = self.linked and not self.untold and self.slave.made == self.master.made
        # A topic that is made behind the end of the log is one that the slave heard of too early.
        end = slave.max_commit_log_offset
        early = any(made is not None and made.log_offset > end for made in self.slave.made.values())
        # One whose log begins later does not know where queues end whose messages are all before that.
        begin = slave.min_commit_log_offset
        partial = begin == end or begin > self.master.store.min_commit_log_offset
        if not is_copy or early or partial or self.slave.fails or not slave.accepting:
            return
        slave.drop_partial()
        self.linked = False
        self.master.heal()
        self.master.kill()
        self.number += 1
        self.master = Side(simulated_runtime(self.number << 32), copies=False)
        await self.master.open()
        self.master.store.append_raw(*self.slave.log())
        self.master.hear_all(self.slave)
        self.forget_behind(end)
        await asyncio.sleep(1)  # a checkpoint: without one the folder may be anybody's

    def forget_behind(self, end: int) -> None:
        """The master's log ends there now."""
        for place, found in self.put.items():
            self.put[place] = [each for each in found if each.place < end]
            if len(self.put[place]) < len(found):
                self.next[place] = self.put[place][-1].offset + 1 if self.put[place] else found[0].offset

    async def link(self) -> None:
        """The slave sets aside what the master does not have, and is told everything."""
        try:
            self.slave.store.refuse_raw()
            self.slave.store.drop_partial()
        except StoreClosedError:
            return
        (first, theirs), (begin, ours) = self.master.log(), self.slave.log()
        store, end = self.slave.store, begin + len(ours)
        common, low = begin, max(first, begin)
        for at in await store.raw.record_starts(low, end) if low < end else []:
            size = int.from_bytes(ours[at - begin : at - begin + 4])
            if theirs[at - first : at - first + size] != ours[at - begin : at - begin + size]:
                break
            common = at + size
        if common < end:
            try:
                await store.truncate(common)
            except (OSError, StoreError):
                return
        self.slave.hear_all(self.master)
        self.linked = True

    def feed(self, *, all_of_it: bool = False) -> None:
        """The slave copies on, mostly up to somewhere within a record."""
        first, data = self.master.log()
        store = self.slave.store
        end = first + len(data)
        if not all_of_it:
            end -= self.source.randrange(max(1, min(2000, len(data))))
        at = max(first, store.received_offset)
        if store.received_offset < at and store.max_commit_log_offset != store.min_commit_log_offset:
            self.unlink()
            return
        if at < end:
            try:
                store.append_raw(at, data[at - first : end - first])
            except (OSError, StoreClosedError):
                self.unlink()
        self.hear(store.max_commit_log_offset)

    def check(self, side: Side) -> None:
        """Its queues have what was put, as far as its log goes, and nothing else."""
        store = side.store
        # Cleaning does so again and again, when the disk refuses it.
        store.queues.drop_below(store.min_commit_log_offset)
        for (topic, queue), put in self.put.items():
            made = side.made.get(topic)
            if made is not None and made.log_offset > store.max_commit_log_offset:
                continue  # it was told of a topic that its log has not come to
            low, end = store.min_commit_log_offset, store.max_commit_log_offset
            wanted = [(each.offset, each.body) for each in put if low <= each.place < end]
            found: list[tuple[int, bytes]] = []
            offset = store.min_offset(topic, queue)
            while (got := store.get(topic, queue, offset, 50)).status is GetStatus.FOUND:
                found += [(record.queue_offset, record.body) for record in iter_records(got.body)]
                offset = got.next_offset
            assert found == wanted, (side.copies, topic, queue, store.min_offset(topic, queue), found, wanted)
            if wanted and put[-1].place < end:
                assert store.max_offset(topic, queue) == self.next[topic, queue]

    async def heal(self) -> None:
        """Both disks work, and a store that its disk had failed for good is opened anew."""
        for side in (self.master, self.slave):
            side.heal()
            await asyncio.sleep(30)
            if side.store.refusal is not None:
                await (self.end_master() if side is self.master else side.end(self.source))

    async def run(self) -> None:
        await self.start()
        for _ in range(STEPS):
            await self.step()
            if not self.master.fails:
                self.check(self.master)
        self.unlink()
        await self.heal()
        # What the first one brings may be of topics that were deleted: told once more, they are known.
        for _ in range(2):
            await self.link()
            self.feed(all_of_it=True)
        await self.link()
        self.check(self.slave)
        for side in (self.master, self.slave):
            await side.store.stop()

    async def step(self) -> None:
        source = self.source
        kind = source.randrange(20)
        if kind < 6:
            self.fill()
        elif kind < 8:
            # What a disk refuses to delete may come back with a crash before the next checkpoint.
            self.master.heal()
            if self.master.store.accepting:
                self.make(source.choice(TOPICS))
        elif kind < 10:
            await asyncio.sleep(source.choice((0.01, 0.5, 1.5)))
        elif kind < 12:
            if source.random() < 0.5:
                self.unlink()
            self.linked, self.untold = False, []
            await self.slave.end(source)
        elif kind < 13:
            await (self.end_master() if source.random() < 0.7 else self.lose_master())
        elif kind < 14:
            await source.choice((self.master, self.slave)).expire()
        elif kind < 15:
            self.unlink()
        elif kind < 16 and self.fails:
            source.choice((self.master, self.slave)).fail(source)
        elif kind < 17 and self.fails:
            source.choice((self.master, self.slave)).heal()
        elif not self.linked:
            await self.link()
        if self.linked:
            self.feed()


@pytest.mark.behaviour("MO-13")
@pytest.mark.parametrize("fails", [False, True], ids=["", "disks fail"])
@pytest.mark.parametrize("block", seed_blocks(5, of=BLOCK), ids=str)
async def test_a_copy_has_what_its_master_has(block: range, *, fails: bool) -> None:
    for seed in block:
        pair = Pair(seed, fails=fails)
        try:
            await pair.run()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
