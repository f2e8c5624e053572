"""Reads and checks the headers of a gRPC request, and makes the headers of its answers. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from sys import intern
from typing import Final

from orbitmq.gateway.call import CallError, GrpcStatus
from orbitmq.gateway.framing import percent_encoded, timeout_ms
from orbitmq.gateway.hpack import block_of

SERVICE: Final = "/apache.rocketmq.v2.MessagingService/"
# The methods of the health service have the prefix "Health." among the handlers: Health.Check.
HEALTH: Final = "/grpc.health.v1.Health/"
_CONTENT_TYPE = "application/grpc"
_ENCODINGS = frozenset({"identity", "gzip"})

# Header blocks, encoded with HPACK.
ANSWER: Final = block_of(
    (
        (b":status", b"200"),
        (b"content-type", b"application/grpc"),
        (b"grpc-accept-encoding", b"identity,gzip"),
    )
)
OK: Final = block_of(((b"grpc-status", b"0"),))


class NotGrpcError(Exception):
    """An HTTP/2 request that is not gRPC.

    Attributes:
        status: the HTTP status of the answer.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """The headers of a call, decoded.

    Attributes:
        path: as the client sent it.
        method: the method's name in a served service, one text object for all calls; empty for other paths.
    """

    path: str
    method: str
    metadata: Mapping[str, str]


def read(headers: list[tuple[str, str]]) -> Request:
    """The request that these headers begin.

    Raises:
        NotGrpcError: they begin no gRPC request.
    """
    metadata: dict[str, str] = {}
    for name, value in headers:
        metadata[name] = f"{metadata[name]},{value}" if name in metadata else value
    kind, verb = metadata.get("content-type", ""), metadata.get(":method", "")
    if verb != "POST":
        raise NotGrpcError(405, f"its method is {verb[:32]!r}, gRPC's is POST")
    if not (kind.startswith(_CONTENT_TYPE) and kind[len(_CONTENT_TYPE) :][:1] in ("", "+", ";")):
        raise NotGrpcError(415, f"its content-type is {kind[:64]!r}, gRPC's is {_CONTENT_TYPE}")
    path = metadata.get(":path", "")
    method = path.removeprefix(SERVICE) if path.startswith(SERVICE) else ""
    if path.startswith(HEALTH):
        method = f"Health.{path.removeprefix(HEALTH)}"
    return Request(path, intern(method), metadata)


def timeout_of(request: Request) -> int | None:
    """The call's timeout in milliseconds; None without one.

    Raises:
        CallError: the header ``grpc-timeout`` cannot be read.
    """
    value = request.metadata.get("grpc-timeout")
    return None if value is None else timeout_ms(value)


def check_encoding(request: Request) -> None:
    """Refuse an unknown compression.

    Raises:
        CallError: UNIMPLEMENTED, with the compression's name.
    """
    encoding = request.metadata.get("grpc-encoding", "identity")
    if encoding not in _ENCODINGS:
        text = f"grpc-encoding {encoding[:32]!r} is not known here: send identity or gzip"
        raise CallError(GrpcStatus.UNIMPLEMENTED, text)


def unimplemented(request: Request) -> CallError:
    """The UNIMPLEMENTED error for a method that is not served."""
    name = request.method or request.path[:256]
    return CallError(GrpcStatus.UNIMPLEMENTED, f"{name} is not served by OrbitMQ")


def trailers(status: GrpcStatus, message: str) -> bytes:
    """The block of headers that ends a call."""
    if status is GrpcStatus.OK and not message:
        return OK
    end = block_of(((b"grpc-status", b"%d" % status),))
    return end + block_of(((b"grpc-message", percent_encoded(message)),)) if message else end


def not_grpc(error: NotGrpcError) -> bytes:
    """The block of response headers for a request that is not gRPC."""
    head = block_of(((b":status", b"%d" % error.status), (b"content-type", b"application/grpc")))
    return head + trailers(GrpcStatus.UNKNOWN, str(error))
