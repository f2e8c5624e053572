"""Streams of frames for a broker with and without its fast path, and their effects. Shared by tests.

``python -m tests.conversation.fast_path_streams SEED`` prints a digest of all responses and stored bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.message.record import iter_records
from orbitmq.message.tags import java_hash
from orbitmq.runtime.client_names import CertificateName
from orbitmq.store.queues import layout
from orbitmq.testing.machine.simulated import run, simulated_runtime
from orbitmq.wire.bodies.client import ConsumerData, HeartbeatData, SubscriptionData
from orbitmq.wire.command import Command, Serialization
from orbitmq.wire.frame import FrameDecoder, encode_frame

TOPICS = ("T", "U", "topic-with-a-longer-name")
ONE_WAY = 2
SUSPEND = 2
SUBSCRIPTION = 4


@dataclass
class Outcome:
    """The effects of a stream on a broker: responses by opaque, records by (topic, queue), the bytes of the
    log.

    Attributes:
        messages: for each topic the number of messages of each type.
    """

    responses: dict[int, Command]
    queues: dict[tuple[str, int], list[bytes]]
    messages: dict[str, list[int]]
    log: bytes
    taken: int  # messages that went through the fast path
    closed: bool
    raw: bytes


class Wire(asyncio.Transport):
    """The broker's end of a connection that delivers chunks exactly as they are given."""

    def __init__(self, broker: Broker) -> None:
        server = broker.doors.server
        assert server is not None
        super().__init__({"peername": ("127.0.0.1", 40_000), "sockname": ("127.0.0.1", broker.port)})
        self.raw = bytearray()
        self.closed = False
        self._protocol: Any = server._connection()
        self._protocol.connection_made(self)

    def show(self, user: str) -> None:
        """From this point on the connection counts as one over TLS, whose client's certificate names this
        user.
        """
        self._protocol.secured = True
        self._protocol.certificate = CertificateName(user)

    def deliver(self, data: bytes) -> None:
        while data and not self.closed:
            room = self._protocol.get_buffer(-1)
            piece = data[: len(room)]
            room[: len(piece)] = piece
            self._protocol.buffer_updated(len(piece))
            data = data[len(piece) :]

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.raw += data

    def writelines(self, parts: Iterable[bytes | bytearray | memoryview]) -> None:
        for part in parts:
            self.raw += part

    def pause_reading(self) -> None:
        """Ignore the request: chunks are delivered regardless."""

    def resume_reading(self) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)


def settings(**changes: Any) -> BrokerConfig:
    values: dict[str, Any] = {
        "listen_port": 10911,
        "store_path_root_dir": "/store",
        "mapped_file_size_commit_log": 64 * 1024,
        "mapped_file_size_consume_queue": 6000,
        "max_message_size": 20_000,
    }
    return BrokerConfig(**{**values, **changes})


def play(
    chunks: list[bytes],
    *,
    fast: bool = True,
    seed: int = 0,
    certified: dict[int, str] | None = None,
    **changes: Any,
) -> Outcome:
    """Send the chunks one after the other to a new broker; ``fast`` False switches its fast path off.

    Args:
        certified: the user whom the client's certificate names from a chunk on, by the number of that chunk.
    """

    async def main() -> Outcome:
        runtime = simulated_runtime(seed=seed)
        async with Broker(runtime, settings(**changes)) as broker:
            fast_path = broker.doors.fast_path
            assert fast_path is not None
            if not fast:
                broker.doors.fast_path = None
            wire = Wire(broker)
            for number, chunk in enumerate(chunks):
                if certified and number in certified:
                    wire.show(certified[number])
                wire.deliver(chunk)
                await asyncio.sleep(0.05)
            await asyncio.sleep(60)
            decoder = FrameDecoder()
            decoder.feed(bytes(wire.raw))
            responses = {command.opaque: command for command in decoder.commands()}
            assert decoder.buffered_bytes == 0
            return Outcome(
                responses, _stored(broker), _messages(broker), _log(broker), fast_path.messages_in,
                wire.closed, bytes(wire.raw),
            )  # fmt: skip

    return run(main())


