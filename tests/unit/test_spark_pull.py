"""Ranges of queues read from a broker whose responses vary."""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from tests.unit.spark_conversation import ScriptedConversation
from tests.unit.test_spark_throttle import ScriptedClock

from orbitmq.errors import BrokerError, TopicNotFoundError
from orbitmq.message.errors import RecordError
from orbitmq.message.model import MessageQueue
from orbitmq.message.properties import encode_properties
from orbitmq.message.record import Record, encode_record
from orbitmq.spark.cluster import brokers as cluster_brokers
from orbitmq.spark.cluster.routes import QueueAddresses
from orbitmq.spark.errors import DataLossError, UnreachableError
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.pulling import cursor, pull
from orbitmq.spark.pulling.arrow import BatchMaker
from orbitmq.spark.pulling.pull import RangeReader
from orbitmq.spark.pulling.ranges import QueueRange
from orbitmq.spark.schema import message_schema
from orbitmq.transport.identity import NOBODY
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import PullMessageRequest, PullMessageResponse

QUEUES = [
    MessageQueue("t", "broker-a", 0),
    MessageQueue("t", "broker-a", 1),
    MessageQueue("t", "broker-b", 0),
]
TAGS = ("red", "green", "blue")


class ScriptedBrokers:
    """Queues of 1000 messages; message n of a queue has tag n % 3."""

    identity = NOBODY

    def __init__(
        self, *, cap: Callable[[int], int] = lambda offset: 32, minimum: int = 0, lost: set[int] | None = None
    ):
        self.cap, self.minimum, self.lost = cap, minimum, lost or set()
        self.failures: list[Exception | int] = []
        self.rounds = 0
        self.master = True
        # The number of route requests after which the name server knows the topic's master.
        self.unknown = 0
        self.reset = False
        self.asked: list[int] = []
        self.unanswered = 0
        self.order: Callable[[int], int] = lambda count: 0

    def converse(self, address: str, allocate: Any = bytearray) -> ScriptedConversation:
        return ScriptedConversation(self, address)

    def route(self, topic: str, *, refresh: bool = False) -> QueueAddresses:
        addresses = {queue: f"{queue.broker_name}:1" for queue in QUEUES}
        return QueueAddresses(addresses, {}, frozenset(addresses.values()))

    def is_master(self, topic: str, address: str) -> bool:
        if self.unknown:
            self.unknown -= 1
            raise TopicNotFoundError(topic, "scripted")
        return self.master

    def ask(self, address: str, commands: Sequence[Command], **_: Any) -> list[Command]:
        self.rounds += 1
        self.asked.append(len(commands))
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return [self._refused(command, failure) for command in commands]
        return [self._pull(command) for command in commands]

    def _refused(self, command: Command, code: int) -> Command:
        if code != ResponseCode.PULL_RETRY_IMMEDIATELY:
            return command.reply(code, "scripted")
        header = PullMessageResponse(
            suggest_which_broker_id=0, next_begin_offset=900, min_offset=0, max_offset=1000
        )
        return header.reply_to(command, code=code, remark="MESSAGE_WAS_REMOVING")

    def _pull(self, command: Command) -> Command:
        request = PullMessageRequest.from_ext(command.ext)
        low, tags = request.queue_offset, str(request.subscription)
        header = PullMessageResponse(
            suggest_which_broker_id=0, next_begin_offset=low, min_offset=self.minimum, max_offset=1000
        )
        if self.reset:
            self.reset = False
            header.next_begin_offset = 900
            return header.reply_to(command, code=ResponseCode.PULL_OFFSET_MOVED, remark="OFFSET_RESET")
        if low < self.minimum:
            header.next_begin_offset = self.minimum
            return header.reply_to(command, code=ResponseCode.PULL_OFFSET_MOVED)
        if low >= 1000:
            return header.reply_to(command, code=ResponseCode.PULL_NOT_FOUND)
        limit = min(request.max_msg_nums, self.cap(low))
        body, offset, count = b"", low, 0
        while offset < 1000 and count < limit and offset - low < 500:
            tag = TAGS[offset % 3]
            if offset not in self.lost and (tags == "*" or tag in tags):
                properties = encode_properties({"TAGS": tag})
                body += encode_record(
                    Record("t", str(offset).encode(), properties, request.queue_id, 0, offset)
                )
                count += 1
            offset += 1
        header.next_begin_offset = offset
        code = ResponseCode.SUCCESS if count else ResponseCode.PULL_RETRY_IMMEDIATELY
        return header.reply_to(command, code=code, body=body)


