"""The header of OrbitMQ's request about writers, whose later attempts replace earlier ones."""

from __future__ import annotations

from typing import ClassVar

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.base import Int32, Int64, RequestHeader

__all__ = ["BindWriterRequest"]


class BindWriterRequest(RequestHeader, kw_only=True):
    """BIND_WRITER (31004), client to broker: all sends of this connection belong to one attempt of a writer.

    Attributes:
        writer: the writer's name, the same for all its attempts.
        run: the number of the whole writer's run; a higher run ends all parts of lower ones.
        part, turn: the attempt within the run; a higher turn of a part replaces lower ones.
        fence: whether to end earlier attempts instead of binding the connection.
    """

    code: ClassVar[int] = RequestCode.BIND_WRITER

    writer: str
    run: Int64
    part: Int32
    turn: Int64
    fence: bool = False
