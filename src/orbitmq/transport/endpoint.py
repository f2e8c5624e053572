"""What the connections of one server or one client share: the handler of requests, limits, the buffer that
all of them read into, opaque numbers, and the count of requests that failed.
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

# Requests and answers with unknown codes are counted under this one.
OTHER = -1
REQUESTS, RESPONSES = frozenset(RequestCode), frozenset(ResponseCode)
# Answers that are no failures: success, and that something is not there, or not yet.
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
    """Bounds of one connection.

    Attributes:
        max_frame_bytes: longest frame accepted, its length field included.
        high_water_bytes: bytes queued for a peer from which it counts as slow.
        max_queued_bytes: bytes queued for a peer at which it is disconnected.
        max_handling: requests of one connection being handled at a time; more are answered SYSTEM_BUSY.
    """

    max_frame_bytes: int = MAX_FRAME_BYTES
    high_water_bytes: int = 1024 * 1024
    max_queued_bytes: int = 64 * 1024 * 1024
    max_handling: int = 65535


class Endpoint:
    """What the connections of one server or one client share.

    Attributes:
        failures: requests that were not answered with success, by the codes of request and answer.
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
        """This local address, as the object that the connection before has if it is the same one."""
        if self._local != local:
            self._local = local
        return self._local

    def note_failure(self, request: int, response: int) -> None:
        """Count an error answer by the codes of request and answer; all unknown codes count as one."""
        known = request if request in REQUESTS else OTHER
        self.failures[known, response if response in RESPONSES else OTHER] += 1
