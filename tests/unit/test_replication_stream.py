"""The stream between brokers of OrbitMQ: frames and greetings."""

from __future__ import annotations

import random
from struct import pack
from typing import Any

import pytest
from tests.seeds import seeds

from orbitmq.broker.config import BrokerConfig
from orbitmq.replication.link.come_again import MAX_REPLACED, ComeAgain
from orbitmq.replication.link.errors import LinkError
from orbitmq.replication.link.hello import Hello
from orbitmq.replication.link.identity import all_must_acknowledge
from orbitmq.replication.link.stream import (
    MAGIC,
    MAX_FRAME_BYTES,
    NO_HURRY,
    FrameKind,
    StreamReader,
    ack,
    frame,
    piece_header,
    read_ack,
)
from orbitmq.replication.link.stream_follower import copies_back

FILE_BYTES = 1 << 20


def test_it_can_be_told_from_a_report() -> None:
    assert int.from_bytes(MAGIC, "big", signed=True) < 0
    assert len(MAGIC) == 8


def test_a_piece_says_whether_its_acknowledgement_is_waited_for() -> None:
    reader = StreamReader(FILE_BYTES)
    reader.expected = 0
    assert reader.hurry
    for number, flags in enumerate((NO_HURRY, 0, NO_HURRY)):
        assert len(list(reader.feed(memoryview(piece_header(number, 1, flags) + b"x")))) == 1
        assert reader.hurry is (flags == 0)
    list(reader.feed(memoryview(frame(FrameKind.STATE, b"{}"))))
    assert not reader.hurry, "only pieces say"


@pytest.mark.parametrize("seed", seeds(10))
def test_frames_may_come_in_any_pieces(seed: int) -> None:
    source = random.Random(seed)
    log = source.randbytes(20_000)
    stream, sent, at = b"", [], 0
    while at < len(log):
        if source.random() < 0.3:
            payload = source.randbytes(source.randrange(300))
            stream += frame(FrameKind.STATE, payload)
            sent.append((at, payload))
        size = min(source.randrange(0, 900), len(log) - at)
        stream += piece_header(at, size) + log[at : at + size]
        at += size
    reader = StreamReader(FILE_BYTES)
    reader.expected = 0
    got, copied = [], b""
    while stream:
        cut = source.randrange(1, 700)
        for kind, offset, payload in reader.feed(memoryview(stream[:cut])):
            if kind is FrameKind.PIECE:
                assert offset == len(copied)
                copied += payload
            else:
                got.append((len(copied), bytes(payload)))
        stream = stream[cut:]
    assert (copied, got) == (log, sent)


def test_a_piece_that_comes_alone_is_read_as_any_other() -> None:
    reader = StreamReader(FILE_BYTES)
    reader.expected = 10
    for flags in (NO_HURRY, 0):
        alone = reader.only_piece(memoryview(piece_header(reader.expected, 3, flags) + b"abc"))
        assert alone is not None
        offset, piece = alone
        assert (offset, bytes(piece), reader.hurry) == (reader.expected - 3, b"abc", flags == 0)
    whole = piece_header(16, 3) + b"abc"
    others = [
        piece_header(16, 0), whole[:-1], whole[:12], whole + b"x", piece_header(17, 3) + b"abc",
        piece_header(-1, 3) + b"abc", frame(FrameKind.STATE, bytes(11)), frame(FrameKind.ACK, bytes(16)),
    ]  # fmt: skip
    assert [reader.only_piece(memoryview(each)) for each in others] == [None] * len(others)
    assert reader.expected == 16, "what is not taken changes nothing"
    list(reader.feed(memoryview(whole[:-1])))
    assert reader.only_piece(memoryview(piece_header(18, 3) + b"abc")) is None, "a byte is missing before it"
    list(reader.feed(memoryview(b"c" + MAGIC[:3])))
    assert reader.only_piece(memoryview(piece_header(19, 3) + b"abc")) is None, "a frame has begun before it"


def test_a_piece_that_comes_alone_crosses_no_border() -> None:
    reader = StreamReader(FILE_BYTES)
    reader.expected = FILE_BYTES - 2
    assert reader.only_piece(memoryview(piece_header(FILE_BYTES - 2, 3) + b"abc")) is None
    with pytest.raises(LinkError, match="crosses the border"):
        list(reader.feed(memoryview(piece_header(FILE_BYTES - 2, 3) + b"abc")))
    reader = StreamReader(FILE_BYTES)
    assert reader.only_piece(memoryview(piece_header(0, 3) + b"abc")) is None, "none was asked for"


def test_an_acknowledgement_that_comes_alone() -> None:
    reader = StreamReader(FILE_BYTES)
    assert reader.only_ack(ack(7, 5)) == (7, 5)
    assert reader.only_ack(ack(7, 5)[:-1]) is None
    assert reader.only_ack(ack(7, 5) * 2) is None
    assert reader.only_ack(frame(FrameKind.STATE, bytes(16))) is None
    list(reader.feed(memoryview(ack(7, 5)[:4])))
    assert reader.only_ack(ack(7, 5)) is None, "a frame has begun before it"


