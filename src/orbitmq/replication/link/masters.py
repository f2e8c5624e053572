"""A master's end of one link, for both protocols that followers speak."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from msgspec import structs

from orbitmq.broker.config import BrokerConfig
from orbitmq.replication.link import stream
from orbitmq.replication.link.classic import MAX_DATA_BYTES, ReportReader, data_frame_header
from orbitmq.replication.link.errors import LinkError, RefusedError
from orbitmq.replication.link.hello import Hello, first_match
from orbitmq.replication.link.identity import BrokerIdentity
from orbitmq.replication.link.peers import Peers
from orbitmq.replication.link.proof import FollowerProof, Keyring
from orbitmq.replication.link.sealing import Sealing
from orbitmq.replication.link.sending import LogSender, Pace
from orbitmq.replication.link.stream import FrameKind, StreamReader
from orbitmq.replication.replicas import Replicas
from orbitmq.runtime.seam import Clock
from orbitmq.store.ports import CopiedLog

# The most bytes that a follower may send before the log is sent to it.
MAX_HELLO_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class HaPortParts:
    """The parts that all links of one HA port share."""

    clock: Clock
    config: BrokerConfig
    store: CopiedLog
    pace: Pace
    replicas: Replicas
    peers: Peers
    identity: BrokerIdentity
    keys: Keyring


class MasterEnd(Protocol):
    """The master's end of the link to one follower.

    Attributes:
        sender: sends the log to the follower; ``None`` until the follower has sent the place to begin at.
    """

    sender: LogSender | None

    def __hash__(self) -> int: ...

    def receive(self, data: bytes, now: float) -> None:
        """Handle received bytes.

        Raises:
            LinkError, ReportError: the bytes are not valid.
        """
        ...

    def gone(self, now: float) -> None:
        """Handle the end of the connection."""
        ...


def _sender(
    port: HaPortParts,
    transport: asyncio.Transport,
    position: int,
    header: Callable[[int, int], bytes],
    piece_bytes: int,
) -> LogSender:
    def awaited() -> bool:
        return port.replicas.awaited

    return LogSender(port.clock, port.store, port.pace, transport, position, header, piece_bytes, awaited)


class ClassicMaster:
    """The end of a link to a follower that speaks RocketMQ's protocol. It does not name itself, so each
    address has one vote.

    Args:
        host: the follower's address.
    """

    def __init__(self, port: HaPortParts, transport: asyncio.Transport, host: str) -> None:
        self._port = port
        self._transport = transport
        self._host = host
        self._reports = ReportReader()
        self.sender: LogSender | None = None

    def receive(self, data: bytes, now: float) -> None:
        store = self._port.store
        limit = self.sender.cursor.position if self.sender else store.max_commit_log_offset
        for reported in self._reports.feed(data, limit):
            if self.sender is None:
                begin, piece_bytes = self._begin(reported), self._port.config.ha_transfer_batch_size
                self.sender = _sender(self._port, self._transport, begin, data_frame_header, piece_bytes)
                self._port.replicas.connected(self, self._host, now)
            self._port.replicas.reported(self, reported, reported, now)
            self.sender.pump()

    def _begin(self, end: int) -> int:
        """The place from which to send the log to a follower whose log ends at ``end``.

        A follower without a log gets the newest file.
        """
        first = self._port.store.min_commit_log_offset
        if 0 < end < first:
            raise RefusedError(
                f"the slave's log ends at {end}, the master's begins at {first}: what is between is deleted. "
                "Stop it, empty its store folder, start it again"
            )
        return end or self._port.store.raw.last_file_start

    def gone(self, now: float) -> None:
        self._port.replicas.gone(self, now)


class StreamMaster:
    """The end of a link to a follower of OrbitMQ.

    Attributes:
        hello: the follower's last greeting; ``None`` before the first.
        checked: the check of the follower's proof that it has the keys.
    """

    is_master = False

    def __init__(
        self, port: HaPortParts, transport: asyncio.Transport, close: Callable[[str], object]
    ) -> None:
        self._port = port
        self._transport = transport
        self._close = close
        self._reader = StreamReader(port.store.config.commit_log_file_bytes)
        self._received = 0
        self.checked = FollowerProof(port.keys)
        self._sealing: Sealing | None = None
        self.hello: Hello | None = None
        self.sender: LogSender | None = None

    # -- as the other parts of replication see it ------------------------------------------------------

    @property
    def broker_id(self) -> int:
        return self.hello.broker_id if self.hello is not None else -1

    @property
    def address(self) -> str:
        return self.hello.address if self.hello is not None else ""

    @property
    def sealed(self) -> bool:
        return self._sealing is not None

    def send(self, kind: FrameKind, payload: bytes) -> None:
        if self.sender is not None:
            self.sender.send_gathered()
        if self._transport.get_write_buffer_size() > stream.MAX_WAITING_BYTES:
            self._close(f"more than {stream.MAX_WAITING_BYTES} bytes wait for it")
        else:
            sealed = payload if self._sealing is None else self._sealing.seal(kind, payload)
            self._transport.write(stream.frame(kind, sealed))

    # -- received frames -------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> None:
        self._received += len(data)
        if self.sender is None and self._received > MAX_HELLO_BYTES:
            raise LinkError(f"it sends {self._received} bytes before it follows")
        told = self._reader.only_ack(data) if self.sender is not None else None
        if told is not None:  # nearly always true
            self._acknowledged(*told, now)
            return
        for kind, _, payload in self._reader.feed(memoryview(data)):
            if kind is FrameKind.HELLO:
                self._greeted(Hello.decode(payload), now)
            elif self.sender is None:
                raise LinkError(f"it sends a frame {kind.name} before it follows")
            elif kind is FrameKind.ACK:
                self._acknowledged(*stream.read_ack(payload), now)
            else:
                self._port.replicas.note_alive(self, now)
                self._port.peers.received(self, kind, self._opened(kind, payload.tobytes()))

    def _opened(self, kind: FrameKind, payload: bytes) -> bytes:
        return payload if self._sealing is None else self._sealing.open(kind, payload)

    def _greeted(self, hello: Hello, now: float) -> None:
        if self.sender is not None:
            raise LinkError("it says hello again while it follows")
        self.hello = hello
        store, own = self._port.store, self._port.identity.hello()
        try:
            if refusal := own.refuses(hello):
                raise RefusedError(refusal)
            answer = self.checked.answer(own, hello)
        except RefusedError as error:
            self._transport.write(structs.replace(own, refusal=str(error)).encode())
            raise
        if answer is not None:
            self._transport.write(answer.encode())
            return
        self._port.peers.greeted(hello.broker_id, hello.address, hello.end, hello.term)
        if hello.start < 0:
            matched = first_match(hello.marks, store.raw.data, own.begin, own.end)
            self._transport.write(structs.replace(own, matched=matched).encode())
            if own.end < hello.end and matched >= 0 and hello.marks[matched][1] == own.end:
                self._port.peers.longer(hello.broker_id, hello.address)
        elif not own.begin <= hello.start <= own.end:
            raise LinkError(
                f"the slave requests the log from {hello.start} on; it goes from {own.begin} to {own.end}"
            )
        else:
            self._begin(hello, now)

    def _header(self, offset: int, size_bytes: int) -> bytes:
        flags = 0 if self._port.replicas.awaited else stream.NO_HURRY
        return stream.piece_header(offset, size_bytes, flags)

    def _begin(self, hello: Hello, now: float) -> None:
        self.sender = _sender(self._port, self._transport, hello.start, self._header, MAX_DATA_BYTES)
        self._port.replicas.connected(self, hello.broker_id, now)
        self._port.identity.comparison.compare(hello.address, hello.alike)
        self._sealing = self.checked.sealing(hello)
        self._port.peers.opened(self)
        self.sender.pump()

    def _acknowledged(self, received: int, durable: int, now: float) -> None:
        assert self.sender is not None
        if received > self.sender.cursor.position:
            raise LinkError(f"it has received {received}, it was sent {self.sender.cursor.position}")
        self._port.replicas.reported(self, received, durable, now)

    def gone(self, now: float) -> None:
        self._port.replicas.gone(self, now)
        self._port.peers.closed(self)