def read(
    brokers: Any, ranges: list[QueueRange], *, offset_timeout_ms: int = 10_000, **options: Any
) -> list[tuple[str, int, int]]:
    chosen = ReadOptions(topics=("t",), batch_bytes=4000, offset_timeout_ms=offset_timeout_ms, **options)
    maker = BatchMaker(message_schema(["broker", "queue_id", "queue_offset", "body"]), chosen.tags)
    rows = []
    for batch in RangeReader(brokers, chosen).batches(ranges, maker):
        for row in batch.to_pylist():
            assert row["body"] == str(row["queue_offset"]).encode()
            rows.append((row["broker"], row["queue_id"], row["queue_offset"]))
    return rows


def expected(
    ranges: list[QueueRange], keep: Callable[[int], bool] = lambda offset: True
) -> list[tuple[str, int, int]]:
    return [
        (r.queue.broker_name, r.queue.queue_id, o) for r in ranges for o in range(r.low, r.high) if keep(o)
    ]


_ranges = st.lists(
    st.builds(
        lambda q, a, b: QueueRange(q, min(a, b), max(a, b)),
        st.sampled_from(QUEUES),
        st.integers(0, 1000),
        st.integers(0, 1000),
    ),
    max_size=3,
    unique_by=lambda r: r.queue,
).map(lambda ranges: sorted(ranges, key=lambda r: r.queue))


@given(_ranges, st.lists(st.integers(1, 40), min_size=1, max_size=7), st.integers(1, 70), st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_every_row_once_and_in_order(ranges: list[QueueRange], caps: list[int], ask: int, depth: int) -> None:
    brokers = ScriptedBrokers(cap=lambda offset: caps[offset % len(caps)])
    assert read(brokers, ranges, pull_messages=ask, pull_depth=depth) == expected(ranges)


@given(_ranges, st.sampled_from(["red", "red || blue", "none"]), st.integers(1, 20))
@settings(max_examples=30, deadline=None)
def test_a_tag_filter_skips_and_loses_nothing(ranges: list[QueueRange], tags: str, depth: int) -> None:
    wanted = expected(ranges, lambda offset: TAGS[offset % 3] in tags)
    assert read(ScriptedBrokers(), ranges, tags=tags, pull_depth=depth) == wanted


def test_pulls_travel_together() -> None:
    brokers = ScriptedBrokers()
    read(brokers, [QueueRange(QUEUES[0], 0, 960)], pull_depth=16)
    # The first pull shows that 32 messages come at a time, whatever is requested; later ones run side by
    # side.
    assert brokers.asked[0] == 1
    assert max(brokers.asked) >= 8
    assert brokers.rounds <= 10
    assert brokers.unanswered == 0


@given(st.randoms(use_true_random=False), st.integers(1, 20), st.sampled_from(["*", "red"]))
@settings(max_examples=40, deadline=None)
def test_answers_come_in_any_order(chance: random.Random, depth: int, tags: str) -> None:
    brokers = ScriptedBrokers(cap=lambda offset: 1 + offset % 40)
    brokers.order = chance.randrange
    ranges = [QueueRange(queue, 3, 900) for queue in QUEUES]
    wanted = expected(ranges, lambda offset: tags == "*" or TAGS[offset % 3] == tags)
    assert read(brokers, ranges, pull_depth=depth, tags=tags) == wanted


def test_what_exceeds_the_memory_is_dropped_and_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull, "MEMORY_BYTES", 20_000)
    brokers = ScriptedBrokers()
    brokers.order = lambda count: count - 1
    ranges = [QueueRange(QUEUES[0], 0, 960)]
    reader = RangeReader(brokers, ReadOptions(topics=("t",)))
    held = []
    offsets = 0
    for piece in reader.pieces(ranges):
        offsets += piece.rows
        held.append(reader._held_bytes)
    assert offsets == 960
    assert max(held) <= 20_000
    assert sum(brokers.asked) > 31  # some parts were pulled twice
    assert reader._held_bytes == 0


