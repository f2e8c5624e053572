"""Damaged conversations of gRPC clients, made from a seed: bytes, frames, and messages in whole frames."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Self, cast

from tests.conversation.grpc_client import PATH, prefixed
from tests.conversation.grpc_rpc import PORT, RpcClient, message, resource

from orbitmq.broker.broker import Broker
from orbitmq.gateway import schema
from orbitmq.gateway.frames import FRAME_BYTES, PREFACE
from orbitmq.gateway.hpack import block_of
from orbitmq.gateway.messages import new
from orbitmq.gateway.schema import ClientType

if TYPE_CHECKING:
    from random import Random

NO_SETTINGS: Final = b"\0\0\0\4\0\0\0\0\0"
# Numbers at the borders of what fields, lengths and varints may be.
ODD: Final = (b"\0", b"\xff", b"\x7f", b"\x80\x80\x80\x80\x80\x01", b"\xff" * 9 + b"\x01", b"\0" * 16)


class Raw(asyncio.Protocol):
    """A client that sends bytes unchanged and keeps the received ones unread."""

    def __init__(self) -> None:
        self.received = b""
        self.gone = asyncio.Event()

    async def connect(self, broker: Broker, beginning: bytes = PREFACE + NO_SETTINGS) -> Self:
        transport, _ = await broker.runtime.network.connect(lambda: self, "127.0.0.1", PORT)
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(beginning)
        return self

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()

    async def opens(self, count: int, name: str, settings: schema.Settings, first: int = 0) -> None:
        """Open Telemetry streams, each for a client id of its own, and send the settings on each."""
        said = new(schema.TelemetryCommand, settings=settings).SerializeToString()
        for number in range(first, first + count):
            self.transport.write(call(2 * number + 1, "Telemetry", said, f"{name}-{number}"))
            if number % 100 == 99:
                await asyncio.sleep(0.01)
        await asyncio.sleep(1)

    def end(self, first: int, count: int) -> None:
        """Reset these streams."""
        for number in range(first, first + count):
            self.transport.write(frame(3, 0, 2 * number + 1, b"\0\0\0\x08"))


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def call(stream: int, method: str, data: bytes, client_id: str = "fuzz", *, end: bool = False) -> bytes:
    """The frames of a call with one message."""
    block = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", PATH + method),
        (":authority", "here:1"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("x-mq-client-id", client_id),
    ]
    body = prefixed(data)[:FRAME_BYTES]
    head = frame(1, 4, stream, block_of([(name.encode(), value.encode()) for name, value in block]))
    return head + frame(0, int(end), stream, body)


def requests(rpc: RpcClient, handle: str) -> list[tuple[str, bytes]]:
    """A valid request of each method."""
    group, topic = resource("cg"), resource("T")
    producer, consumer = (rpc.settings(kind) for kind in (ClientType.PRODUCER, ClientType.PUSH_CONSUMER))
    forms: Sequence[tuple[str, schema.Form]] = [
        ("QueryRoute", new(schema.QueryRouteRequest, topic=topic)),
        ("QueryAssignment", new(schema.QueryAssignmentRequest, topic=topic, group=group)),
        ("Heartbeat", new(schema.HeartbeatRequest, group=group, client_type=ClientType.PUSH_CONSUMER)),
        ("Telemetry", new(schema.TelemetryCommand, settings=producer)),
        ("Telemetry", new(schema.TelemetryCommand, settings=consumer)),
        ("SendMessage", new(schema.SendMessageRequest, messages=[message(), message(b"x" * 300)])),
        ("SendMessage", new(schema.SendMessageRequest, messages=[message(properties={"a": "b"}, tag="t")])),
        ("ReceiveMessage", rpc.receive_request(wait_ms=0)),
        ("ReceiveMessage", rpc.receive_request(wait_ms=20_000, renew=True)),
        (
            "AckMessage",
            new(
                schema.AckMessageRequest,
                group=group,
                topic=topic,
                entries=[new(schema.AckMessageEntry, message_id="m", receipt_handle=handle)],
            ),
        ),
        (
            "ChangeInvisibleDuration",
            new(schema.ChangeInvisibleDurationRequest, group=group, topic=topic, receipt_handle=handle),
        ),
        (
            "ForwardMessageToDeadLetterQueue",
            new(
                schema.ForwardMessageToDeadLetterQueueRequest, group=group, topic=topic, receipt_handle=handle
            ),
        ),
        (
            "EndTransaction",
            new(schema.EndTransactionRequest, topic=topic, transaction_id="x", message_id="y"),
        ),
        ("RecallMessage", new(schema.RecallMessageRequest, topic=topic, recall_handle="z")),
        ("NotifyClientTermination", new(schema.NotifyClientTerminationRequest, group=group)),
    ]
    return [(method, form.SerializeToString()) for method, form in forms]


def damaged(dice: Random, data: bytes) -> bytes:
    """The same bytes with one to four random defects."""
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(6):
            case 0:
                data = data[:at]
            case 1:
                data = data[:at] + dice.choice(ODD) + data[at:]
            case 2:
                data = data[:at] + dice.randbytes(dice.randint(1, 8)) + data[at + dice.randint(0, 8) :]
            case 3:
                end = at + dice.randint(1, 40)
                data = data[:end] + data[at:end] * dice.randint(1, 30) + data[end:]
            case 4:
                data = data[:at] + data[at + dice.randint(1, 20) :]
            case _:
                data = (
                    data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]
                    if data[at:]
                    else data
                )
    return data


def conversation(dice: Random, good: Sequence[tuple[str, bytes]]) -> bytes:
    """The bytes of one connection: some calls, of which none or one is damaged."""
    calls = dice.choices(good, k=dice.randint(1, 4))
    layer = dice.choice(("messages", "frames", "bytes"))
    data = b""
    for number, (method, sent) in enumerate(calls):
        one = damaged(dice, sent) if layer == "messages" and dice.random() < 0.8 else sent
        whole = call(2 * number + 1, method, one, f"fuzz-{dice.randrange(5)}", end=dice.random() < 0.7)
        if layer == "frames":
            whole = _odd_frame(dice, len(calls)) + whole + _odd_frame(dice, len(calls))
        data += whole
    beginning = PREFACE + NO_SETTINGS
    return damaged(dice, beginning + data) if layer == "bytes" else beginning + data


def _odd_frame(dice: Random, calls: int) -> bytes:
    """A frame of any kind, with any flags, of any stream."""
    payload = dice.choice((b"", dice.randbytes(dice.randint(0, 60)), dice.choice(ODD) * dice.randint(1, 50)))
    stream = dice.choice((0, dice.randrange(2 * calls + 3), 2**31 - 1))
    return frame(dice.randrange(12), dice.choice((0, 1, 4, 5, 8, 0x20, 0xFF)), stream, payload)
