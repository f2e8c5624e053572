"""Writers that take over from each other; a request of OrbitMQ's own."""

from __future__ import annotations

from typing import ClassVar

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.base import Int32, Int64, RequestHeader

__all__ = ["BindWriterRequest"]


class BindWriterRequest(RequestHeader, kw_only=True):
    """BIND_WRITER (31004), client to broker: what this connection sends is of one attempt of a writer.

    Attributes:
        writer: its name, the same for all its attempts.
        run: of the whole writer; a later one is higher and ends all parts of those before.
        part, turn: the attempt within the run; of one part a later one is higher.
        fence: end the attempts before this one, instead of binding the connection.
    """

    code: ClassVar[int] = RequestCode.BIND_WRITER

    writer: str
    run: Int64
    part: Int32
    turn: Int64
    fence: bool = False
