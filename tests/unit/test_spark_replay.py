"""Exactly-once as a state machine: crashes at any step, other partitions in each run, no Spark."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from orbitmq.spark.write.replay import Replay, reconcile
from orbitmq.spark.write.task import DRIVER, StoredRow, TaskId, id_mark, row_of_key, stored_row, unique_key


class CrashError(Exception):
    """The driver is killed, and with it all tasks of the run."""


@dataclass
class World:
    """The state that outlives a run: the topic, the records of attempts, and the commit."""

    stored: list[StoredRow] = field(default_factory=list)
    begun: set[tuple[int, str]] = field(default_factory=set)
    committed: bool = False
    # Rows sent to a frozen broker that has not read them: it stores them later, unless a fence ends them.
    late: list[StoredRow] = field(default_factory=list)

    def thaw(self, chance: random.Random) -> None:
        """Let a broker store some unread rows, at random."""
        if self.late and chance.random() < 0.1:
            self.stored.append(self.late.pop(chance.randrange(len(self.late))))

    def fence(self, run: str, partition: int, attempt: str) -> None:
        """Fence as the broker does: other runs end, and other attempts of the partition."""
        self.late = [
            row
            for row in self.late
            if row.run == run and (row.partition != partition or row.attempt == attempt)
        ]


@dataclass
class ReplayRun:
    """One run of one batch; ``steps`` until it is killed."""

    world: World
    chance: random.Random
    run: str
    steps: int
    attempts: int = 0

    def step(self) -> None:
        self.steps -= 1
        self.world.thaw(self.chance)
        if self.steps < 0:
            raise CrashError

    def split(self, rows: list[int]) -> list[list[int]]:
        """Distribute the rows as a shuffle does: other partitions, another order."""
        parts: list[list[int]] = [[] for _ in range(self.chance.randint(1, 4))]
        for row in rows:
            self.chance.choice(parts).append(row)
        for part in parts:
            self.chance.shuffle(part)
        return parts

    def task(
        self, partition: int, rows: list[int], result: dict[int, TaskId], matched: list[int]
    ) -> Iterator[None]:
        """Run one task, which is retried when it alone fails."""
        while True:
            self.attempts += 1
            task = TaskId("q", 7, partition, self.run, self.attempts)
            replay = Replay(task)
            fails_after = self.chance.choice([1000, 1000, self.chance.randrange(8)])
            if rows:
                self.world.begun.add((partition, task.attempt_text))
                yield
                if any(
                    text.partition(".")[0] != self.run or (other == partition and text != task.attempt_text)
                    for other, text in self.world.begun
                ):
                    self.world.fence(self.run, partition, task.attempt_text)
                    yield
                    replay.found(list(self.world.stored))
            for number, row in enumerate(rows):
                if number == fails_after:
                    break
                yield
                if not replay.take(row):
                    sent = StoredRow(partition, task.attempt_text, number, row)
                    if number + 1 == fails_after and self.chance.random() < 0.5:
                        # No response comes, and the attempt fails.
                        self.world.late.append(sent)
                        break
                    self.world.stored.append(sent)
            else:
                result[partition] = task
                matched += replay.matched
                return

    def play(self, rows: list[int]) -> None:
        result: dict[int, TaskId] = {}
        matched: list[int] = []
        tasks = [self.task(i, part, result, matched) for i, part in enumerate(self.split(rows))]
        while tasks:
            self.step()
            task = self.chance.choice(tasks)
            if next(task, "ended") == "ended":
                tasks.remove(task)
        if self.world.committed:
            return
        successful = {partition: task.attempt_text for partition, task in result.items()}
        if not self.world.begun <= set(successful.items()):
            self.world.fence(self.run, DRIVER, f"{self.run}.0")
            self.step()
            found = reconcile(self.world.stored, successful, matched)
            assert not found.unmatched, found
            for number, digest in enumerate(found.missing.elements()):
                self.step()
                self.world.stored.append(StoredRow(DRIVER, f"{self.run}.0", number, digest))
        self.step()
        self.world.committed = True


@pytest.mark.parametrize("block", range(20))
def test_each_row_is_stored_once_whatever_dies(block: int) -> None:
    replays = copies = 0
    for seed in range(block * 500, block * 500 + 500):
        chance = random.Random(seed)
        rows = [chance.randrange(chance.choice([3, 100])) for _ in range(chance.randrange(30))]
        world = World()
        for number in range(50):
            steps = chance.randrange(80) if number < 49 else 1 << 30
            try:
                ReplayRun(world, chance, f"{number:x}", steps).play(rows)
                break
            except CrashError:
                replays += 1
        assert world.committed, seed
        world.stored += world.late
        assert Counter(row.digest for row in world.stored) == Counter(rows), seed
        copies += sum(row.partition == DRIVER for row in world.stored)
    assert replays > 100
    assert copies, "equal rows in several partitions were left out by all of them, somewhere"


def test_other_rows_in_a_replay_are_counted() -> None:
    stored = [StoredRow(0, "a.1", i, 100 + i) for i in range(10)]
    task = TaskId("q", 7, 0, "b", 1)
    replay = Replay(task)
    replay.found(stored)
    left_out = [digest for digest in range(103, 120) if replay.take(digest)]
    assert left_out == list(range(103, 110))
    found = reconcile(stored, {0: task.attempt_text}, replay.matched)
    assert (found.earlier, found.unmatched, found.missing) == (10, 3, Counter())


def test_a_late_send_of_a_dead_attempt_is_seen_by_the_driver() -> None:
    task = TaskId("q", 7, 0, "b", 1)
    replay = Replay(task)
    replay.found([])
    assert not replay.take(5)
    late = [StoredRow(0, "b.1", 0, 5), StoredRow(3, "a.9", 0, 5)]
    assert reconcile(late, {0: "b.1"}, replay.matched).unmatched == 1


def test_sisters_of_the_same_run_do_not_count() -> None:
    replay = Replay(TaskId("q", 7, 0, "b", 5))
    replay.found(
        [
            StoredRow(0, "b.5", 0, 1),  # the attempt's own row
            StoredRow(1, "b.6", 0, 2),  # a row of another partition
            StoredRow(0, "b.4", 0, 3),  # a row of an earlier attempt of the task
            StoredRow(1, "a.6", 0, 4),  # a row of another run
        ]
    )
    assert replay.earlier == 2
    assert [replay.take(digest) for digest in (1, 2, 3, 4, 4)] == [False, False, True, True, False]
    assert list(replay.matched) == [3, 4]


# -- ids -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", [0, 1, 65535, 65536, (1 << 32) - 1])
def test_an_id_tells_everything(row: int) -> None:
    task = TaskId("query", 7, 2, "ab12", 9)
    key = unique_key(task.key_prefix, row)
    assert len(key) == 32
    properties = b"A\x01b\x02UNIQ_KEY\x01" + key.encode() + b"\x02" + task.id_head + b"%d/" % row
    properties += b"00000000000000ff\x02CLUSTER\x01c"
    assert row_of_key(properties, task.key_prefix) == row
    assert row_of_key(properties, TaskId("query", 7, 2, "ab12", 8).key_prefix) is None
    assert stored_row(properties, id_mark("query", 7)) == StoredRow(2, "ab12.9", row, 255)
    assert stored_row(properties, id_mark("query", 8)) is None