def _stored(broker: Broker) -> dict[tuple[str, int], list[bytes]]:
    store = broker.services.store
    found: dict[tuple[str, int], list[bytes]] = {}
    for topic, known in store.queues.topics.items():
        for queue_id in range(len(known.slots)):
            records: list[bytes] = []
            offset = store.min_offset(topic, queue_id)
            while offset < store.max_offset(topic, queue_id):
                result = store.get(topic, queue_id, offset, 1000)
                assert result.next_offset > offset
                at = 0
                for record in iter_records(result.body):
                    records.append(result.body[at : at + record.total_size])
                    at += record.total_size
                offset = result.next_offset
            if records:
                found[topic, queue_id] = records
    return found


def _messages(broker: Broker) -> dict[str, list[int]]:
    store = broker.services.store
    found = {}
    for topic in store.queues.topics:
        counts = store.topic_counts(topic)
        starts = range(0, len(counts), layout.TYPE_WIDTH)
        found[topic] = [sum(counts[start : start + layout.TYPE_BYTES]) for start in starts]
    return found


def _log(broker: Broker) -> bytes:
    store = broker.services.store
    parts = []
    offset = store.min_commit_log_offset
    while offset < store.max_commit_log_offset:
        record = store.record_at(offset)
        if record is None:
            size = store.config.commit_log_file_bytes
            offset += size - offset % size
            continue
        parts.append(record)
        offset += len(record)
    return b"".join(parts)


# -- frames ------------------------------------------------------------------------------------------------


# Fields that clients add to every request; the values of the last ones need escapes in a JSON header.
COMMON = {
    "AccessKey": "app", "Signature": "5vpFZ/6WlDkQH0+9bnGxbLuHXHg=", "SecurityToken": "lent", "ns": "shop",
    "nsd": "true", "ReqT": "0", "__ZONE_NAME": "z1", "__ZONE_MODE": '"true"',
}  # fmt: skip


