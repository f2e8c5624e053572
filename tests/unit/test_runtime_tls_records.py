"""Bytes of a TLS connection between a transport and a protocol, with OpenSSL at both ends."""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Authority, server_context

from orbitmq.runtime.tls_records import KEPT_BYTES, READ_BYTES, RECORD_BYTES, TlsRecords

HEADER_BYTES = 5


class Below(asyncio.Transport):
    """A transport that records each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.closing = False

    def write(self, data: Any) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return self.closing

    def taken(self) -> bytes:
        """All bytes written since the last call."""
        data = b"".join(self.writes)
        self.writes.clear()
        return data


class Session:
    """An SSL object whose reads are counted."""

    def __init__(self, real: ssl.SSLObject) -> None:
        self.real = real
        self.reads = 0
        self.pending = real.pending
        self.write = real.write

    def read(self, size: int, into: Any) -> int:
        self.reads += 1
        return self.real.read(size, into)


class End:
    """The server's end with a protocol that records its data, and the client as an SSL object.

    Args:
        room: the size of the protocol's buffer for each read.
    """

    def __init__(self, context: ssl.SSLContext, room: Callable[[], int] = lambda: 1 << 20) -> None:
        self._room_bytes = room
        self._buffer = bytearray()
        self.chunks: list[bytes] = []
        self.faults: list[ssl.SSLError] = []
        self.ends = 0
        self.answer: Callable[[bytes], None] = lambda data: None
        encrypted, to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.session = Session(context.wrap_bio(encrypted, to_send, server_side=True))
        session: Any = self.session
        self.records = TlsRecords(self, session, encrypted, to_send)
        self.below = Below()
        self.records.begin(self.below)
        self.records.give_to(self._get_buffer, self._updated)
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        self._to_client, self._from_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = trusting.wrap_bio(self._to_client, self._from_client)
        while not self.records.open:
            with contextlib.suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            self.receive(self._from_client.read())
            self._to_client.write(self.below.taken())
        self.session.reads = 0

    def _get_buffer(self, _hint: int) -> bytearray:
        self._buffer = bytearray(self._room_bytes())
        return self._buffer

    def _updated(self, count: int) -> None:
        self.chunks.append(bytes(self._buffer[:count]))
        self.answer(self.chunks[-1])

    def shake_hands(self) -> bool:
        try:
            self.session.real.do_handshake()
        except ssl.SSLWantReadError:
            self.records.flush()
            return False
        self.records.open = True
        return True

    def ended(self) -> None:
        self.ends += 1

    def broken(self, error: ssl.SSLError) -> None:
        self.faults.append(error)
        self.records.flush()

    def receive(self, data: bytes) -> None:
        """Receive bytes from the client, in reads as long as the protocol's buffer."""
        while data:
            room = self.records.room()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self.records.received(count)
            data = data[count:]

    def sent(self, *parts: bytes) -> bytes:
        """The client's TLS records for these parts, one or more for each."""
        for part in parts:
            self.client.write(part)
        return self._from_client.read()

    def read(self) -> tuple[bytes, list[int]]:
        """The data that the client reads from the server's writes, and the lengths of the records."""
        data = self.below.taken()
        self._to_client.write(data)
        lengths = []
        while data:
            (length,) = struct.unpack_from(">H", data, HEADER_BYTES - 2)
            lengths.append(length)
            data = data[HEADER_BYTES + length :]
        plain = b""
        while self._to_client.pending or self.client.pending():
            plain += self.client.read(1 << 20)
        return plain, lengths


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    folder: Path = tmp_path_factory.mktemp("authority")
    made = server_context(Authority(folder).issue("server"))
    made.num_tickets = 0  # the server writes only the data of these tests
    return made


def test_records_that_come_together_are_given_together_and_openssl_is_not_asked_for_more(
    context: ssl.SSLContext,
) -> None:
    end = End(context)
    end.receive(end.sent(b"one", b"two", b"three"))
    assert end.chunks == [b"onetwothree"]
    assert end.session.reads == 3
    end.receive(end.sent(b"four"))
    assert end.chunks[1:] == [b"four"]
    assert end.session.reads == 4


