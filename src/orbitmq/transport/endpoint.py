"""The state that all connections of one server or one client share: the handler of requests, the limits, the
read buffer, the series of opaque numbers, and the counts of failed requests.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.connection import RECEIVE_BUFFER_BYTES, ChunkHook, Opaques
from orbitmq.wire.frame import MAX_FRAME_BYTES

if TYPE_CHECKING:
    from orbitmq.runtime import Runtime

log = logging.getLogger("orbitmq.transport")

# The code under which requests and answers with unknown codes are counted.
OTHER = -1
REQUESTS, RESPONSES = frozenset(RequestCode), frozenset(ResponseCode)
# The codes of answers that are no failures: success, and answers that something does not exist (yet).
NO_FAILURES = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
        ResponseCode.QUERY_NOT_FOUND,
        ResponseCode.NO_MESSAGE,
        ResponseCode.POLLING_TIMEOUT,
    }
)

Answer: TypeAlias = Command | None
Handler: TypeAlias = Callable[[Any, Command], Answer | Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one connection.

    Attributes:
        max_frame_bytes: the longest accepted frame, its length field included.
        high_water_bytes: the number of bytes queued for a peer from which on it counts as slow.
        max_queued_bytes: the number of bytes queued for a peer at which it is disconnected.
        max_handling: the most requests being handled at a time; further ones are answered SYSTEM_BUSY.
    """

    max_frame_bytes: int = MAX_FRAME_BYTES
    high_water_bytes: int = 1024 * 1024
    max_queued_bytes: int = 64 * 1024 * 1024
    max_handling: int = 65535


class Endpoint:
    """The state that all connections of one server or one client share.

    Attributes:
        failures: the number of failed requests, by the codes of request and answer.
    """

    __slots__ = (
        "_local", "failures", "handle", "limits", "on_chunk", "opaques", "peers_log", "runtime", "view",
    )  # fmt: skip

    def __init__(
        self, runtime: Runtime, handle: Handler | None, on_chunk: ChunkHook | None, limits: Limits
    ) -> None:
        self.runtime = runtime
        self.handle = handle
        self.on_chunk = on_chunk
        self.limits = limits
        self.view = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.peers_log = LogLimiter(log)
        self.opaques = Opaques()
        self.failures: Counter[tuple[int, int]] = Counter()
        self._local: tuple[str, int] = ("", 0)

    def shared(self, local: tuple[str, int]) -> tuple[str, int]:
        """This local address; equal to the last connection's, it is returned as the same object."""
        if self._local != local:
            self._local = local
        return self._local

    def note_failure(self, request: int, response: int) -> None:
        """Count an error answer by the codes of request and answer; all unknown codes count as one."""
        known = request if request in REQUESTS else OTHER
        self.failures[known, response if response in RESPONSES else OTHER] += 1
