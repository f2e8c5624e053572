"""The gRPC service of a broker: the handler of each method of RocketMQ 5."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from orbitmq.auth.gate import AuthGate
from orbitmq.broker.access.topics import topic_at
from orbitmq.broker.events import Events
from orbitmq.broker.extension import Host
from orbitmq.broker.pop.acknowledging import Acknowledging
from orbitmq.broker.pop.service import Pops
from orbitmq.broker.quotas.meter import Meter
from orbitmq.broker.role import RoleState, RoleTaken
from orbitmq.broker.timers.recall import Recall
from orbitmq.broker.transactions.ending import EndingTransactions
from orbitmq.gateway import schema
from orbitmq.gateway.acks import AckMessage
from orbitmq.gateway.call import Handler, Open, Service
from orbitmq.gateway.caller import Callers, Check, everybody
from orbitmq.gateway.clients import GrpcClients
from orbitmq.gateway.cluster import OtherBrokers
from orbitmq.gateway.ends import Ends
from orbitmq.gateway.health import Health
from orbitmq.gateway.held import HeldMessages
from orbitmq.gateway.names import GrpcTopics
from orbitmq.gateway.order import OrderWarnings
from orbitmq.gateway.plain_door import PlainDoor
from orbitmq.gateway.presence import Presence
from orbitmq.gateway.quotas import CallQuotas
from orbitmq.gateway.recalls import Recalls
from orbitmq.gateway.receives import Receives
from orbitmq.gateway.rights import Rights
from orbitmq.gateway.routes import Routes
from orbitmq.gateway.saves import Saves
from orbitmq.gateway.sends import GrpcSends, SendMessage
from orbitmq.gateway.telemetry import Telemetry
from orbitmq.gateway.transactions import TransactionEnds
from orbitmq.gateway.unary import Unary
from orbitmq.runtime.seam import Clock
from orbitmq.runtime.tasks import Background, every
from orbitmq.settings.access import OBSERVE
from orbitmq.transport.audit import Audit
from orbitmq.wire.addresses import joined

# How often gone clients are removed and changed settings are sent, and how often messages are renewed.
LOOK_SECONDS: Final = 1.0
RENEW_SECONDS: Final = 5.0
MAX_TASKS: Final = 200_000
# How long acknowledgements may wait for the disk when the broker stops.
SAVE_SECONDS: Final = 2.0


class RocketmqService:
    """The methods of apache.rocketmq.v2.

    Attributes:
        plain: takes plain calls before their handlers do; None if each call has to be checked.
        quotas: the broker's quotas.
    """

    def __init__(
        self,
        clock: Clock,
        background: Background,
        clients: GrpcClients,
        held: HeldMessages,
        telemetry: Telemetry,
        receives: Receives,
        others: OtherBrokers,
        saves: Saves,
        handlers: Mapping[str, Handler],
        streams: Mapping[str, Open],
        plain: PlainDoor | None,
        quotas: CallQuotas,
    ) -> None:
        self.plain = plain
        self.quotas = quotas
        self._clients = clients
        self._receives = receives
        self._others = others
        self._saves = saves
        self._background = background
        self.handlers = handlers
        self.streams = streams
        background.spawn(every(clock, LOOK_SECONDS, clients.look), "who is gone")
        background.spawn(every(clock, LOOK_SECONDS, telemetry.send_changes), "settings")
        background.spawn(every(clock, RENEW_SECONDS, held.renew), "renewal")

    async def stop(self) -> None:
        """Answer the waiting ReceiveMessage calls, end Telemetry streams, and stop renewing messages."""
        self._receives.stop()
        self._clients.stop()
        await self._saves.stop(SAVE_SECONDS)
        await self._background.stop()
        await self._others.stop()


def _keep_what_clients_have(
    events: Events, role: RoleState, clients: GrpcClients, held: HeldMessages
) -> None:
    """Let clients keep their messages when this broker begins to lead its group."""

    def keep(_event: RoleTaken | None = None) -> None:
        if role.leads:
            clients.wait_for(held.take_up())
        else:
            held.clear()

    keep()
    events.subscribe(RoleTaken, keep)


def service(host: Host) -> Service:
    """The service that connects the methods of RocketMQ 5 with this broker's ports."""
    s, config, clock = host.services, host.services.config, host.services.runtime.clock
    pops, settling = host.offered(Pops), host.offered(Acknowledging)
    background = Background("gRPC calls", max_tasks=MAX_TASKS)
    held = HeldMessages(clock, settling)
    clients = GrpcClients(config, clock, s.clients, s.groups, s.topics, held)
    rights = _rights(host, clients) if config.requires_keys else None
    check: Check = everybody if rights is None else rights.check
    quotas = CallQuotas(
        host.offered(Meter),
        lambda: config.requires_keys and config.auth_mode != OBSERVE,
        _never if rights is None else rights.pause_s,
    )
    callers = Callers(clients.seen, check, quotas.count, _never if rights is None else rights.slow)
    _keep_what_clients_have(s.events, s.role, clients, held)
    topics = GrpcTopics(config, s.role, s.topics, s.metadata, s.registration, s.events)
    others = OtherBrokers(s.runtime, config, joined(config.broker_ip1, host.port))
    routes = Routes(config, s.role, s.metadata, topics, clients, others, host.port)
    presence = Presence(clients)
    telemetry = Telemetry(config, s.events, s.groups, clients, callers)
    sends = GrpcSends(config, clock, topics, host.ports.sending, clients)
    order = OrderWarnings(s.topics)
    receives = Receives(config, clock, s.metadata, pops, settling, clients, held, callers, order, quotas)
    ends = Ends(config, settling)
    saves = Saves(background)
    acks = AckMessage(callers, ends, saves)
    transactions = TransactionEnds(config, s.topics, host.offered(EndingTransactions))
    recalls = Recalls(host.offered(Recall), others)
    handlers = _short_calls(callers, routes, presence, ends, transactions, recalls)
    handlers |= {
        "Health.Check": Health(s.role).check,
        "SendMessage": SendMessage(callers, sends),
        "ReceiveMessage": receives,
        "AckMessage": acks,
    }
    # Plain calls skip the check of rights, so there are none if rights are checked.
    plain = PlainDoor(host, topics, clients, quotas, settling, saves) if check is everybody else None
    streams = {"Telemetry": telemetry.open}
    return RocketmqService(
        clock, background, clients, held, telemetry, receives, others, saves, handlers, streams, plain, quotas
    )


