"""Ranges of queues read from a broker that answers in its own ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from orbitmq.errors import BrokerError
from orbitmq.message.model import MessageQueue
from orbitmq.message.properties import encode_properties
from orbitmq.message.record import Record, encode_record
from orbitmq.spark.arrow import BatchMaker, message_schema
from orbitmq.spark.brokers import TopicRoute
from orbitmq.spark.errors import DataLossError, UnreachableError
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.partitions import QueueRange
from orbitmq.spark.pull import RangeReader
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

    def __init__(
        self, *, cap: Callable[[int], int] = lambda offset: 32, minimum: int = 0, lost: set[int] | None = None
    ):
        self.cap, self.minimum, self.lost = cap, minimum, lost or set()
        self.failures: list[Exception | int] = []
        self.rounds = 0

    def route(self, topic: str, *, refresh: bool = False) -> TopicRoute:
        return TopicRoute({queue: f"{queue.broker_name}:1" for queue in QUEUES}, {})

    def ask(self, address: str, commands: Sequence[Command]) -> list[Command]:
        self.rounds += 1
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return [command.reply(failure, "scripted") for command in commands]
        return [self._pull(command) for command in commands]

    def _pull(self, command: Command) -> Command:
        request = PullMessageRequest.from_ext(command.ext)
        low, tags = request.queue_offset, str(request.subscription)
        header = PullMessageResponse(
            suggest_which_broker_id=0, next_begin_offset=low, min_offset=self.minimum, max_offset=1000
        )
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
    assert brokers.rounds == 2  # 960 messages, 32 each, 16 at a time


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
def test_loss_is_an_error_unless_it_is_accepted(brokers: Any, kept: Callable[[int], bool]) -> None:
    ranges = [QueueRange(QUEUES[0], 10, 200)]
    with pytest.raises(DataLossError, match="are not there any more"):
        read(brokers, ranges)
    assert read(brokers, ranges, fail_on_data_loss=False) == expected(ranges, kept)


def test_a_promised_end_that_never_comes_is_loss() -> None:
    ranges = [QueueRange(QUEUES[0], 990, 1010)]
    with pytest.raises(DataLossError, match="offsets 1000 to 1009"):
        read(ScriptedBrokers(), ranges)
    assert read(ScriptedBrokers(), ranges, fail_on_data_loss=False) == expected(
        [QueueRange(QUEUES[0], 990, 1000)]
    )
