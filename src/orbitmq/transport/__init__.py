"""Connections that speak the remoting protocol: a server, a client, and a blocking client for workers.

Import from its modules: Spark's worker processes use :mod:`~orbitmq.transport.blocking` without asyncio.
"""

from orbitmq.transport.errors import (
    ConnectError,
    ConnectionLostError,
    RequestTimeoutError,
    TooManyRequestsError,
    TransportError,
)

__all__ = [
    "ConnectError",
    "ConnectionLostError",
    "RequestTimeoutError",
    "TooManyRequestsError",
    "TransportError",
]
