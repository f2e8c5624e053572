"""What replication adds to a broker."""

from __future__ import annotations

from orbitmq.broker.extension import Attachment, Host
from orbitmq.replication.gate import ReplicaGate, rule_of
from orbitmq.replication.ha_handlers import HaHandlers
from orbitmq.replication.link.follower import Following
from orbitmq.replication.link.ha_port import HaPort
from orbitmq.replication.replicas import Replicas
from orbitmq.replication.status import ReplicationStatus
from orbitmq.wire.headers import ExchangeBrokerHaInfoRequest


def attach(host: Host) -> Attachment:
    """The extension of a broker that may have replicas."""
    s = host.services
    replicas = Replicas(rule_of(s.config), lambda: s.store.max_commit_log_offset)
    gate = ReplicaGate(s.runtime.clock, s.config, s.events, s.store, s.durability, replicas)

    def listens(port: int) -> None:
        s.registration.ha_port = port

    port = HaPort(s.runtime, s.config, s.store, replicas, listens)
    following = Following(s.runtime, s.config, s.store, s.address)
    status = ReplicationStatus(s.runtime.clock, s.role, s.store, port, following)

    def master_named(ha_address: str | None, master_address: str | None) -> None:
        # haMasterAddress says where to connect, whatever the name server thinks (BrokerController).
        following.follow(s.config.ha_master_address or ha_address, master_address)

    def pushed(news: ExchangeBrokerHaInfoRequest) -> None:
        master_named(news.master_ha_address, news.master_address)

    s.registration.on_master = master_named
    handlers = HaHandlers(s.role, s.store, status, s.address, lambda: s.registration.ha_address, pushed)
    # The gate starts last and stops first, while the port still takes acknowledgements.
    return Attachment(components=[port, following, gate], families=[handlers], status=gate.status)