def test_a_read_that_ends_early_gives_its_connection_up() -> None:
    brokers = ScriptedBrokers()
    options = ReadOptions(topics=("t",), batch_bytes=1)
    batches = RangeReader(brokers, options).batches(
        [QueueRange(QUEUES[0], 0, 960)], BatchMaker(message_schema(["queue_offset"]))
    )
    next(batches)
    next(batches)
    batches.close()
    assert brokers.unanswered > 0


def test_a_broker_that_is_away_is_asked_again() -> None:
    brokers = ScriptedBrokers()
    brokers.failures = [UnreachableError("cut"), ResponseCode.SYSTEM_BUSY, ResponseCode.PULL_NOT_FOUND]
    ranges = [QueueRange(QUEUES[0], 5, 80)]
    assert read(brokers, ranges) == expected(ranges)
    brokers.failures = [UnreachableError("cut")] * 100
    with pytest.raises(UnreachableError):
        read(brokers, ranges, offset_timeout_ms=100)


def test_a_refusal_is_an_error_at_once() -> None:
    brokers = ScriptedBrokers()
    brokers.failures = [ResponseCode.NO_PERMISSION]
    with pytest.raises(BrokerError, match="scripted"):
        read(brokers, [QueueRange(QUEUES[0], 0, 5)])
    assert brokers.rounds == 1


@pytest.mark.parametrize(
    ("brokers", "kept"),
    [
        (ScriptedBrokers(minimum=70), lambda offset: offset >= 70),
        (ScriptedBrokers(lost={40, 41, 100}), lambda offset: offset not in (40, 41, 100)),
    ],
    ids=["expired", "holes"],
)
def test_loss_is_an_error_unless_it_is_accepted(
    brokers: Any, kept: Callable[[int], bool], caplog: pytest.LogCaptureFixture
) -> None:
    ranges = [QueueRange(QUEUES[0], 10, 200)]
    with pytest.raises(DataLossError, match="are not there any more"):
        read(brokers, ranges)
    assert read(brokers, ranges, fail_on_loss=False) == expected(ranges, kept)
    told = [
        map(int, re.findall(r"offsets (\d+) to (\d+) of .*, skipped", line)[0]) for line in caplog.messages
    ]
    missing = [offset for first, last in told for offset in range(first, last + 1)]
    assert missing == [offset for offset in range(10, 200) if not kept(offset)]


def test_a_masters_end_below_the_promised_one_is_loss() -> None:
    ranges = [QueueRange(QUEUES[0], 990, 1010)]
    with pytest.raises(DataLossError, match="offsets 1000 to 1009"):
        read(ScriptedBrokers(), ranges, offset_timeout_ms=60)
    lenient = read(ScriptedBrokers(), ranges, offset_timeout_ms=60, fail_on_loss=False)
    assert lenient == expected([QueueRange(QUEUES[0], 990, 1000)])


@pytest.mark.behaviour("SP-02")
@pytest.mark.parametrize("fail_on_loss", [True, False])
def test_a_slave_that_began_to_copy_later_proves_no_loss(fail_on_loss: bool) -> None:
    young = ScriptedBrokers(minimum=100)
    young.master = False
    with pytest.raises(UnreachableError, match=r"offset 0 of .*: it begins at 100 for 0.06 s"):
        read(young, [QueueRange(QUEUES[0], 0, 200)], offset_timeout_ms=60, fail_on_loss=fail_on_loss)


@pytest.mark.behaviour("SP-02")
def test_a_name_server_that_just_started_ends_no_task_that_asks_who_is_master() -> None:
    brokers = ScriptedBrokers(minimum=100)
    brokers.unknown = 1
    rows = read(brokers, [QueueRange(QUEUES[0], 0, 200)], fail_on_loss=False)
    assert rows == expected([QueueRange(QUEUES[0], 100, 200)])


