"""The fast path is a short cut: with it and without it, a broker's responses and records are the same."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.conversation.fast_path_streams import Frames, Outcome, Wire, play, settings, stream

from orbitmq.broker.broker import Broker
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import decode_record, iter_records
from orbitmq.message.tags import java_hash
from orbitmq.testing import SimulatedRuntime
from orbitmq.wire.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder, decode_frame, encode_frame

ROOT = Path(__file__).resolve().parents[2]


def plain(response: Command) -> Any:
    """A response without random values, and without values that depend on their length."""
    ext = dict(response.ext)
    if "msgId" in ext:
        ext["msgId"] = str(len(ext["msgId"].split(",")))
    if len(ext.get("transactionId", "")) == 32 and ext["transactionId"].isalnum():
        ext["transactionId"] = "*"
    body: Any = response.body
    if response.code == 0 and body:
        body = [record(bytes_) for bytes_ in split(body)]
    return (response.code, response.remark, ext, body, response.flag, response.language, response.version)


def split(body: bytes) -> list[bytes]:
    parts = []
    at = 0
    for found in iter_records(body):
        parts.append(body[at : at + found.total_size])
        at += found.total_size
    return parts


def record(data: bytes) -> Any:
    found = decode_record(data)
    properties = decode_properties(found.properties)
    unique = properties.get("UNIQ_KEY", "")
    if len(unique) == 32 and unique.isalnum():
        properties["UNIQ_KEY"] = "*"
    if "__DELIVERY_OF" in properties:
        properties["__DELIVERY_OF"] = "*"  # a log offset, which depends on the order of properties
    return (
        found.topic, found.queue_id, found.queue_offset, found.flag, found.sys_flag, found.body,
        found.body_crc, found.born_timestamp, found.born_host[0], found.store_host,
        found.reconsume_times, found.prepared_transaction_offset, properties,
    )  # fmt: skip


def compare(ours: Outcome, theirs: Outcome) -> None:
    assert ours.responses.keys() == theirs.responses.keys()
    for opaque, response in ours.responses.items():
        assert plain(response) == plain(theirs.responses[opaque]), opaque
    assert ours.queues.keys() == theirs.queues.keys()
    for queue, records in ours.queues.items():
        other = theirs.queues[queue]
        assert [record(data) for data in records] == [record(data) for data in other], queue
    assert ours.messages == theirs.messages
    assert ours.closed == theirs.closed


@pytest.mark.behaviour("AU-26")
@pytest.mark.parametrize("seed", range(6))
def test_signed_requests_and_those_of_a_namespace_take_it_too(seed: int) -> None:
    first, rest = stream(seed, 120, Frames(seed, common=True))
    common: dict[str, Any] = {"seed": seed, "mapped_file_size_commit_log": 8 << 20}
    ours = play(first + rest, **common)
    compare(ours, play(first + rest, **common, fast=False))
    assert ours.taken > 25


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("seed", range(12))
def test_any_stream_has_the_same_outcome(seed: int, flush: str) -> None:
    first, rest = stream(seed, 120)
    # The log stays in one file: the end of a file depends on the order of properties, and on the time of
    # writes.
    common: dict[str, Any] = {"seed": seed, "flush_disk_type": flush, "mapped_file_size_commit_log": 8 << 20}
    ours = play(first + rest, **common)
    theirs = play(first + rest, **common, fast=False)
    compare(ours, theirs)
    assert all(ours.messages["T"][:2])  # normal messages, and messages with a sharding key
    assert ours.taken > 20
    assert theirs.taken == 0


def python(seed: int, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.conversation.fast_path_streams", str(seed)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_compiled_and_uncompiled_write_the_same_bytes() -> None:
    assert python(3, ORBITMQ_PURE="0") == python(3, ORBITMQ_PURE="1")


@pytest.mark.parametrize("seed", range(6))
def test_damaged_frames_leave_the_log_whole_and_others_served(seed: int) -> None:
    frames = Frames(seed)
    first = frames.warm_up()
    draw = frames.random
    damaged = []
    for _ in range(80):
        frame = bytearray(frames.any())
        # The frame's length stays right, since a wrong one only ends the connection.
        for _ in range(draw.choice([0, 1, 1, 3])):
            at = draw.randrange(4, len(frame))
            frame[at] = draw.choice([0, 1, 2, 0x22, 0x5C, 0x7F, 0x80, 0xFF, draw.randrange(256)])
        damaged.append(bytes(frame))
    for fast in (True, False):
        outcome = play([*first, *damaged], seed=seed, fast=fast)
        assert outcome.closed or len(outcome.responses) > 40
        for queue, records in outcome.queues.items():
            offsets = []
            for data in records:
                found = decode_record(data)
                assert found.total_size == len(data)
                offsets.append(found.queue_offset)
            assert offsets == list(range(len(offsets))), queue
        assert sum(found.total_size for found in iter_records(outcome.log)) == len(outcome.log)


async def test_who_does_not_want_to_wait_for_the_device_does_not_wait(runtime: SimulatedRuntime) -> None:
    async with Broker(runtime, settings(flush_disk_type="SYNC_FLUSH")) as broker:
        frames = Frames(1)
        wire = Wire(broker)
        wire.deliver(frames.send("T", plain=True))
        await asyncio.sleep(1)
        wire.raw.clear()
        wire.deliver(send_one(1, "WAIT\x01true\x02") + send_one(2, "WAIT\x01False\x02"))
        assert [command.opaque for command in answers(wire)] == [2]
        await asyncio.sleep(1)
        assert [command.opaque for command in answers(wire)] == [2, 1]
        assert broker.doors.fast_path is not None
        assert broker.doors.fast_path.messages_in == 2


def send_one(opaque: int, properties: str, **fields: str) -> bytes:
    ext = {"a": "pg", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
    return encode_frame(Command(310, {**ext, "i": properties, **fields}, b"body", opaque))


def answers(wire: Wire) -> list[Command]:
    decoder = FrameDecoder()
    decoder.feed(bytes(wire.raw))
    return list(decoder.commands())


def talk(chunks: list[bytes], **changes: Any) -> tuple[Outcome, Outcome]:
    first = Frames(1).warm_up()
    both = play([*first, *chunks], **changes), play([*first, *chunks], **changes, fast=False)
    compare(*both)
    return both


def test_a_body_that_never_fits_a_file_is_refused_and_not_tried_for_ever() -> None:
    frame = encode_frame(
        Command(310, dict(zip("abcdefgh", ("pg", "T", "x", "4", "0", "0", "1", "0"), strict=True)),
                b"x" * 4_000, 999)
    )  # fmt: skip
    many = encode_frame(
        Command(320, dict(zip("abcdefghm", ("pg", "T", "x", "4", "0", "0", "1", "0", "true"), strict=True)),
                (b"\0\0\0\x17" + bytes(12) + b"\0\0\0\x01" + b"y" + bytes(2)) * 256, 1000)
    )  # fmt: skip
    ours, _ = talk([frame, many, send_one(1001, "")], mapped_file_size_commit_log=8192)
    assert ours.responses[1001].code == 0


def test_address_bits_of_a_client_do_not_damage_the_record() -> None:
    ours, _ = talk([send_one(999, "", f="48"), send_one(1000, "")])
    found = decode_record(ours.queues["T", 0][-2])
    assert (found.sys_flag, found.body, found.born_host[0]) == (0, b"body", "127.0.0.1")


def test_numbers_beyond_their_field_are_refused() -> None:
    values = ("4294967296", "2147483648", "-2147483649", "-2147483648", "2147483647")
    chunks = [
        send_one(1000 + 100 * place + number, "", **{name: value})
        for place, name in enumerate("defghj")
        for number, value in enumerate(values)
    ]
    talk(chunks)


def test_long_names_of_the_broker_fit_everywhere() -> None:
    names = {"region_id": "r" * 5000, "broker_cluster_name": "c" * 5000}
    chunks = [send_one(1000 + n, "k\x01" + "v" * (22_000 + 97 * n) + "\x02") for n in range(12)]
    frames = Frames(4)
    ours, _ = talk(
        [*chunks, *(frames.batch("T") for _ in range(10))], mapped_file_size_commit_log=8 << 20, **names
    )
    codes = {ours.responses[1000 + n].code for n in range(12)}
    assert codes == {0, 13}


def test_a_group_with_thousands_of_tags_is_filtered_rightly() -> None:
    tags = {f"tag{n}" for n in range(3000)} | {"a"}
    subscription = SubscriptionData("T", "||".join(sorted(tags)), tags, {java_hash(tag) for tag in tags}, 5)
    beat = HeartbeatData("me", consumer_data_set=[ConsumerData("many", subscription_data_set=[subscription])])
    frames = Frames(5)
    first = [
        send_one(100 + n, f"TAGS\x01{tag}\x02")
        for n, tag in enumerate(["a", "other", "tag2999", "b", "tag7"] * 4)
    ]
    pulls = []
    for _ in range(4):
        for group in ("cg", "many"):
            pull = frames.pull("T", group, plain=True)
            command = decode_frame(pull)
            command.ext |= {"sysFlag": "0", "queueId": "0", "queueOffset": "0", "subVersion": "5",
                            "maxMsgNums": "32"}  # fmt: skip
            command.ext.pop("subscription", None)
            command.opaque += 5000
            pulls.append(encode_frame(command))
    ours, _ = talk([*first, encode_frame(Command(34, {}, beat.encode(), 99)), *pulls])
    counts = {opaque: len(split(ours.responses[opaque].body)) for opaque in ours.responses if opaque > 5000}
    assert len(set(counts.values())) == 2, counts


async def test_pulls_that_bring_tags_along_are_taken_once_the_expression_is_known(
    runtime: SimulatedRuntime,
) -> None:
    async with Broker(runtime, settings()) as broker:
        wire = Wire(broker)
        wire.deliver(b"".join(Frames(1).warm_up()))
        sent = [send_one(100 + n, f"TAGS\x01{tag}\x02") for n, tag in enumerate(["a", "b", "c", "a"])]
        wire.deliver(b"".join(sent))
        await asyncio.sleep(1)
        fast_path = broker.doors.fast_path
        assert fast_path is not None
        ext = {"consumerGroup": "free", "topic": "T", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32",
               "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0",
               "expressionType": "TAG"}  # fmt: skip
        taken, found = [], []
        for text in ("a", "a", "a || b", "a || b", "a"):
            before = fast_path.pulls_found
            wire.raw.clear()
            wire.deliver(encode_frame(Command(11, {**ext, "subscription": text}, b"", 900)))
            await asyncio.sleep(0.1)
            (answer,) = answers(wire)
            taken.append(fast_path.pulls_found - before)
            found.append(answer.body)
        assert taken == [0, 1, 0, 1, 1]
        assert found[0] == found[1] == found[4]
        assert found[2] == found[3]
        assert len(split(found[2])) > len(split(found[0])) >= 2
