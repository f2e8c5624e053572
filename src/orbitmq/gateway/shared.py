"""The state that all gRPC connections of one broker share, with the end of their calls when the broker stops.

Imported, like the engine and the services, for the first gRPC client.
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

# The most calls of all connections: twice the calls that may wait for messages (maxPopPollingSize).
MAX_CALLS: Final = 200_000


class Shared:
    """The state that all gRPC connections of one broker share.

    Attributes:
        receiving: the read buffer of all connections; each uses up its bytes before the next one reads.
        work: the calls under way that have a task.
        waiting: the number of calls without a task, plus that of connections with unacknowledged answers: a
            stopping broker waits for both.
        deadlines: the deadlines of all calls.
        stopping: whether the broker stops, so that no call begins.
        connections: the open connections.
        seats: counts the connections of all ports.
        names: the part of a client's certificate that names its user.
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
        # Calls outlive their connections: a message that is being stored is stored though its client is gone.
        self.work = Background("grpc", max_tasks=MAX_CALLS)
        self.stopping = False
        # The number of calls under way, with a task or without.
        self.running = 0
        self.waiting = 0
        self.deadlines: Deadlines[StreamCall] = Deadlines(StreamCall.expire)
        self._quiet: asyncio.Future[None] | None = None
        self.receiving = memoryview(bytearray(64 * 1024))
        # A dict, because its order is the same in every run of a simulation; a set's is not.
        self.connections: dict[GrpcConnection, None] = {}

    def done(self) -> None:
        """Count ``waiting`` down: a call, the calls of a chunk, or the answers of a connection have ended."""
        self.waiting -= 1
        if not self.waiting and self._quiet is not None and not self._quiet.done():
            self._quiet.set_result(None)

    async def quiet(self, limit_s: float) -> None:
        """Wait until all calls have ended and their answers have arrived, at most this many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self.work.quiet()
                if self.waiting:
                    self._quiet = asyncio.get_running_loop().create_future()
                    await self._quiet
