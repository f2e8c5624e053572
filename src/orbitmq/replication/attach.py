"""What replication adds to a broker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from orbitmq.broker.change_feed import DELAYS, OFFSETS, PROGRESS, QUEUE_ENDS, TIMERS
from orbitmq.broker.delay.delivered import deliveries_between
from orbitmq.broker.events import CutAhead, DeliveriesLost, LogCut, MasterNamed
from orbitmq.broker.extension import Attachment, Host
from orbitmq.broker.own_requests import client_of
from orbitmq.broker.role import LEADING
from orbitmq.message.reserved import MASTER_ID
from orbitmq.replication.escape.escape import Escape
from orbitmq.replication.gate import ReplicaGate, rule_of
from orbitmq.replication.ha_handlers import HaHandlers
from orbitmq.replication.lag import ReplicationLines
from orbitmq.replication.link.borders import RecordBoundaries
from orbitmq.replication.link.cutting import TailTruncation
from orbitmq.replication.link.finding import MasterFinder
from orbitmq.replication.link.follower import Following
from orbitmq.replication.link.ha_port import HaPort
from orbitmq.replication.link.identity import Identity
from orbitmq.replication.link.peers import PeerLink, Peers
from orbitmq.replication.link.stream import Kind
from orbitmq.replication.link.stream_follower import Ours
from orbitmq.replication.members import lease
from orbitmq.replication.members.handlers import MemberHandlers
from orbitmq.replication.members.links import Links
from orbitmq.replication.members.membership import Membership
from orbitmq.replication.members.name_servers import NameServerQueries
from orbitmq.replication.members.ports import TableExchange
from orbitmq.replication.members.queue_locks import LockHandlers, ReplicatedLocks
from orbitmq.replication.members.siblings import OtherSlaves
from orbitmq.replication.members.surroundings import OwnState, Surroundings
from orbitmq.replication.passing_on import PassingOn
from orbitmq.replication.replicas import Replicas
from orbitmq.replication.state.acted_tables import ActedTables
from orbitmq.replication.state.acting_journal import ActingJournal
from orbitmq.replication.state.codes import TableCodes
from orbitmq.replication.state.copies import TableCopies, TravellingTables
from orbitmq.replication.state.exchange import StateExchange
from orbitmq.replication.state.kept import DurableTables
from orbitmq.replication.state.queue_ends import QueueEnds
from orbitmq.replication.status import ReplicationStatus
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.headers.broker import ExchangeBrokerHaInfoRequest


def attach(host: Host) -> Attachment:
    """The extension of a broker that may have replicas.

    One that asks for keys has none, and no HA port, which would give the log to anybody.
    """
    s = host.services
    if s.config.authentication_enabled:
        return Attachment()
    replicas = Replicas(rule_of(s.config), lambda: s.store.max_commit_log_offset)
    gate = ReplicaGate(s.runtime.clock, s.config, s.events, s.store, s.durability, replicas)

    def listens(port: int) -> None:
        s.registration.ha_port = port

    def term() -> int:
        return s.topics.version.state_version

    peers = Peers()

    async def about_to_cut(start: int, end: int) -> None:
        threads, name = s.runtime.threads, s.config.broker_name
        async for lost in deliveries_between(threads, s.store, name, start, end):
            s.events.publish(DeliveriesLost(lost))
        s.events.publish(CutAhead(start))
        # Before the log is shorter: after a crash between the two the log tells that they are done.
        await s.persistence.flush(DELAYS, TIMERS, OFFSETS)

    async def cut(end: int) -> None:
        replicas.forget()
        s.events.publish(LogCut(end))
        # Before the master's log is copied: behind it nothing tells any more what the log had ended with.
        await s.persistence.flush(*PROGRESS)

    identity = Identity(s.runtime, s.config, s.store, s.role, s.address, term)
    lines = ReplicationLines(s.runtime.clock, s.role, s.store, replicas, term)
    port = HaPort(s.runtime, s.config, s.store, replicas, peers, identity, listens, lines.begin, s.tls)
    cutting = TailTruncation(s.runtime, s.store, about_to_cut, cut)
    ours = Ours(peers, identity, cutting, RecordBoundaries(s.runtime, s.store))

    async def keep(*tables: str) -> None:
        await s.persistence.flush(*(table for table in tables if table != QUEUE_ENDS))
        if QUEUE_ENDS in tables:
            await s.store.keep_ends()  # in files of the store's own

    kept = DurableTables(keep)
    prepare = kept.all if s.config.broker_id != MASTER_ID else None
    following = Following(s.runtime, s.config, s.store, s.address, ours, prepare)
    status = ReplicationStatus(s.runtime.clock, s.role, s.store, port, following)

    escape = s.outlet.elsewhere = Escape(s.runtime, s.config, s.groups)
    QueueEnds(s.feed, s.store)

    exchange = StateExchange(
        s.runtime.clock,
        s.events,
        s.role,
        s.feed,
        s.store,
        peers,
        kept,
        s.persistence.note_version,
        following.broken,
    )
    client = client_of(s.runtime, s.config)
    codes = TableCodes(
        client,
        s.feed,
        s.topics,
        takes=lambda: s.role.role not in LEADING,
    )
    copies = TableCopies(s.runtime.clock, codes, lambda: following.classic_master)
    tables = TravellingTables(peers, exchange, codes)
    journal = ActingJournal(s.runtime.clock, s.persistence)
    siblings = OtherSlaves(client, s.role, s.address, ActedTables(s.feed, exchange, exchange.acted))
    membership = _membership(host, port, following, peers, client, tables, siblings, term)
    siblings.living = membership.others

    def has_groups() -> bool:
        return s.groups.any_known() or not (s.locks.alone or membership.took_all())

    # Behind the exchange: what waits there is made before the locks say what they know.
    locks = ReplicatedLocks(
        s.runtime.clock, s.events, s.config, s.role, s.locks, client, membership.others, exchange,
        membership.terms, membership.locks_from_s, has_groups, s.persistence.flush,
    )  # fmt: skip

    s.to_master.ask = PassingOn(s.runtime.clock, s.role, following, client).ask

    finder = MasterFinder(s.runtime.clock, s.config, following, membership.others)

    def master_named(ha_address: str | None, master_address: str | None) -> None:
        # haMasterAddress says where to connect, whatever the name server thinks (BrokerController).
        following.follow(s.config.ha_master_address or ha_address, master_address)

    async def pushed(news: ExchangeBrokerHaInfoRequest) -> bool:
        if s.config.enable_slave_acting_master:
            locks.master_returns()
            return await membership.announced(news.master_ha_address, news.master_address)
        master_named(news.master_ha_address, news.master_address)
        return s.role.leads

    if not s.config.enable_slave_acting_master:
        # Without acting masters the name server's answer to a registration is all that a slave knows.
        s.events.subscribe(MasterNamed, lambda named: master_named(named.ha_address, named.address))
    handlers = HaHandlers(
        s.role,
        s.store,
        status,
        s.address,
        lambda: s.registration.ha_address,
        pushed,
        term,
        siblings.answer,
    )
    return Attachment(
        # The gate starts last and stops first, while the port still takes acknowledgements.
        components=[
            port,
            following,
            finder,
            exchange,
            copies,
            journal,
            membership,
            locks,
            escape,
            lines,
            gate,
        ],
        families=[MemberHandlers(membership.look_now)],
        instead=[handlers, LockHandlers(locks)],
        hand_over=membership.hand_over,
        status=lambda: {**gate.status(), **status.lines(), **lines.lines()},
        unready=status.unready,
        offers=[exchange],
    )


def _membership(
    host: Host,
    port: HaPort,
    following: Following,
    peers: Peers,
    client: RemotingClient,
    tables: TableExchange,
    slaves: OtherSlaves,
    term: Callable[[], int],
) -> Membership:
    s = host.services
    links = Links(s.runtime.clock, s.config, port, following, peers)
    membership = Membership(
        s.runtime.clock,
        s.config,
        s.events,
        s.role,
        OwnState(
            s.address,
            lambda: s.registration.ha_address,
            lambda: s.store.max_commit_log_offset,
            partial(s.store.record_at, damaged=True),
            term,
            lambda: s.store.crashed,
        ),
        client,
        NameServerQueries(client, s.config, s.address, lambda: s.topics.version),
        # Clients whose pulls wait here are answered, and pull from the master next (SS-05).
        Surroundings(following, links, tables, slaves, s.outlet.settle, s.long_polling.expire_all),
        host.change_role,
    )

    def asked(link: PeerLink, _payload: bytes) -> None:
        if membership.may_take_over():
            link.send(Kind.HAND_OVER, b"")

    def lease_asked(link: PeerLink, payload: bytes) -> None:
        number, term = lease.read_question(payload)
        if link.is_master and membership.promises(term):
            link.send(Kind.LEASE_GIVEN, lease.answer(number))

    def lease_given(link: PeerLink, payload: bytes) -> None:
        if not link.is_master:
            membership.lease_given(link.broker_id, lease.read_answer(payload))

    peers.on(Kind.LEASE_ASKED, lease_asked)
    peers.on(Kind.LEASE_GIVEN, lease_given)
    peers.on(Kind.TAKE_OVER, asked)
    peers.on(Kind.HAND_OVER, lambda _link, _payload: membership.master_releases())
    peers.on_greeting(membership.greeted)
    peers.on_longer(membership.longer)
    peers.on_change(lambda link, up: None if up or not link.is_master else membership.look_now())
    return membership
