"""The state that all gRPC connections of one broker share: their calls under way, and how these end with it.

Imported with the first gRPC client, as the engine and the services are.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from orbitmq.gateway.call import Service
from orbitmq.gateway.deadlines import Deadlines
from orbitmq.gateway.plain_door import PlainDoor
from orbitmq.gateway.quotas import CallQuotas
from orbitmq.gateway.streams import StreamCall
from orbitmq.runtime.client_names import NamePart
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.tasks import Background
from orbitmq.transport.seats import Seats

if TYPE_CHECKING:
    from orbitmq.gateway.connection import GrpcConnection

# The most calls of all connections: as many as may wait for messages (maxPopPollingSize), twice.
MAX_CALLS: Final = 200_000


class Shared:
    """The state that all gRPC connections of one broker share.

    Attributes:
        receiving: the read buffer of all connections; each has used up its bytes before the next one reads.
        work: the calls under way that have a task.
        waiting: how many calls without a task and connections with answers under way there are, which a
            stopping broker still waits for.
        deadlines: the deadlines of all calls.
        stopping: whether the broker stops, so that no call begins.
        connections: the open connections.
        seats: where connections are counted.
        names: the part of a client's certificate that is the name of a user.
    """

    def __init__(
        self, service: Service, log: LogLimiter, seats: Seats, names: NamePart = NamePart.OFF
    ) -> None:
        self.names = names
        self.service = service
        self.plain: PlainDoor | None = getattr(service, "plain", None)
        self.quotas: CallQuotas | None = getattr(service, "quotas", None)
        self.log = log
        self.seats = seats
        # Calls outlive connections: what they store is stored when their client is gone.
        self.work = Background("grpc", max_tasks=MAX_CALLS)
        self.stopping = False
        # The number of calls in progress, with a task or without.
        self.running = 0
        self.waiting = 0
        self.deadlines: Deadlines[StreamCall] = Deadlines(StreamCall.expire)
        self._quiet: asyncio.Future[None] | None = None
        self.receiving = memoryview(bytearray(64 * 1024))
        # Dicts keep an order; the order of a set would differ from run to run.
        self.connections: dict[GrpcConnection, None] = {}

    def done(self) -> None:
        """A call, the calls of a chunk, or the answers of a connection count no longer in ``waiting``."""
        self.waiting -= 1
        if not self.waiting and self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)

    async def quiet(self, limit_s: float) -> None:
        """Return when the present calls have ended and their answers arrived, or after this many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self.work.quiet()
                if self.waiting:
                    self._quiet = asyncio.get_running_loop().create_future()
                    await self._quiet