@pytest.mark.parametrize("seed", range(10))
def test_bytes_cut_anywhere_come_whole_into_rooms_of_any_size(context: ssl.SSLContext, seed: int) -> None:
    draw = random.Random(seed)
    end = End(context, lambda: draw.choice((1, 5, 4000, RECORD_BYTES - 1, RECORD_BYTES, 100_000)))
    parts = [draw.randbytes(draw.choice((1, 20, 1000, RECORD_BYTES, 50_000))) for _ in range(20)]
    data = end.sent(*parts)
    while data:
        count = draw.choice((1, 4, 100, 5000, READ_BYTES))
        end.receive(data[:count])
        data = data[count:]
    assert b"".join(end.chunks) == b"".join(parts)


def test_what_is_written_while_bytes_are_taken_goes_out_at_once(context: ssl.SSLContext) -> None:
    end = End(context, lambda: 3)

    def answer(data: bytes) -> None:
        end.records.write(data)
        end.records.writelines([b"<", memoryview(data), b">"])
        assert not end.below.writes

    end.answer = answer
    end.receive(end.sent(b"abc", b"def"))
    assert len(end.below.writes) == 1
    assert end.read()[0] == b"abc<abc>def<def>"
    end.records.write(b"later")
    end.records.write(b"")
    assert len(end.below.writes) == 1
    assert end.read()[0] == b"later"


@pytest.mark.behaviour("TL-22")
@pytest.mark.parametrize("working", [True, False])
def test_long_writes_are_passed_on_in_pieces(context: ssl.SSLContext, working: bool) -> None:
    end, body = End(context), random.Random(1).randbytes(1_000_000)

    def write(_data: bytes) -> None:
        for start in range(0, len(body), 100_000):
            end.records.write(memoryview(body)[start : start + 100_000])

    if working:
        end.answer = write
        end.receive(end.sent(b"x"))
    else:
        write(b"")
    assert max(map(len, end.below.writes)) < KEPT_BYTES + 1000
    assert end.read()[0] == body


@pytest.mark.parametrize(
    "sizes", [(300, 8000), (300, 100_000), (300, RECORD_BYTES), (10, 20_000, 5, 40_000, 0)]
)
def test_parts_share_records_and_may_change_after_the_call(
    context: ssl.SSLContext, sizes: tuple[int, ...]
) -> None:
    end, draw = End(context), random.Random(2)
    memory = [bytearray(draw.randbytes(size)) for size in sizes]
    before = b"".join(memory)
    end.records.writelines([memoryview(part) for part in memory])
    for part in memory:
        part[:] = bytes(len(part))
    plain, lengths = end.read()
    assert plain == before
    assert len(lengths) <= 1 + sum(sizes) // RECORD_BYTES + len(sizes) // 2


def test_bytes_before_a_damaged_record_are_given_and_the_client_gets_an_alert(
    context: ssl.SSLContext,
) -> None:
    end = End(context)
    good, bad = end.sent(b"good"), bytearray(end.sent(b"bad"))
    bad[-1] ^= 1
    end.receive(good + bytes(bad) + end.sent(b"never"))
    assert end.chunks == [b"good"]
    assert [fault.reason for fault in end.faults] == ["DECRYPTION_FAILED_OR_BAD_RECORD_MAC"]
    with pytest.raises(ssl.SSLError, match=r"(?i)bad record mac"):
        end.read()


def test_close_notify_ends_what_comes(context: ssl.SSLContext) -> None:
    end = End(context)
    data = end.sent(b"last")
    with pytest.raises(ssl.SSLWantReadError):
        end.client.unwrap()
    end.receive(data + end._from_client.read())
    assert (end.chunks, end.ends, end.faults) == ([b"last"], 1, [])


def test_nothing_is_written_to_a_transport_that_closes(context: ssl.SSLContext) -> None:
    end = End(context)

    def answer(data: bytes) -> None:
        end.records.write(data)
        end.below.closing = True
        end.records.write(data)

    end.answer = answer
    end.receive(end.sent(b"one") + end.sent(b"two"))
    end.records.writelines([b"more"])
    assert not end.below.writes
    end.records.end()
    end.records.write(b"more")
    end.receive(end.sent(b"three"))
    assert end.chunks == [b"onetwo"]
