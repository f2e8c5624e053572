"""What can go wrong between two hosts. A response with an error code is not an error of the transport."""

from __future__ import annotations

from orbitmq.errors import OrbitError
from orbitmq.runtime.connecting import why_not


class TransportError(OrbitError):
    """Base of all errors of this room. ``address`` is the other side as "host:port"."""

    def __init__(self, message: str, address: str = "") -> None:
        super().__init__(message)
        self.address = address


class ConnectError(TransportError):
    """No connection could be made; nothing was sent."""


class TlsError(ConnectError):
    """The other side does not speak TLS as it must: the text names the certificate and the cure."""


class ConnectionLostError(TransportError):
    """The connection ended before the answer came. The other side may have done the work or not."""


class RequestTimeoutError(TransportError):
    """No answer in time. The other side may have done the work or not."""


class TooManyRequestsError(TransportError):
    """The limit of requests in flight was reached and no time was left to wait; nothing was sent."""


class CredentialsError(TransportError):
    """The function that gives a client its credentials failed; nothing was sent."""


def connect_error(address: str, error: OSError) -> ConnectError:
    """The error of a connection to ``address`` that the machine could not make."""
    return ConnectError(f"cannot connect to {address}: {why_not(error)}", address)
