"""Counts what connections send and receive, and pauses reading from those that are over a quota."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from orbitmq.broker.quotas.buckets import Key, Quotas
from orbitmq.message.record_layout import (
    BODY_LENGTH_AFTER_STORE_HOST,
    BORN_HOST_AT,
    BORN_HOST_V6_BIT,
    HOST_V4_BYTES,
    HOST_V6_BYTES,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    STORE_HOST_V6_BIT,
    SYS_FLAG_AT,
)
from orbitmq.runtime.seam import Clock
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import FLAG_RESPONSE, Command
from orbitmq.wire.signing import named_user

# The header fields in which a send names its topic.
_TOPIC_FIELDS: Final[Mapping[int, str]] = {
    RequestCode.SEND_MESSAGE: "topic",
    RequestCode.SEND_MESSAGE_V2: "b",
    RequestCode.SEND_BATCH_MESSAGE: "b",
}


class Meter:
    """Applies the quotas to requests and answers.

    Attributes:
        quotas: the quotas of this broker.
    """

    def __init__(self, clock: Clock, quotas: Quotas) -> None:
        self._clock = clock
        self.quotas = quotas
        # For each metered connection, the user of its last checked request.
        self._users: dict[ServerConnection, str] = {}

    def mark_limited(self, connection: ServerConnection) -> None:
        """Decide whether a quota limits this connection: before its first request, and after a change."""
        address = Key("address", connection.remote[0])
        limited = address in self.quotas
        if limited:
            # A client that reconnects while over a quota keeps the rest of its pause.
            self._take(connection, [address], 0, 0, out=False)
        if limited or (connection in self._users and Key("user", self._users[connection]) in self.quotas):
            connection.metered = True
        else:
            connection.metered = False
            self._users.pop(connection, None)

    def gone(self, connection: ServerConnection) -> None:
        """Forget a connection that has closed."""
        self._users.pop(connection, None)

    def count(self, connection: ServerConnection, command: Command, *, signed: bool) -> None:
        """Count a request that has arrived.

        Args:
            signed: whether its keys or certificate were checked; if not, the user that it names is ignored.
        """
        keys = [Key("address", connection.remote[0])]
        if signed:
            user = named_user(command)
            keys.append(Key("user", user))
            if keys[-1] in self.quotas:
                self._users[connection] = user
                connection.metered = True
        topic = command.ext.get(_TOPIC_FIELDS.get(command.code, "topic"), "")
        if Key("topic", topic) in self.quotas:
            # The answers to this connection have to be counted.
            connection.metered = True
        body = command.body or b""
        messages = 0
        if command.code in _TOPIC_FIELDS:
            messages = sum(1 for _ in _batch(body)) if command.code == RequestCode.SEND_BATCH_MESSAGE else 1
            keys.append(Key("topic", topic))
        self._take(connection, keys, len(body), messages, out=False)

    def sent(self, connection: ServerConnection, command: Command) -> None:
        """Count a command that is sent to the client."""
        body = command.body or b""
        if not command.flag & FLAG_RESPONSE and not body:
            return
        found = list(_records(body))
        keys = [Key("address", connection.remote[0])]
        if connection in self._users:
            keys.append(Key("user", self._users[connection]))
        if found:
            # All messages of an answer are of one topic.
            keys.append(Key("topic", _topic_of(body, *found[0])))
        self._take(connection, keys, len(body), len(found), out=True)

    def _take(
        self, connection: ServerConnection, keys: list[Key], size: int, messages: int, *, out: bool
    ) -> None:
        pause_s = self.use(keys, size, messages, out=out)
        if pause_s:
            connection.rest(pause_s)

    def use(self, keys: Sequence[Key], size: int, messages: int, *, out: bool) -> float:
        """Count bytes and messages of a client; returns for how many seconds not to read from it."""
        now, longest, of = self._clock.monotonic(), 0.0, keys[0]
        for key in keys:
            wait = self.quotas.take(key, now, size, messages, out=out)
            if wait > longest:
                longest, of = wait, key
        if longest:
            self.quotas.waited(of, longest, out=out)
        return longest


def _batch(body: bytes) -> Iterator[int]:
    """The place of each message in a batch."""
    at = 0
    while len(body) - at >= 4:
        size = int.from_bytes(body[at : at + 4], "big", signed=True)
        if size < 4 or at + size > len(body):
            return
        yield at
        at += size


def _records(body: bytes) -> Iterator[tuple[int, int]]:
    """Begin and end of each stored record in the body of an answer; empty for other bodies."""
    at = 0
    while len(body) - at >= MIN_RECORD_BYTES:
        size = int.from_bytes(body[at : at + 4], "big", signed=True)
        magic = int.from_bytes(body[at + MAGIC_AT : at + MAGIC_AT + 4], "big", signed=True)
        if magic not in (MAGIC_V1, MAGIC_V2) or size < MIN_RECORD_BYTES or at + size > len(body):
            return
        yield at, at + size
        at += size


def _topic_of(body: bytes, begin: int, end: int) -> str:
    def number(at: int, size: int = 4) -> int:
        return int.from_bytes(body[at : at + size], "big")

    flag = number(begin + SYS_FLAG_AT)
    born = HOST_V6_BYTES if flag & BORN_HOST_V6_BIT else HOST_V4_BYTES
    stored = HOST_V6_BYTES if flag & STORE_HOST_V6_BIT else HOST_V4_BYTES
    at = begin + BORN_HOST_AT + born + 8 + stored + BODY_LENGTH_AFTER_STORE_HOST
    at += 4 + number(at)
    size = 1 if number(begin + MAGIC_AT) == MAGIC_V1 & 0xFFFFFFFF else 2
    return body[at + size : min(end, at + size + number(at, size))].decode("utf-8", "replace")
