# cython: annotation_typing=False
"""Takes plain calls, which arrive whole in one chunk of a connection's bytes, and does their work at once.

An unusual call is left to the ordinary path, which serves it or refuses it with the reason.

Typed in ``plain_reader.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import cython

from orbitmq.gateway.authorization import DATE_TIME, HEADER, SESSION_TOKEN

if TYPE_CHECKING:
    from orbitmq.gateway.plain_acks import PlainAcks
    from orbitmq.gateway.plain_sends import PlainSends
    from orbitmq.runtime.buffers import Readable

if not cython.compiled:
    from orbitmq.message.octets import get_i32

MAX_CLIENT_ID = 255
# The kinds of calls.
SEND, ACKNOWLEDGE = 1, 2
_PATHS = {
    "/apache.rocketmq.v2.MessagingService/SendMessage": SEND,
    "/apache.rocketmq.v2.MessagingService/AckMessage": ACKNOWLEDGE,
}
_CONTENT_TYPE = "application/grpc"
# The headers that are read, as bits; a call that has one of them twice is unusual.
_H_METHOD, _H_PATH, _H_TYPE, _H_ID = 1, 2, 4, 8
_H_ENCODING, _H_TIMEOUT, _H_KEY, _H_TIME, _H_TOKEN = 16, 32, 64, 128, 256
_NEEDED = _H_METHOD | _H_PATH | _H_TYPE | _H_ID
_HEADERS = {
    ":method": _H_METHOD,
    ":path": _H_PATH,
    "content-type": _H_TYPE,
    "x-mq-client-id": _H_ID,
    "grpc-encoding": _H_ENCODING,
    "grpc-timeout": _H_TIMEOUT,
    HEADER: _H_KEY,
    DATE_TIME: _H_TIME,
    SESSION_TOKEN: _H_TOKEN,
}


class PlainCalls:
    """The calls of one kind in one chunk. Their answers wait until their changes are flushed to the disk.

    Attributes:
        streams: each call's stream.
        answers: each call's answer, with gRPC's prefix.
        timeouts_ms: how long each call's client waits; 0: no limit.
        timer: ends the first of these times.
    """

    def __init__(self) -> None:
        self.streams: list[int] = []
        self.answers: list[bytes] = []
        self.timeouts_ms: list[int] = []
        self.timer: Any = None


class PlainReader:
    """Judges the headers of calls, and takes the calls that are plain.

    Args:
        seen: called with the client ids of the calls.
        check: whether a call with these headers may be plain.
        timeout_ms: as ``framing.timeout_ms``, but -1 for a broken header.

    Attributes:
        kind, timeout_ms: of the call whose headers :meth:`wants` judged last.
        sent, acknowledged: the calls taken since :meth:`begin`; None without any.
    """

    def __init__(
        self,
        sends: PlainSends,
        acks: PlainAcks,
        seen: Callable[[str], object],
        check: Callable[[Mapping[str, str]], bool],
        timeout_ms: Callable[[str], int],
    ) -> None:
        self.sends = sends
        self.acks = acks
        self.seen = seen
        self.check = check
        self.read_timeout = timeout_ms
        self.room = 0
        self.client = ""
        self.kind = 0
        self.timeout_ms = 0
        self.sent: PlainCalls | None = None
        self.acknowledged: PlainCalls | None = None

    def begin(self, born: bytes, address: bytes, room: int) -> None:
        """Prepare for the next bytes of a client, which may begin at most ``room`` calls.

        Args:
            born, address: the client's address, as in a record, and as text.
        """
        self.sends.born = born
        self.sends.address = address
        self.room = room
        self.client = ""
        self.sent = self.acknowledged = None

    def end(self) -> None:
        """Take no more calls."""
        self.room = 0

    def wants(self, headers: list[tuple[str, str]]) -> bool:
        """Whether a call with these headers may be plain."""
        if self.room <= 0:
            return False
        seen = 0
        kind = 0
        timeout = ""
        client = ""
        for name, value in headers:
            bit = _HEADERS.get(name, 0)
            if bit == 0:
                continue
            if seen & bit:
                return False
            seen |= bit
            if bit == _H_PATH:
                kind = _PATHS.get(value, 0)
                if kind == 0:
                    return False
            elif bit == _H_METHOD:
                if value != "POST":
                    return False
            elif bit == _H_TYPE:
                if value != _CONTENT_TYPE and not value.startswith(
                    ("application/grpc+", "application/grpc;")
                ):
                    return False
            elif bit == _H_ID:
                client = value
            elif bit == _H_TIMEOUT:
                timeout = value
            elif bit == _H_ENCODING and value != "identity" and value != "gzip":
                return False
        if seen & _NEEDED != _NEEDED or not client or len(client) > MAX_CLIENT_ID:
            return False
        if seen & _H_KEY and not self.check(dict(headers)):
            return False
        self.kind = kind
        self.timeout_ms = 0
        if seen & _H_TIMEOUT:
            self.timeout_ms = self.read_timeout(timeout)
            if self.timeout_ms <= 0:
                return False
        if client != self.client:
            self.client = client
            self.seen(client)
        return True

    def take(self, stream: int, kind: int, timeout_ms: int, buf: Readable, pos: int, end: int) -> bool:
        """Do the work of a call whose only data is this; False if nothing was done."""
        if self.room <= 0 or end - pos < 5 or buf[pos] != 0 or get_i32(buf, pos + 1) != end - pos - 5:
            return False
        if kind == SEND:
            answer = self.sends.take(buf, pos + 5, end)
        else:
            answer = self.acks.take(buf, pos + 5, end)
        if answer is None:
            return False
        self.room -= 1
        calls = self._calls(kind)
        calls.streams.append(stream)
        calls.timeouts_ms.append(timeout_ms)
        calls.answers.append(answer)
        return True

    def _calls(self, kind: int) -> PlainCalls:
        """The calls of this kind, to which the next one is added."""
        if kind == SEND:
            if self.sent is None:
                self.sent = PlainCalls()
            return self.sent
        if self.acknowledged is None:
            self.acknowledged = PlainCalls()
        return self.acknowledged