class Frames:
    """Draws random frames: plain ones, and some that the fast path leaves to a handler.

    Args:
        common: whether most frames carry some of the fields of ``COMMON``.
    """

    def __init__(self, seed: int, *, common: bool = False) -> None:
        self.random = random.Random(seed)
        self.opaque = 0
        self._common = common

    def command(self, code: int, ext: dict[str, str], body: bytes = b"", flag: int = 0) -> bytes:
        self.opaque += 1
        if self._common and self.random.random() < 0.8:
            names = self.random.sample(list(COMMON), self.random.randrange(len(COMMON)))
            ext = {**ext, **{name: COMMON[name] for name in names}}
        kind = self.random.choice(list(Serialization))
        return encode_frame(Command(code, ext, body, self.opaque, flag, serialization=kind))

    def warm_up(self) -> list[bytes]:
        """Create the topics, register a group, and pull once, so that the fast path may answer pulls."""
        frames = [self.send(topic, plain=True) for topic in TOPICS for _ in range(2)]
        subscriptions = [
            SubscriptionData("T", "a||b", {"a", "b"}, {java_hash("a"), java_hash("b")}, 5),
            SubscriptionData("U", "*", set(), set(), 5),
        ]
        beat = HeartbeatData(
            "me", consumer_data_set=[ConsumerData("cg", subscription_data_set=subscriptions)]
        )
        frames.append(self.command(34, {}, beat.encode()))
        frames += [self.pull(topic, group, plain=True) for topic in TOPICS for group in ("cg", "free")]
        return frames

    def any(self) -> bytes:
        return self.any_pull() if self.random.random() < 0.3 else self.any_send()

    def any_send(self) -> bytes:
        topic = self.random.choice(TOPICS)
        return self.send(topic) if self.random.random() < 0.85 else self.batch(topic)

    def any_pull(self) -> bytes:
        return self.pull(self.random.choice(TOPICS), self.random.choice(["cg", "cg", "free", "none"]))

    def properties(self) -> str:
        draw = self.random
        found = []
        if draw.random() < 0.7:
            found.append(("TAGS", draw.choice(["a", "b", "c", "a-much-longer-tag", "\u00e9t\u00e9"])))
        if draw.random() < 0.5:
            found.append(
                ("KEYS", draw.choice(["k1 k2", '"quoted"', "back\\slash", "\u4e2d", "tab\t", "a/b"]))
            )
        if draw.random() < 0.3:
            found.append(("UNIQ_KEY", draw.choice(["ABC" * 10, "x" * 128, "x" * 129, 'q"q', "\u00fc", "1"])))
        if draw.random() < 0.2:
            found.append(("WAIT", draw.choice(["true", "false", "FALSE", "TRUE", "maybe"])))
        if draw.random() < 0.08:
            names = "DELAY POP_CK REAL_TOPIC CLUSTER MSG_REGION TRACE_ON k __STARTDELIVERTIME"
            name = draw.choice(names.split())
            found.append((name, draw.choice(["0", "x", ""])))
        if draw.random() < 0.1:
            found.append(("__SHARDINGKEY", "order 7"))
        if draw.random() < 0.05:
            found.append(("TAGS", "again"))
        if draw.random() < 0.05:
            found.append(("big", "v" * draw.choice([300, 5000])))
        text = "".join(f"{name}\x01{value}\x02" for name, value in found)
        return text[:-1] if text and draw.random() < 0.2 else text

    def send(self, topic: str, *, plain: bool = False) -> bytes:
        draw = self.random
        ext = {
            "producerGroup": "pg", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
            "queueId": str(draw.randrange(4)), "sysFlag": "0", "bornTimestamp": str(draw.randrange(1 << 45)),
            "flag": str(draw.choice([0, 7, -3])), "properties": self.properties(), "reconsumeTimes": "0",
            "unitMode": "false", "maxReconsumeTimes": "16", "batch": "false", "bname": "broker-a",
        }  # fmt: skip
        if plain:
            ext["properties"] = "TAGS\x01a\x02"
        elif draw.random() < 0.25:
            self.spoil(ext)
        names = list(ext)
        if draw.random() < 0.3:
            names = [name for name in names if name not in ("reconsumeTimes", "unitMode", "batch", "bname")]
        body = draw.randbytes(draw.choice([1, 8, 128, 1000]))
        if not plain and draw.random() < 0.05:
            body = draw.choice([b"", b"x" * 20_000, b"x" * 20_001, b"x" * 40_000])
        flag = ONE_WAY if not plain and draw.random() < 0.1 else 0
        if draw.random() < 0.3:
            return self.command(10, {name: ext[name] for name in names}, body, flag)
        letters = dict(zip(SEND_NAMES, "abcdefghijklmn", strict=True))
        short = {letters.get(name, name): ext[name] for name in names}
        return self.command(310 if draw.random() < 0.97 else 320, short, body, flag)

    def spoil(self, ext: dict[str, str]) -> None:
        """Make the fields of a send, or of a pull, unusual in one way."""
        draw = self.random
        name = draw.choice(list(ext))
        if name == "bornTimestamp" and draw.random() < 0.5:
            ext[name] = str(2**62)
            return
        what = draw.randrange(6)
        if what == 0:
            del ext[name]
        elif what == 1:
            ext[name] = draw.choice(
                ["", "-1", "+1", "007", "9", "2147483647", "2147483648", "-2147483648", "4294967296", "1e3",
                 "99999999999999999999", " 1", "\u0661", "0x1"]
            )  # fmt: skip
        elif what == 2:
            ext[name] = draw.choice(["true", "false", "TRUE", "fooey", "True", "yes"])
        elif what == 3:
            ext[draw.choice(["extra", "lo", "ns", "topic", "b", "queueId", "e"])] = draw.choice(
                ["1", "T", "x"]
            )
        elif what == 4 and "sysFlag" in ext:
            ext["sysFlag"] = str(draw.choice([1, 4, 8, 12, 16, 32, 48, 64, 128, 1 << 20]))
        elif name != "properties":
            ext[name] = draw.choice(["nowhere", 'a"b', "back\\slash", "\u00e9", "\n", "T\x00"])

    def batch(self, topic: str) -> bytes:
        draw = self.random
        items = []
        for _ in range(draw.choice([1, 2, 3, 30])):
            body = draw.randbytes(draw.choice([1, 20, 100]))
            properties = self.properties().encode()
            items.append(
                struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, draw.randrange(9), len(body))
                + body + struct.pack(">h", len(properties)) + properties
            )  # fmt: skip
        body = b"".join(items)
        if draw.random() < 0.1:
            at = draw.randrange(len(body))
            body = body[:at] + draw.randbytes(1) + body[at + 1 :]
        ext = {
            "a": "pg", "b": topic, "c": "TBW102", "d": "4", "e": str(draw.randrange(4)), "f": "0", "g": "77",
            "h": "0", "m": "true" if draw.random() < 0.95 else draw.choice(["false", "yes", "TRUE"]),
        }  # fmt: skip
        if draw.random() < 0.3:
            ext["i"] = draw.choice(["WAIT\x01false\x02", "UNIQ_KEY\x01batch\x02", "DELAY\x013\x02"])
        return self.command(320, ext, body)

    def pull(self, topic: str, group: str, *, plain: bool = False) -> bytes:
        draw = self.random
        own = group != "cg" or draw.random() < 0.3
        ext = {
            "consumerGroup": group, "topic": topic, "queueId": str(draw.randrange(4)),
            "queueOffset": str(draw.choice([0, 0, 1, 3, 10, 10_000])),
            "maxMsgNums": str(draw.choice([1, 2, 32, 5000])), "sysFlag": "4" if own else "0",
            "commitOffset": "0", "suspendTimeoutMillis": "1000", "subVersion": str(draw.choice([0, 5, 5, 6])),
            "expressionType": "TAG",
        }  # fmt: skip
        if own:
            ext["subscription"] = draw.choice(["*", "*", "*", "a", "a || b"])
        if draw.random() < 0.2:
            ext["maxMsgBytes"] = str(draw.choice([0, 1, 400, 300_000, 9_000_000, -1]))
        if draw.random() < 0.1:
            ext["sysFlag"] = str(int(ext["sysFlag"]) | draw.choice([1, 2, 8]))
        if not plain and draw.random() < 0.2:
            self.spoil(ext)
        return self.command(draw.choice([11, 11, 11, 361]), ext)


