"""The client side of RocketMQ's NamespaceRpcHook: names the namespace in every request."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.runtime.seam import Runtime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.endpoint import Handler
from orbitmq.transport.identity import Identity
from orbitmq.wire.command import Command


class NamespacedRemoting(RemotingClient):
    """A remoting client that adds the namespace to every request."""

    def __init__(
        self,
        namespace: str,
        runtime: Runtime,
        identity: Identity,
        handle: Handler,
        max_async: int,
        max_oneway: int,
        on_lost: Callable[[str], None],
    ) -> None:
        super().__init__(
            runtime,
            identity=identity,
            handle=handle,
            max_async=max_async,
            max_oneway=max_oneway,
            on_lost=on_lost,
        )
        self._fields = {"nsd": "true", "ns": namespace}

    async def request(self, address: str, command: Command, timeout_ms: int) -> Command:
        command.ext.update(self._fields)
        return await super().request(address, command, timeout_ms)

    async def oneway(self, address: str, command: Command, timeout_ms: int) -> None:
        command.ext.update(self._fields)
        await super().oneway(address, command, timeout_ms)
