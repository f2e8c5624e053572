"""The client for a broker's own requests to name servers and to other brokers."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.broker.config import BrokerConfig
from orbitmq.runtime.seam import Runtime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.identity import Identity
from orbitmq.wire.signing import Credentials


def client_of(
    runtime: Runtime,
    config: BrokerConfig,
    *,
    on_lost: Callable[[str], None] | None = None,
    for_clients: bool = False,
    signed: bool = True,
) -> RemotingClient:
    """The client for the broker's own requests: with its own keys, and with TLS as its settings say.

    The settings of TLS are tls.enable and tls.client.*.

    Args:
        for_clients: whether the requests are passed on for this broker's clients. They are signed only if
            this broker authenticates its clients: else strangers could have another server do what only
            super users may.
        signed: whether requests are signed with the broker's keys, if the settings have keys.

    Raises:
        StartError: a file named by these settings cannot be used.
    """
    keys = config.inner_client_credentials
    signs = signed and (config.requires_keys or not for_clients)
    identity = Identity(keys if signs and isinstance(keys, Credentials) else None, config.tls.client())
    return RemotingClient(runtime, identity=identity, on_lost=on_lost)
