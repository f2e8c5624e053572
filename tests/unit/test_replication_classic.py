"""RocketMQ's replication protocol byte by byte: its frames, and impossible ones."""

from __future__ import annotations

import random
from struct import pack

import pytest
from tests.seeds import seeds

from orbitmq.replication.link.classic import MAX_DATA_BYTES, FrameReader, ReportReader, data_frame_header
from orbitmq.replication.link.cursor import Flow
from orbitmq.replication.link.errors import LinkError

FILE_BYTES = 1000


def test_a_frame_is_an_offset_a_size_and_bytes() -> None:
    assert data_frame_header(0x0102, 5) == bytes.fromhex("0000000000000102 00000005")


@pytest.mark.parametrize("seed", seeds(20))
def test_frames_may_come_in_any_pieces(seed: int) -> None:
    source = random.Random(seed)
    log = source.randbytes(3 * FILE_BYTES)
    stream, at = b"", 0
    while at < len(log):
        size = min(source.randrange(0, 300), FILE_BYTES - at % FILE_BYTES)
        stream += data_frame_header(at, size) + log[at : at + size]
        at += size
    reader = FrameReader(0, FILE_BYTES)
    got = b""
    while stream:
        cut = source.randrange(1, 500)
        for offset, piece in reader.feed(memoryview(stream[:cut])):
            assert offset == len(got)
            got += piece
        stream = stream[cut:]
    assert got == log


def test_a_heartbeat_has_no_bytes() -> None:
    reader = FrameReader(70, FILE_BYTES)
    assert [(at, len(data)) for at, data in reader.feed(memoryview(pack(">qi", 70, 0)))] == [(70, 0)]


def test_an_empty_log_begins_where_the_first_frame_says() -> None:
    reader = FrameReader(0, FILE_BYTES)
    list(reader.feed(memoryview(pack(">qi", 3 * FILE_BYTES, 2) + b"ab")))
    assert reader.expected == 3 * FILE_BYTES + 2


@pytest.mark.parametrize(
    ("expected", "offset", "size", "words"),
    [
        (70, 71, 5, "bytes for offset 71, this log ends at 70"),
        (70, 71, 0, "bytes for offset 71, this log ends at 70"),
        (70, 70, -1, "piece of -1 bytes"),
        (70, 70, 2**31 - 1, "piece of 2147483647 bytes"),
        (70, 70, MAX_DATA_BYTES + 1, "possible are 0 to"),
        (990, 990, 11, "crosses the border of a file of 1000 bytes: both brokers need"),
        (0, 500, 10, "begins at 500, which is no border of files"),
        (0, -1000, 0, "bytes for offset -1000"),
    ],
)
def test_frames_that_lie_are_refused(expected: int, offset: int, size: int, words: str) -> None:
    with pytest.raises(LinkError, match=words):
        list(FrameReader(expected, FILE_BYTES).feed(memoryview(pack(">qi", offset, size))))


def test_reports_may_come_in_any_pieces() -> None:
    reader = ReportReader()
    stream = pack(">qqq", 5, 5, 80)
    assert reader.feed(stream[:3], 100) == []
    assert reader.feed(stream[3:17], 100) == [5, 5]
    assert reader.feed(stream[17:], 100) == [80]
    assert reader.reported == 80


@pytest.mark.parametrize(
    ("reports", "words"),
    [
        ((-1,), "reports -1 as the end"),
        ((50, 49), "reports 49 as the end of its log after 50"),
        ((101,), "there are bytes up to 100 only"),
        ((0x474554202F204854,), "there are bytes up to 100 only"),
    ],
)
def test_reports_that_cannot_be_are_refused(reports: tuple[int, ...], words: str) -> None:
    with pytest.raises(LinkError, match=words):
        ReportReader().feed(pack(f">{len(reports)}q", *reports), 100)


def test_flow_counts_seconds() -> None:
    flow = Flow(10.5)
    flow.sent(10.6, 300)
    assert (flow.left(10.9, 1000), flow.left(10.9, 200)) == (700, 0)
    assert flow.until_next(10.75) == 0.25
    assert (flow.left(11.0, 1000), flow.rate(11.5)) == (1000, 300)
    assert flow.rate(13.0) == 0
