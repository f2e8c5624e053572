"""How two brokers of OrbitMQ greet each other: their identities, and where their logs agree."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from orbitmq.replication.link.errors import LinkError
from orbitmq.replication.link.stream import FrameKind, frame

# Where a block begins, where it ends, and its CRC-32.
Mark: TypeAlias = tuple[int, int, int]
MAX_MARKS = 4096


class Hello(msgspec.Struct, frozen=True):
    """The greeting of one side of a link.

    Attributes:
        cluster, group, broker_id, address: of the sender; the address is that for clients.
        run: a random value, new at each start.
        role: a value of ``Role``.
        term: of the sender's tables. A follower does not follow a master of a lower term, unless that master
            is isolated or the follower is a returning master.
        file_bytes: the size of log files.
        begin, end: the bounds of the sender's log.
        marks: from a follower: blocks of its log that begin with a record, the highest first.
        matched: from a master: which of the marks is the first that its log has too, -1: none.
        start: from a follower: the place from which to send the log; -1: do not send it yet.
        refusal: from a master: why it does not send its log.
        copies_back: from a master: whether it copies the records that only a follower has before it stores
            others.
        alike: settings that both must share (``replication.alike``); a broker of an older build sends none.
        keeps_own: from a master: whether it keeps its own log's end if a follower's log differs, even if its
            own is shorter.
        user: from a follower: the user whose keys it has; empty: it proves nothing.
        number, proof: see :mod:`orbitmq.replication.link.proof`.
        seals: whether the sender seals tables; they are sealed if both sides do and have proved themselves.
            Builds that record no last changes of users have another name for this field, so they are sent no
            users.
    """

    cluster: str
    group: str
    broker_id: int
    address: str
    run: str
    role: str
    term: int
    file_bytes: int
    begin: int
    end: int
    marks: list[Mark] = []
    matched: int = -1
    start: int = -1
    refusal: str = ""
    copies_back: bool = False
    keeps_own: bool = False
    alike: dict[str, str] = {}
    user: str = ""
    number: str = ""
    proof: str = ""
    seals: bool = msgspec.field(default=False, name="sealsRecorded")

    def encode(self) -> bytes:
        """The whole frame."""
        return frame(FrameKind.HELLO, _encoder.encode(self))

    @staticmethod
    def decode(payload: bytes | memoryview) -> Hello:
        """The hello of a frame.

        Raises:
            LinkError: the frame is not a hello.
        """
        try:
            hello = _decoder.decode(payload)
        except msgspec.DecodeError as error:
            raise LinkError(f"its hello cannot be read: {error}") from error
        if not 0 <= hello.begin <= hello.end or len(hello.marks) > MAX_MARKS:
            raise LinkError(
                f"its hello says that its log goes from {hello.begin} to {hello.end}, "
                f"with {len(hello.marks)} marks"
            )
        return hello

    def refuses(self, other: Hello) -> str:
        """Why the broker that sent ``other`` cannot be linked with this one; empty: it can."""
        if other.run == self.run:
            return f"{other.address} is this broker itself"
        if (other.cluster, other.group) != (self.cluster, self.group):
            return (
                f"{other.address} is of group {other.group} of cluster {other.cluster}, "
                f"this broker is of {self.group} of {self.cluster}"
            )
        if other.broker_id == self.broker_id:
            return f"{other.address} has brokerId {other.broker_id} as {self.address} has"
        if other.file_bytes != self.file_bytes:
            return (
                f"mappedFileSizeCommitLog is {other.file_bytes} at {other.address} "
                f"and {self.file_bytes} at {self.address}: both brokers need the same"
            )
        return ""


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Hello)

LogData: TypeAlias = Callable[[int, int], memoryview | None]


def mark(data: LogData, start: int, end: int) -> Mark:
    """The mark of a block of the log."""
    return start, end, digest(data, start, end)


def digest(data: LogData, start: int, end: int) -> int:
    """The checksum of a block of the log; -1: the log does not have all of it."""
    crc = 0
    while start < end:
        piece = data(start, end - start)
        if piece is None:
            return -1
        crc = zlib.crc32(piece, crc)
        start += len(piece)
    return crc


def first_match(marks: Sequence[Mark], data: LogData, begin: int, end: int) -> int:
    """Which of another log's marks is the first that this log has too, -1: none."""
    for number, (start, stop, crc) in enumerate(marks):
        if begin <= start <= stop <= end and stop - start <= BLOCK_BYTES and digest(data, start, stop) == crc:
            return number
    return -1


BLOCK_BYTES = 4096