@pytest.mark.parametrize("fail_on_loss", [True, False])
def test_busy_or_behind_is_never_loss(fail_on_loss: bool) -> None:
    behind = ScriptedBrokers()
    behind.master = False
    with pytest.raises(UnreachableError, match=r"offset 1000 of .*: it ends at 1000 for 0.06 s"):
        read(
            behind, [QueueRange(QUEUES[0], 990, 1010)],
            offset_timeout_ms=60, fail_on_loss=fail_on_loss,
        )  # fmt: skip
    busy = ScriptedBrokers()
    busy.failures = [ResponseCode.SYSTEM_BUSY] * 1000
    for is_stream in (False, True):  # a busy broker is not a silent one
        with pytest.raises(UnreachableError, match="it answers 2 scripted"):
            read(
                busy, [QueueRange(QUEUES[0], 0, 10)],
                offset_timeout_ms=60, fail_on_loss=fail_on_loss, is_stream=is_stream,
            )  # fmt: skip


def test_a_reset_of_the_group_is_not_loss() -> None:
    brokers = ScriptedBrokers()
    brokers.reset = True
    ranges = [QueueRange(QUEUES[0], 0, 40)]
    assert read(brokers, ranges) == expected(ranges)


def test_messages_that_are_being_removed_are_asked_for_again() -> None:
    """MESSAGE_WAS_REMOVING reaches a client as PULL_RETRY_IMMEDIATELY with a later offset."""
    brokers = ScriptedBrokers()
    brokers.failures = [ResponseCode.PULL_RETRY_IMMEDIATELY] * 3
    ranges = [QueueRange(QUEUES[0], 0, 40)]
    assert read(brokers, ranges) == expected(ranges)


def test_time_that_spark_takes_with_the_rows_does_not_count_as_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ScriptedClock()
    worker = SimpleNamespace(clock=clock, random=random.Random(1), pause=clock.pause)
    monkeypatch.setattr(cluster_brokers, "this_worker", lambda: worker)
    brokers = ScriptedBrokers(cap=lambda offset: 10)
    options = ReadOptions(topics=("t",), batch_bytes=1, offset_timeout_ms=150, pull_depth=1)
    batches = RangeReader(brokers, options).batches(
        [QueueRange(QUEUES[0], 0, 30)], BatchMaker(message_schema(["queue_offset"]))
    )
    rows = next(batches).num_rows
    clock.pause(0.2)
    brokers.failures = [UnreachableError("restarted meanwhile")] * 2
    assert rows + sum(batch.num_rows for batch in batches) == 30