def _rights(host: Host, clients: GrpcClients) -> Rights:
    s = host.services
    at = partial(topic_at, s.store)
    gate, audit = host.offered(AuthGate), host.offered(Audit)
    return Rights(gate, audit, s.config.broker_name, at, clients.user_of, s.runtime.clock)


def _never(*_who: object) -> float:
    """The pause in seconds without rules: no connection is slowed."""
    return 0.0


def _short_calls(
    callers: Callers,
    routes: Routes,
    presence: Presence,
    ends: Ends,
    transactions: TransactionEnds,
    recalls: Recalls,
) -> dict[str, Handler]:
    """The handlers of methods with one request and one response."""
    return {
        "QueryRoute": Unary(callers, schema.QueryRouteRequest, schema.QueryRouteResponse, routes.route),
        "QueryAssignment": Unary(
            callers,
            schema.QueryAssignmentRequest,
            schema.QueryAssignmentResponse,
            routes.assignment,
            routes.known_assignment,
        ),
        "Heartbeat": Unary(
            callers,
            schema.HeartbeatRequest,
            schema.HeartbeatResponse,
            presence.heartbeat,
            presence.beat,
        ),
        "NotifyClientTermination": Unary(
            callers,
            schema.NotifyClientTerminationRequest,
            schema.NotifyClientTerminationResponse,
            presence.goodbye,
        ),
        "ChangeInvisibleDuration": Unary(
            callers,
            schema.ChangeInvisibleDurationRequest,
            schema.ChangeInvisibleDurationResponse,
            ends.change,
        ),
        "ForwardMessageToDeadLetterQueue": Unary(
            callers,
            schema.ForwardMessageToDeadLetterQueueRequest,
            schema.ForwardMessageToDeadLetterQueueResponse,
            ends.give_up,
        ),
        "EndTransaction": Unary(
            callers, schema.EndTransactionRequest, schema.EndTransactionResponse, transactions.end
        ),
        "RecallMessage": Unary(
            callers, schema.RecallMessageRequest, schema.RecallMessageResponse, recalls.recall
        ),
    }
