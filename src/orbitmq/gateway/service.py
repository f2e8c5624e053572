"""What gRPC clients can ask a broker."""

from __future__ import annotations

from collections.abc import Mapping

from orbitmq.broker.extension import Host
from orbitmq.gateway.call import Handler, Service


class _Nothing:
    """Serves no call yet."""

    handlers: Mapping[str, Handler] = {}

    async def stop(self) -> None:
        """Nothing waits."""


def service(host: Host) -> Service:
    """The calls of RocketMQ 5, on this broker's ports."""
    return _Nothing()
