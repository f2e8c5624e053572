"""Adds replication to a broker: the HA port, the tables beside the log, membership."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial

from orbitmq.auth.gate import AuthGate
from orbitmq.auth.users import Users
from orbitmq.broker.change_feed import DELAYS, OFFSETS, PROGRESS, QUEUE_ENDS, TIMERS
from orbitmq.broker.delay.delivered import deliveries_between
from orbitmq.broker.events import CutAhead, DeliveriesLost, LogCut, MasterNamed, SettingsChanged
from orbitmq.broker.extension import Attachment, ChangeRole, Host
from orbitmq.broker.own_requests import client_of
from orbitmq.broker.role import LEADING
from orbitmq.message.reserved import MASTER_ID
from orbitmq.replication.escape.escape import Escape
from orbitmq.replication.gate import ReplicaGate, rule_of
from orbitmq.replication.ha_handlers import HaHandlers
from orbitmq.replication.lag import LagClock, ReplicationLines
from orbitmq.replication.link.errors import LinkError
from orbitmq.replication.link.finding import MasterFinder
from orbitmq.replication.link.ha_client import HaClient
from orbitmq.replication.link.ha_port import HaPort
from orbitmq.replication.link.identity import BrokerIdentity
from orbitmq.replication.link.peers import PeerLink, Peers
from orbitmq.replication.link.proof import Keyring
from orbitmq.replication.link.record_boundaries import RecordBoundaries
from orbitmq.replication.link.stream import FrameKind
from orbitmq.replication.link.stream_follower import Ours
from orbitmq.replication.link.tail_truncation import TailTruncation
from orbitmq.replication.members import lease
from orbitmq.replication.members.fence import Timing
from orbitmq.replication.members.handlers import MemberHandlers
from orbitmq.replication.members.links import Links
from orbitmq.replication.members.lock_copy import LockCopy
from orbitmq.replication.members.membership import Membership
from orbitmq.replication.members.name_servers import NameServerQueries
from orbitmq.replication.members.other_slaves import OtherSlaves
from orbitmq.replication.members.queue_locks import LockHandlers, ReplicatedLocks
from orbitmq.replication.members.surroundings import OwnState, Surroundings
from orbitmq.replication.passing_on import PassingOn
from orbitmq.replication.replicas import Replicas
from orbitmq.replication.state.acted_tables import ActedTables
from orbitmq.replication.state.acting_journal import ActingJournal
from orbitmq.replication.state.codes import TableCodes
from orbitmq.replication.state.copies import TableCopies, TravellingTables
from orbitmq.replication.state.durable_tables import DurableTables
from orbitmq.replication.state.exchange import StateExchange
from orbitmq.replication.state.queue_ends import QueueEnds
from orbitmq.replication.status import ReplicationStatus
from orbitmq.settings import access
from orbitmq.transport.audit import Audit, AuditRefusal
from orbitmq.wire.headers.broker import ExchangeBrokerHaInfoRequest
from orbitmq.wire.signing import Credentials

log = logging.getLogger(__name__)


def attach(host: Host) -> Attachment:
    """The extension of a broker that may have replicas.

    A broker that requires keys and has no keys for other brokers has no replicas: it could not prove itself.
    """
    config = host.services.config
    if config.requires_keys and not isinstance(config.inner_client_credentials, Credentials):
        return Attachment()
    return Replication(host).attachment()


class Replication:
    """The parts of replication in one broker, in the order in which they are made: each needs earlier ones.

    The link copies the log, the exchange copies the tables beside it, membership decides who leads.
    """

    def __init__(self, host: Host) -> None:
        s = self._services = host.services
        self._lag = LagClock()
        self._replicas = Replicas(rule_of(s.config), self._log_end, self._lag.grew_s, self._replicated)
        self._gate = ReplicaGate(s.runtime.clock, s.config, s.events, s.store, s.durability, self._replicas)
        self._peers = Peers()
        self._timing = Timing(s.config.broker_not_active_timeout_ms / 1000, s.config.member_period_ms / 1000)
        self._client = client_of(s.runtime, s.config)
        asks = s.config.requires_keys
        self._audit = host.offered(Audit) if s.config.audit_place is not None else None
        self._auth_gate = host.offered(AuthGate) if asks else None
        own = s.config.inner_client_credentials
        self._keys = Keyring(
            s.runtime,
            own if isinstance(own, Credentials) else None,
            host.offered(Users) if asks else None,
            lambda: s.config.auth_mode != access.OBSERVE,
        )
        if s.config.authentication_enabled and not self._keys.seals:
            log.warning("users and rules are not copied between brokers: cryptography is not installed")
        self._make_link()
        self._escape = s.sink.elsewhere = Escape(s.runtime, s.config, s.groups, s.name_servers)
        self._make_tables()
        self._make_members(host.change_role)

    def attachment(self) -> Attachment:
        """Everything that the broker attaches."""
        s = self._services
        handlers = HaHandlers(
            s.role,
            s.store,
            self._status,
            s.address,
            self._ha_address,
            self._on_master_announced,
            self._term,
            self._other_slaves.answer,
        )
        return Attachment(
            # The gate starts last and stops first, while the port still takes acknowledgements.
            components=[
                self._port,
                self._ha_client,
                self._finder,
                self._exchange,
                self._copies,
                self._journal,
                self._membership,
                self._locks,
                self._escape,
                self._passing_on,
                self._lines,
                self._gate,
            ],
            families=[MemberHandlers(self._membership.look_now)],
            instead=[handlers, LockHandlers(self._locks)],
            hand_over=self._membership.hand_over,
            status=lambda: {**self._gate.status(), **self._status.lines(), **self._lines.lines()},
            unready=self._status.unready,
            offers=[self._exchange],
        )

    # -- state of this broker for the parts ------------------------------------------------------------

    def _log_end(self) -> int:
        return self._services.store.max_commit_log_offset

    def _term(self) -> int:
        return self._services.topics.version.state_version

    def _ha_address(self) -> str:
        return self._services.registration.ha_address

    def _replicated(self) -> None:
        self._gate.moved()

    async def _others(self) -> Mapping[int, str]:
        return await self._membership.others()

    # -- the log ---------------------------------------------------------------------------------------

    def _make_link(self) -> None:
        s, replicas = self._services, self._replicas
        identity = BrokerIdentity(
            s.runtime, s.config, s.store, s.role, s.address, self._term, self._keys.seals
        )
        self._lines = ReplicationLines(s.runtime.clock, s.role, s.store, replicas, self._lag, self._term)
        self._port = HaPort(
            s.runtime, s.config, s.store, replicas, self._peers, identity, self._listens, self._lines.begin,
            s.tls, self._keys, self._refused,
        )  # fmt: skip
        truncation = TailTruncation(s.runtime, s.store, self._before_cut, self._after_cut)
        ours = Ours(self._peers, identity, truncation, RecordBoundaries(s.runtime, s.store), self._keys)
        self._durable = DurableTables(self._save)
        prepare = self._durable.all if s.config.broker_id != MASTER_ID else None
        self._ha_client = HaClient(s.runtime, s.config, s.store, s.address, ours, prepare)
        s.events.subscribe(SettingsChanged, self._settings_changed)
        self._status = ReplicationStatus(s.runtime.clock, s.role, s.store, self._port, self._ha_client)

    def _settings_changed(self, event: SettingsChanged) -> None:
        if access.MODE in event.keys:
            self._ha_client.broken(LinkError(f"{access.MODE} has changed: brokers greet each other anew"))

    def _refused(self, claimed: str, host: str, why: str) -> None:
        if self._audit is not None:
            self._audit.refused(AuditRefusal(claimed, host, "HA link", why))

    def _listens(self, port: int) -> None:
        self._services.registration.ha_port = port

    async def _before_cut(self, start: int, end: int) -> None:
        s = self._services
        async for lost in deliveries_between(s.runtime.threads, s.store, s.config.broker_name, start, end):
            s.events.publish(DeliveriesLost(lost))
        s.events.publish(CutAhead(start))
        # Flush before the log is cut: after a crash in between, the log still shows that these deliveries
        # were made.
        await s.persistence.flush(DELAYS, TIMERS, OFFSETS)

    async def _after_cut(self, end: int) -> None:
        self._replicas.forget()
        self._services.events.publish(LogCut(end))
        # The progress was fitted to the new end of the log by LogCut. It is flushed before the master's log
        # is copied: afterwards nothing shows where this broker's log ended.
        await self._services.persistence.flush(*PROGRESS)

    # -- the tables beside the log ---------------------------------------------------------------------

    def _make_tables(self) -> None:
        s = self._services
        QueueEnds(s.feed, s.store)
        self._lock_copy = LockCopy(s.runtime.clock, s.config, s.role, s.locks, self._timing)
        self._exchange = StateExchange(
            s.runtime.clock,
            s.events,
            s.role,
            s.feed,
            s.store,
            self._peers,
            self._durable,
            self._lock_copy,
            s.persistence.note_version,
            self._ha_client.broken,
        )
        codes = TableCodes(self._client, s.feed, s.topics, takes=lambda: s.role.role not in LEADING)
        self._copies = TableCopies(s.runtime.clock, codes, lambda: self._ha_client.classic_master)
        self._tables = TravellingTables(self._peers, self._exchange, codes, self._lock_copy)
        self._journal = ActingJournal(s.runtime.clock, s.persistence)

    async def _save(self, *tables: str) -> None:
        await self._services.persistence.flush(*(table for table in tables if table != QUEUE_ENDS))
        if QUEUE_ENDS in tables:
            await self._services.store.keep_ends()  # the store keeps the ends of queues in its own files

    # -- membership ------------------------------------------------------------------------------------

    def _make_members(self, change_role: ChangeRole) -> None:
        s, ha_client, client = self._services, self._ha_client, self._client
        clock = s.runtime.clock
        acted = ActedTables(s.feed, self._exchange, self._exchange.acted)
        self._other_slaves = OtherSlaves(client, s.role, s.address, acted, self._others)
        self._membership = membership = Membership(
            clock,
            s.config,
            s.events,
            s.role,
            OwnState(
                s.address,
                self._ha_address,
                self._log_end,
                partial(s.store.record_at, damaged=True),
                self._term,
                lambda: s.store.crashed,
            ),
            self._timing,
            client,
            NameServerQueries(client, s.config, s.address, lambda: s.topics.version),
            Surroundings(
                ha_client,
                Links(clock, s.config, self._port, ha_client, self._peers),
                self._tables,
                self._other_slaves,
                s.sink.settle,
                # Clients whose pulls wait here are answered, and pull from the master next (SS-05).
                s.long_polling.expire_all,
            ),
            change_role,
        )
        self._subscribe_to_peers()
        # Made after the exchange: changes that wait there are applied before the lock copy answers questions.
        self._locks = ReplicatedLocks(
            clock, s.events, s.config, s.role, s.locks, client, membership.others, self._exchange,
            self._lock_copy, self._timing.look_s, membership.took_all, self._has_groups,
            s.persistence.flush,
        )  # fmt: skip
        self._passing_on = PassingOn(s.runtime, s.config, s.role, ha_client, self._auth_gate)
        s.to_master.ask, s.to_master.keeps_users = self._passing_on.ask, self._passing_on.keeps_users
        self._finder = MasterFinder(clock, s.config, ha_client, membership.others)
        if not s.config.enable_slave_acting_master:
            # Without acting masters a slave learns its master only from a name server's answer to its
            # registration.
            s.events.subscribe(MasterNamed, lambda named: self._follow(named.ha_address, named.address))

    def _subscribe_to_peers(self) -> None:
        peers, membership = self._peers, self._membership
        peers.on(FrameKind.LEASE_ASKED, self._on_lease_request)
        peers.on(FrameKind.LEASE_GIVEN, self._lease_given)
        peers.on(FrameKind.TAKE_OVER, self._on_take_over_request)
        peers.on(FrameKind.HAND_OVER, lambda _link, _payload: membership.master_releases())
        peers.on_greeting(membership.greeted)
        peers.on_longer(membership.longer)
        peers.on_change(lambda link, up: None if up or not link.is_master else membership.look_now())

    def _on_take_over_request(self, link: PeerLink, _payload: bytes) -> None:
        if self._membership.may_take_over():
            link.send(FrameKind.HAND_OVER, b"")

    def _on_lease_request(self, link: PeerLink, payload: bytes) -> None:
        number, term = lease.read_question(payload)
        if link.is_master and self._membership.promises(term):
            link.send(FrameKind.LEASE_GIVEN, lease.answer(number))

    def _lease_given(self, link: PeerLink, payload: bytes) -> None:
        if not link.is_master:
            self._membership.lease_given(link.broker_id, lease.read_answer(payload))

    def _has_groups(self) -> bool:
        s = self._services
        return s.groups.any_known() or not (s.locks.alone or self._membership.took_all())

    def _follow(self, ha_address: str | None, master_address: str | None) -> None:
        # haMasterAddress takes precedence over the address from the name server (BrokerController).
        self._ha_client.follow(self._services.config.ha_master_address or ha_address, master_address)

    async def _on_master_announced(self, news: ExchangeBrokerHaInfoRequest) -> bool:
        if self._services.config.enable_slave_acting_master:
            self._lock_copy.master_returns()
            return await self._membership.announced(news.master_ha_address, news.master_address)
        self._follow(news.master_ha_address, news.master_address)
        return self._services.role.leads
