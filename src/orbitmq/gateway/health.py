"""The service grpc.health.v1, for the health checks of load balancers and Kubernetes."""

from __future__ import annotations

from typing import Final

from orbitmq.broker.role import RoleState
from orbitmq.gateway import schema
from orbitmq.gateway.call import Call, CallError, GrpcStatus
from orbitmq.gateway.messages import PACKAGE, new
from orbitmq.gateway.unary import request_of

# The names of the checked services; the empty name is the server as a whole.
SERVICES: Final = frozenset({"", f"{PACKAGE}.MessagingService"})


class Health:
    """Answers Check. A broker that neither takes messages nor leads, such as a slave, is NOT_SERVING."""

    def __init__(self, role: RoleState) -> None:
        self._role = role

    async def check(self, call: Call) -> None:
        """Check: SERVING or NOT_SERVING."""
        request = await request_of(call, schema.HealthCheckRequest)
        if request.service not in SERVICES:
            raise CallError(
                GrpcStatus.NOT_FOUND, f"service {request.service[:64]!r} is not served by OrbitMQ"
            )
        serves = self._role.takes_messages or self._role.leads
        status = schema.ServingStatus.SERVING if serves else schema.ServingStatus.NOT_SERVING
        await call.write(new(schema.HealthCheckResponse, status=status).SerializeToString())