class LargeMessages(ScriptedBrokers):
    """Message n has ``sizes[n % len(sizes)]`` bytes; a response holds 256 KiB, or one message."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.sizes = sizes
        self.largest_round = 0

    def ask(self, address: str, commands: Sequence[Command], **_: Any) -> list[Command]:
        answers = super().ask(address, commands)
        self.largest_round = max(self.largest_round, sum(len(answer.body) for answer in answers))
        return answers

    def _pull(self, command: Command) -> Command:
        request = PullMessageRequest.from_ext(command.ext)
        body, offset = b"", request.queue_offset
        while offset < min(1000, request.queue_offset + request.max_msg_nums):
            content = bytes(self.sizes[offset % len(self.sizes)])
            if body and len(body) + len(content) > 256 << 10:
                break
            record = encode_record(Record("t", content, b"", request.queue_id, queue_offset=offset))
            body, offset = body + record, offset + 1
        header = PullMessageResponse(
            suggest_which_broker_id=0, next_begin_offset=offset, min_offset=0, max_offset=1000
        )
        return header.reply_to(command, code=ResponseCode.SUCCESS, body=body)


def drain(brokers: Any, high: int, **options: Any) -> int:
    chosen = ReadOptions(topics=("t",), **options)
    maker = BatchMaker(message_schema(["queue_offset"]), chosen.tags)
    ranges = [QueueRange(QUEUES[0], 0, high)]
    return sum(batch.num_rows for batch in RangeReader(brokers, chosen).batches(ranges, maker))


def test_large_messages_stay_within_the_memory_of_a_task() -> None:
    brokers = LargeMessages([8 << 20])
    assert drain(brokers, 24, pull_depth=64) == 24
    # The first pull shows the size of messages.
    assert max(brokers.asked[1:]) <= 8
    mixed = LargeMessages([100] * 50 + [3 << 20])
    assert drain(mixed, 400, pull_depth=64) == 400
    assert mixed.largest_round <= 64 << 20


def test_after_a_large_message_the_parts_grow_again() -> None:
    brokers = LargeMessages([300 << 10] + [100] * 999)
    assert drain(brokers, 1000, pull_depth=1) == 1000
    # Parts have 1, 1, 2, 4, 8 messages and so on; parts of one message would need 1000 rounds.
    assert brokers.rounds < 60


def test_a_filter_that_leaves_little_holds_no_more_than_the_memory() -> None:
    brokers = LargeMessages([1 << 20])
    ranges = [QueueRange(QUEUES[0], 0, 200)]
    chosen = ReadOptions(topics=("t",), tags="red", pull_depth=64, batch_bytes=1)
    reader = RangeReader(brokers, chosen)
    cursors: list[cursor.Cursor] = []

    class Watched(cursor.Cursor):
        def __init__(self, *args: Any, **names: Any) -> None:
            super().__init__(*args, **names)
            cursors.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pull, "Cursor", Watched)
        patch.setattr(cursor, "FILTERED_STEP", 4)
        for _ in reader.pieces(ranges):
            assert sum(made.held_bytes for made in cursors) <= (64 << 20) + (2 << 20)


def test_damaged_records_name_broker_queue_and_offset() -> None:
    class Damaged(ScriptedBrokers):
        def _pull(self, command: Command) -> Command:
            answer = super()._pull(command)
            return Command(**{**vars_of(answer), "body": b"\x00\x00\x00\x63" + answer.body[4:]})

    with pytest.raises(RecordError, match="broker-a:1 sent for t/broker-a/0 from offset 3 on: "):
        read(Damaged(), [QueueRange(QUEUES[0], 3, 10)])


def compressed(offset: int, body: bytes) -> bytes:
    return encode_record(Record("t", body, b"", 1, queue_offset=offset, sys_flag=1 | (3 << 8)))


class BadBody(ScriptedBrokers):
    """Offset 1 of three has a body that cannot be decompressed."""

    def _pull(self, command: Command) -> Command:
        bodies = [zlib.compress(b"first"), b"not zlib", zlib.compress(b"third")]
        header = PullMessageResponse(
            suggest_which_broker_id=0, next_begin_offset=3, min_offset=0, max_offset=3
        )
        records = b"".join(compressed(offset, body) for offset, body in enumerate(bodies))
        return header.reply_to(command, code=ResponseCode.SUCCESS, body=records)


@pytest.mark.parametrize(
    ("how", "body"), [("null", None), ("raw", b"not zlib")], ids=["null", "the stored bytes"]
)
def test_a_body_that_cannot_be_read_costs_one_row(how: str, body: bytes | None) -> None:
    options = ReadOptions(topics=("t",), on_bad_message=how)
    maker = BatchMaker(message_schema(["body", "error"], error=True), bad_body=how)
    (batch,) = RangeReader(BadBody(), options).batches([QueueRange(QUEUES[1], 0, 3)], maker)
    assert batch.column(0).to_pylist() == [b"first", body, b"third"]
    first, error, third = batch.column(1).to_pylist()
    assert first is third is None
    assert error.startswith("queue 1, offset 1: zlib body of 8 bytes is damaged")


def test_a_body_that_cannot_be_read_is_an_error_that_names_its_place() -> None:
    reader = RangeReader(BadBody(), ReadOptions(topics=("t",)))
    with pytest.raises(RecordError, match=r"topic t, broker broker-a: queue 1, offset 1: zlib body"):
        list(reader.batches([QueueRange(QUEUES[1], 0, 3)], BatchMaker(message_schema(["body"]))))


def vars_of(command: Command) -> dict[str, Any]:
    return {name: getattr(command, name) for name in ("code", "ext", "remark", "flag", "opaque")}
