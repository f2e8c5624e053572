"""The gRPC service of a broker: each call of RocketMQ 5 with its handler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orbitmq.broker.extension import Host
from orbitmq.broker.pop.service import Pops
from orbitmq.broker.pop.settling import Settling
from orbitmq.gateway import schema
from orbitmq.gateway.call import Call, Handler, Service
from orbitmq.gateway.caller import CLIENT_ID
from orbitmq.gateway.clients import GrpcClients
from orbitmq.gateway.ends import Ends
from orbitmq.gateway.held import HeldMessages
from orbitmq.gateway.names import Topics
from orbitmq.gateway.presence import Presence
from orbitmq.gateway.receives import Receives
from orbitmq.gateway.routes import Routes
from orbitmq.gateway.sends import Sends
from orbitmq.gateway.telemetry import Telemetry
from orbitmq.gateway.unary import unary
from orbitmq.runtime.seam import Clock
from orbitmq.runtime.tasks import Background, every

# How often clients that are gone are looked for, and messages of living clients are renewed.
LOOK_SECONDS: Final = 1.0
RENEW_SECONDS: Final = 5.0
MAX_TASKS: Final = 200_000


class RocketmqService:
    """The calls of apache.rocketmq.v2."""

    def __init__(
        self,
        clock: Clock,
        background: Background,
        clients: GrpcClients,
        held: HeldMessages,
        receives: Receives,
        handlers: Mapping[str, Handler],
    ) -> None:
        self._clients = clients
        self._receives = receives
        self._background = background
        self.handlers: Mapping[str, Handler] = {
            name: self._noted(handler) for name, handler in handlers.items()
        }
        background.spawn(every(clock, LOOK_SECONDS, clients.look), "who is gone")
        background.spawn(every(clock, RENEW_SECONDS, held.renew), "renewal")

    def _noted(self, handler: Handler) -> Handler:
        """The handler; its client counts as seen."""

        async def handle(call: Call) -> None:
            self._clients.seen(call.metadata.get(CLIENT_ID, ""))
            await handler(call)

        return handle

    async def stop(self) -> None:
        """Answer waiting ReceiveMessage calls, end Telemetry streams, stop renewing messages."""
        self._receives.stop()
        self._clients.stop()
        await self._background.stop()


def service(host: Host) -> Service:
    """The calls of RocketMQ 5, on this broker's ports."""
    s, config, clock = host.services, host.services.config, host.services.runtime.clock
    pops, settling = host.offered(Pops), host.offered(Settling)
    background = Background("gRPC calls", max_tasks=MAX_TASKS)
    held = HeldMessages(clock, settling)
    clients = GrpcClients(config, clock, s.clients, s.groups, held.give_back)
    topics = Topics(config, s.role, s.topics, s.metadata, s.registration)
    routes = Routes(config, s.role, s.metadata, topics, host.port)
    presence = Presence(clients)
    telemetry = Telemetry(config, clock, s.groups, clients, background)
    sends = Sends(config, clock, topics, host.ports.sending)
    receives = Receives(config, clock, s.metadata, pops, settling, clients, held, background)
    ends = Ends(config, settling)
    handlers: dict[str, Handler] = {
        "QueryRoute": unary(schema.QueryRouteRequest, schema.QueryRouteResponse, routes.route),
        "QueryAssignment": unary(
            schema.QueryAssignmentRequest, schema.QueryAssignmentResponse, routes.assignment
        ),
        "Heartbeat": unary(schema.HeartbeatRequest, schema.HeartbeatResponse, presence.heartbeat),
        "NotifyClientTermination": unary(
            schema.NotifyClientTerminationRequest, schema.NotifyClientTerminationResponse, presence.goodbye
        ),
        "Telemetry": telemetry.serve,
        "SendMessage": unary(schema.SendMessageRequest, schema.SendMessageResponse, sends.send),
        "ReceiveMessage": receives.receive,
        "AckMessage": unary(schema.AckMessageRequest, schema.AckMessageResponse, ends.acknowledge),
        "ChangeInvisibleDuration": unary(
            schema.ChangeInvisibleDurationRequest, schema.ChangeInvisibleDurationResponse, ends.change
        ),
        "ForwardMessageToDeadLetterQueue": unary(
            schema.ForwardMessageToDeadLetterQueueRequest,
            schema.ForwardMessageToDeadLetterQueueResponse,
            ends.give_up,
        ),
    }
    return RocketmqService(clock, background, clients, held, receives, handlers)
