"""The errors of the transport between two hosts. A response with an error code is none of them."""

from __future__ import annotations

from orbitmq.errors import OrbitError
from orbitmq.runtime.connecting import why_not


class TransportError(OrbitError):
    """Base of all errors of the transport. ``address`` is the peer as "host:port"."""

    def __init__(self, message: str, address: str = "") -> None:
        super().__init__(message)
        self.address = address


class ConnectError(TransportError):
    """No connection could be made; nothing was sent."""


class TlsError(ConnectError):
    """The TLS handshake with the peer failed: the text names the certificate and the remedy."""


class ConnectionLostError(TransportError):
    """The connection ended before the answer came. The peer may or may not have carried out the request."""


class RequestTimeoutError(TransportError):
    """No answer came in time. The peer may or may not have carried out the request."""


class TooManyRequestsError(TransportError):
    """The limit of requests in flight was reached, and no time was left to wait; nothing was sent."""


class CredentialsError(TransportError):
    """The function that gives a client its credentials failed; nothing was sent."""


def connect_error(address: str, error: OSError) -> ConnectError:
    """The ConnectError for a failed attempt to connect to ``address``."""
    return ConnectError(f"cannot connect to {address}: {why_not(error)}", address)
