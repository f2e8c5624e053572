"""The handlers of Heartbeat and NotifyClientTermination."""

from __future__ import annotations

from orbitmq.gateway import schema
from orbitmq.gateway.caller import Caller
from orbitmq.gateway.clients import GrpcClients
from orbitmq.gateway.messages import new
from orbitmq.gateway.names import group_name
from orbitmq.gateway.peer import CONSUMERS
from orbitmq.gateway.schema import ClientType
from orbitmq.gateway.status import Code, RefusalError
from orbitmq.gateway.unary import ok


def not_served(kind: int) -> RefusalError:
    """The refusal of a client whose type the gateway does not serve."""
    name = ClientType(kind).name if kind in ClientType.__members__.values() else "unknown"
    return RefusalError(
        Code.UNRECOGNIZED_CLIENT_TYPE,
        f"client_type {kind} ({name}) is not served: producers, push consumers and simple consumers are",
    )


class Presence:
    """Handles the heartbeats and terminations of clients."""

    def __init__(self, clients: GrpcClients) -> None:
        self._clients = clients

    async def heartbeat(self, caller: Caller, request: schema.HeartbeatRequest) -> schema.HeartbeatResponse:
        """Heartbeat: keep the client registered."""
        return self.beat(caller, request)

    def beat(self, caller: Caller, request: schema.HeartbeatRequest) -> schema.HeartbeatResponse:
        """As :meth:`heartbeat`. The client need not have sent its settings before."""
        if request.client_type in CONSUMERS:
            self._clients.consumes(caller, request.client_type, group_name(request.group), None)
        elif request.client_type == ClientType.PRODUCER:
            self._clients.beats(caller)
        else:
            raise not_served(request.client_type)
        return new(schema.HeartbeatResponse, status=ok())

    async def goodbye(
        self, caller: Caller, _request: schema.NotifyClientTerminationRequest
    ) -> schema.NotifyClientTerminationResponse:
        """NotifyClientTermination: the client's unacknowledged messages become visible to others at once."""
        self._clients.leave(caller.client_id)
        return new(schema.NotifyClientTerminationResponse, status=ok())
