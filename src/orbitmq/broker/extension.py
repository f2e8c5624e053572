"""How features and extensions are attached to a broker.

Features belong to every broker and are listed in ``assembly``. Extensions, such as replication, are passed in
by ``cluster``, which puts brokers together. Each one is called once, before the broker starts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from orbitmq.auth.gate import AuthGate
from orbitmq.broker.component import Component
from orbitmq.broker.handlers.base import HandlerFamily
from orbitmq.broker.parts import Ports, Services
from orbitmq.broker.quotas.meter import Meter
from orbitmq.broker.role import Role
from orbitmq.monitoring.exposition import Exposition
from orbitmq.transport.audit import Audit
from orbitmq.transport.server import Taker

ChangeRole: TypeAlias = Callable[[Role], Awaitable[None]]
HandOver: TypeAlias = Callable[[], Awaitable[None]]
Status: TypeAlias = Callable[[], Mapping[str, str]]
Unready: TypeAlias = Callable[[], Sequence[str]]
WriteFigures: TypeAlias = Callable[[Exposition], Awaitable[None]]


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Host:
    """What a feature or an extension gets of the broker that it is attached to.

    Attributes:
        port: the port for clients.
        change_role: see ``Broker.change_role``.
        offers: the ports of the features attached before.
    """

    services: Services
    ports: Ports
    port: int
    change_role: ChangeRole
    offers: list[object] = field(default_factory=list)

    def offered(self, kind: type[T]) -> T:
        """The port of this class, which a feature or an extension that was attached before offers.

        Raises:
            LookupError: no feature offers this port.
        """
        for offer in self.offers:
            if isinstance(offer, kind):
                return offer
        raise LookupError(f"nothing that is attached offers a {kind.__name__}")


@dataclass(frozen=True, slots=True)
class Attachment:
    """What a feature or an extension adds to a broker.

    Attributes:
        components: start after the broker's own parts, before the broker serves requests.
        families: handlers of request codes that no other part of the broker answers.
        instead: handlers that replace the broker's own.
        hand_over: awaited at a clean stop while everything still works; has to keep its own time limit.
        status: lines to add to brokerStatus.
        figures: adds its own metrics to a scrape.
        unready: reasons why clients cannot use the broker, each a short text for `/readyz`; none: they can.
        offers: ports for the extensions attached after it (:meth:`Host.offered`).
        takers: doors for connections to the broker's port that begin with these bytes instead of a frame.
        meter: counts what clients send and receive, while there are quotas.
        gate: checks every request before the broker handles it; at most one attachment has a gate.
        audit: writes changes and refusals to a log; at most one attachment has an audit.
    """

    components: Sequence[Component] = ()
    families: Sequence[HandlerFamily] = ()
    instead: Sequence[HandlerFamily] = ()
    hand_over: HandOver | None = None
    status: Status = dict
    figures: WriteFigures | None = None
    unready: Unready = tuple
    offers: Sequence[object] = ()
    takers: Mapping[bytes, Taker] = field(default_factory=dict)
    gate: AuthGate | None = None
    audit: Audit | None = None
    meter: Meter | None = None


Extension: TypeAlias = Callable[[Host], Attachment]