def test_acknowledgements() -> None:
    (found,) = StreamReader(FILE_BYTES).feed(memoryview(ack(7, 5)))
    assert (found[0], read_ack(bytes(found[2]))) == (FrameKind.ACK, (7, 5))
    with pytest.raises(LinkError, match="acknowledgement of 3 bytes"):
        read_ack(b"abc")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pack(">BxxxI", 99, 0), "frame of kind 99"),
        (pack(">BxxxI", FrameKind.STATE, MAX_FRAME_BYTES + 1), "frame STATE of 4194305 bytes"),
        (pack(">BxxxI", FrameKind.PIECE, 7), "frame PIECE of 7 bytes"),
        (pack(">BxxxI", FrameKind.PIECE, 2**31), "frame PIECE of 2147483648 bytes"),
        (piece_header(71, 5), "bytes for offset 71, this log ends at 70"),
        (piece_header(70, FILE_BYTES), "crosses the border of a file"),
    ],
)
def test_frames_that_lie_are_refused(data: bytes, words: str) -> None:
    reader = StreamReader(FILE_BYTES)
    reader.expected = 70
    with pytest.raises(LinkError, match=words):
        list(reader.feed(memoryview(data)))


def test_no_piece_comes_unasked() -> None:
    with pytest.raises(LinkError, match="before it was asked"):
        list(StreamReader(FILE_BYTES).feed(memoryview(piece_header(0, 5))))


def hello(**changes: object) -> Hello:
    values: dict[str, object] = {
        "cluster": "c", "group": "g", "broker_id": 0, "address": "a:1", "run": "r", "role": "master",
        "term": 0, "file_bytes": 100, "begin": 0, "end": 0,
    }  # fmt: skip
    return Hello(**{**values, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "is this broker itself"),
        ({"run": "s"}, "b:2 has brokerId 0 as a:1 has"),
        ({"run": "s", "broker_id": 1, "group": "h"}, "b:2 is of group h of cluster c, this broker is of g"),
        (
            {"run": "s", "broker_id": 1, "file_bytes": 50},
            "mappedFileSizeCommitLog is 50 at b:2 and 100 at a:1",
        ),
        ({"run": "s", "broker_id": 1}, ""),
    ],
)
def test_who_is_refused(changes: dict[str, object], words: str) -> None:
    refusal = hello().refuses(hello(**{"address": "b:2", **changes}))
    assert words in refusal
    assert bool(words) == bool(refusal)


def test_greetings_that_cannot_be() -> None:
    assert Hello.decode(hello(end=5).encode()[8:]).end == 5
    for bad in (b"x", b"{}", hello(begin=5).encode()[8:], hello(marks=[(0, 0, 0)] * 5000).encode()[8:]):
        with pytest.raises(LinkError):
            Hello.decode(bad)


@pytest.mark.behaviour("PO-26")
@pytest.mark.parametrize(
    ("role", "keeps_own", "common", "has", "copies"),
    [
        ("pre-online", True, 600, 600, True),
        ("pre-online", True, 600, 800, False),  # the master has taken other messages since
        ("pre-online", False, 600, 800, True),  # without its slave the master acknowledged none of them
        ("pre-online", True, 0, 800, True),  # a new disk: the logs have nothing in common
        # the slave waits for the master's link, the master for a copy that never came
        ("pre-online", False, 600, 1000, False),
        ("pre-online", False, 600, 1200, False),
        ("master", True, 600, 600, True),
        ("fenced master", True, 600, 600, True),
        ("fenced master", True, 600, 800, False),
        ("master", True, 600, 1200, False),
    ],
)
def test_what_a_master_copies_back_from_a_log_that_ends_at_1000(
    role: str, keeps_own: bool, common: int, has: int, copies: bool
) -> None:
    master = hello(role=role, copies_back=True, keeps_own=keeps_own)
    assert copies_back(master, common, has, 0, 1000) is copies


@pytest.mark.behaviour("PO-26")
@pytest.mark.parametrize(
    ("settings", "all_must"),
    [
        ({}, False),
        ({"broker_role": "SYNC_MASTER", "total_replicas": 2, "in_sync_replicas": 2}, True),
        ({"broker_role": "SYNC_MASTER", "total_replicas": 3, "in_sync_replicas": 2}, False),
        ({"broker_role": "ASYNC_MASTER", "total_replicas": 2, "in_sync_replicas": 2}, False),
        (
            {
                "broker_role": "SYNC_MASTER",
                "total_replicas": 2,
                "in_sync_replicas": 2,
                "enable_auto_in_sync_replicas": True,
            },
            False,
        ),
        (
            {
                "broker_role": "SYNC_MASTER",
                "total_replicas": 2,
                "min_in_sync_replicas": 2,
                "all_ack_in_sync_state_set": True,
            },
            True,
        ),
    ],
)
def test_when_nothing_is_acknowledged_that_a_replica_lacks(settings: dict[str, Any], all_must: bool) -> None:
    assert all_must_acknowledge(BrokerConfig(**settings)) is all_must


def test_a_master_that_does_not_say_so_copies_nothing_back() -> None:
    assert not copies_back(hello(role="master"), 600, 600, 0, 1000)


@pytest.mark.behaviour("PO-27")
def test_a_process_that_comes_again_or_anew_replaces_its_older_link() -> None:
    links, first = ComeAgain(), hello(run="1")
    assert links.replaces(first, first)
    assert links.replaces(hello(run="1", address="10.0.0.9:1"), first)
    assert links.replaces(hello(run="2"), first)
    assert not links.replaces(hello(run="3", broker_id=first.broker_id + 1), first)


@pytest.mark.behaviour("PO-27")
def test_two_that_live_with_one_id_keep_their_links() -> None:
    links, first, second = ComeAgain(), hello(run="1"), hello(run="2")
    assert not links.replaces(hello(run="2", address="10.0.0.9:1"), first)
    # If they also have the same address, each link except one is ended once.
    assert links.replaces(second, first)
    assert not links.replaces(first, second)
    assert not links.replaces(first, second)
    for run in range(3, 3 + MAX_REPLACED):
        assert links.replaces(hello(run=f"{run}"), second)
