"""The requests that a broker sends itself, to name servers and to other brokers."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.broker.config import BrokerConfig
from orbitmq.runtime.seam import Runtime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.identity import Identity


def client_of(
    runtime: Runtime, config: BrokerConfig, *, on_lost: Callable[[str], None] | None = None
) -> RemotingClient:
    """The client for the broker's own requests, with TLS as its settings say (tls.enable, tls.client.*).

    Raises:
        StartError: a file of theirs cannot be used.
    """
    return RemotingClient(runtime, identity=Identity(tls=config.tls.client()), on_lost=on_lost)