SEND_NAMES = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp",
    "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch", "bname",
)  # fmt: skip


def cut(stream: bytes, draw: random.Random, largest: int = 4000) -> list[bytes]:
    """The stream in pieces of random sizes."""
    chunks = []
    at = 0
    while at < len(stream):
        size = draw.choice([1, 3, 60, 700, largest])
        chunks.append(stream[at : at + size])
        at += size
    return chunks


def stream(seed: int, count: int, frames: Frames | None = None) -> tuple[list[bytes], list[bytes]]:
    """Chunks that warm a broker up, and chunks of ``count`` frames of all kinds.

    Sends and pulls never share a chunk: the store decides how many messages of its own chunk a pull finds.
    """
    frames = frames or Frames(seed)
    first = frames.warm_up()
    chunks: list[bytes] = []
    alike: list[bytes] = []
    pulling = False
    for _ in range(count):
        pulls = frames.random.random() < 0.3
        if pulls != pulling:
            chunks += cut(b"".join(alike), frames.random)
            alike, pulling = [], pulls
        alike.append(frames.any_pull() if pulls else frames.any_send())
    return first, chunks + cut(b"".join(alike), frames.random)


def digest(seed: int) -> str:
    """The digest of all responses and of the log; the process id, which message ids contain, is fixed."""
    os.getpid = lambda: 7
    first, rest = stream(seed, 150)
    outcome = play(first + rest, seed=seed)
    return hashlib.sha256(outcome.raw + b"|" + outcome.log).hexdigest() + f" {outcome.taken}"


if __name__ == "__main__":
    print(digest(int(sys.argv[1])))
