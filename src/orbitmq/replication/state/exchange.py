"""Sends changes of the tables over the link with the log, within a moment, in the order in which they were
made."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from msgspec import UNSET

from orbitmq.broker.change_feed import ACTED, SECRET, UNTOLD, USERS, ChangeFeed, FeedEntry
from orbitmq.broker.component import Component, Table
from orbitmq.broker.events import Events, ResetDone, TablesReceived
from orbitmq.broker.role import LEADING, Role, RoleChanged, RoleState, RoleTaken
from orbitmq.broker.stamps import Age
from orbitmq.replication.link.peers import PeerLink, Peers
from orbitmq.replication.link.stream import FrameKind
from orbitmq.replication.members.lock_copy import LockCopy
from orbitmq.replication.members.ports import ExchangeError
from orbitmq.replication.state.acting_term import ActingTerm
from orbitmq.replication.state.durable_tables import DurableTables, has_metadata
from orbitmq.replication.state.frames import (
    Ack,
    Changes,
    PromiseRequest,
    State,
    TablesRequest,
    TablesSent,
    decode_state,
    encode,
)
from orbitmq.replication.state.inbox import Action, Complete, Inbox
from orbitmq.replication.state.lagging_followers import LaggingFollowers
from orbitmq.replication.state.later_changes import LaterChanges
from orbitmq.replication.state.merge_rules import MergeRules
from orbitmq.replication.state.seen_by_follower import SeenByFollower
from orbitmq.replication.state.shadow import Shadow
from orbitmq.replication.state.tables_sender import SenderFacts, TablesSender, Why
from orbitmq.replication.state.terms import Terms, begins_term
from orbitmq.replication.state.unsynced_start import UnsyncedStart
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Clock
from orbitmq.store import MessageStore

log = logging.getLogger(__name__)

# How often to check whether the log has reached the places of changes that wait for it.
CHECK_SECONDS = 0.02
ASK_SECONDS = 5.0
# How many changes are made before the event loop gets time for other work.
SLICE = 200


class StateExchange(Component):
    """Sends followers the changes made here, and makes the changes of a leader.

    A leader sends each follower that connects its whole tables, and from then on each change. A follower
    takes no tables of a lower term, and sends its own whole tables in return. A slave that has stopped acting
    does the same, so that a master that skipped pre-online gets the changes made while another broker acted.
    Such a master already serves: it takes the entries that are new to it, then sends its whole tables.

    Args:
        durable: the tables that must be on the disk before their changes count.
        locks: decides when the table of queue locks is complete; frames of whole tables contain that time.
        note_version: called with each table whose version changed although its entries did not.
        refused: called when the disk refuses changes of the leader.

    Attributes:
        acted: whether this broker acted for its master.
        shadow: compares accepted changes with what stamps say, in the simulation only.
    """

    name = "state exchange"

    def __init__(
        self,
        clock: Clock,
        events: Events,
        role: RoleState,
        feed: ChangeFeed,
        store: MessageStore,
        peers: Peers,
        durable: DurableTables,
        locks: LockCopy,
        note_version: Callable[[str], object],
        refused: Callable[[OSError], object],
    ) -> None:
        self._clock = clock
        self._durable = durable
        self._locks = locks
        self._note_version = note_version
        self._events = events
        self._role = role
        self._feed = feed
        self._store = store
        self._peers = peers
        self.terms = Terms(feed)
        self.acted = ActingTerm(feed)
        self._lagging = LaggingFollowers(feed, events)
        self._unsynced = UnsyncedStart()
        self._accepts = MergeRules(
            feed, role, self.terms, self.acted, self._lagging, self._unsynced, self._send_own, locks.follows
        )
        self._sender = TablesSender(
            clock, role, feed, self._lagging, durable, locks, self._stamp, self._spawn
        )
        self._later = LaterChanges(feed, self._apply, self._sender.send_recorded)
        self._seen_by = SeenByFollower()
        self._started = False
        self._ends_to_act = False
        self._applies = False  # the changes being made now come from a peer
        self._has_tables = False  # since the start, the leader has sent its whole tables
        self._inboxes: dict[PeerLink, Inbox] = {}
        self._requests: dict[PeerLink, asyncio.Future[None]] = {}
        self._news = asyncio.Event()
        self.shadow: Shadow | None = None
        self._refused = refused
        self._limiter = LogLimiter(log)
        peers.on(FrameKind.STATE, self._received)
        peers.on(FrameKind.STATE_ACK, self._acknowledged)
        peers.on_change(self._link_changed)
        events.subscribe(RoleChanged, self._role_changed)
        events.subscribe(RoleTaken, self._role_taken)
        events.subscribe(ResetDone, self._on_reset_done)
        feed.subscribe(self._changed)

    def tables(self) -> Sequence[Table]:
        return (Table(ACTED, self.acted), Table(UNTOLD, self._lagging))

    async def start(self) -> None:
        self._started = True
        self._spawn(self._make_changes(), "changes")

    async def end_work(self) -> None:
        self._sender.stop()
        await super().end_work()

    # -- TableExchange -----------------------------------------------------------------------------------

    async def push(self) -> None:
        """Send all changes to the brokers that copy this log; return when they have made them."""
        await self._sender.push()

    async def master_has_changes(self) -> None:
        """Return when the master has all changes sent to it; at once without changes or without a link."""
        await self._sender.master_has_changes()

    async def shared_with(self, broker_id: int) -> bool:
        """Send all changes to a broker that copies this log; return when it has them. ``False``: no link.

        That broker makes these changes before it leads, wherever its log ends.
        """
        return await self._sender.shared_with(broker_id)

    def request_promise(self, number: int, hold_s: float) -> None:
        """Ask the leader whether it has sent its whole tables, and promises that this broker may rely on
        them."""
        for link in self._sender.masters:
            link.send(FrameKind.STATE, encode(PromiseRequest(number, hold_s)))

    async def request_tables(self, link: PeerLink) -> None:
        """Take over a peer's newer entries (PO-08); entries that only this broker has stay.

        Raises:
            ExchangeError: the peer did not send all its tables in time.
        """
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._requests[link] = answer
        try:
            link.send(FrameKind.STATE, encode(TablesRequest()))
            async with asyncio.timeout(ASK_SECONDS):
                await answer
        except (TimeoutError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and not answer.cancelled():
                raise
            raise ExchangeError(f"{link.address} did not send its tables in time") from error
        finally:
            del self._requests[link]

    async def apply_frames(self, link: PeerLink, frames: Iterable[bytes]) -> None:
        """Take over a peer's tables from bytes that arrived without a link; :meth:`request_tables` uses one.

        Raises:
            LinkError, ExchangeError: the bytes are malformed, or incomplete.
        """
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._link_changed(link, True)
        self._requests[link] = answer
        try:
            for frame in frames:
                self._received(link, frame)
            async with asyncio.timeout(ASK_SECONDS):
                await answer
        except TimeoutError as error:
            raise ExchangeError(f"{link.address} did not send all its tables") from error
        finally:
            del self._requests[link]
            self._link_changed(link, False)

    # -- sending -----------------------------------------------------------------------------------------

    def _stamp(self, asked: bool) -> SenderFacts:
        if asked:
            return SenderFacts(self.terms.term, self.acted.term, self._store.crashed and not self._has_tables)
        return SenderFacts(self.terms.term, 0, self._unsynced.is_on)

    def _changed(self, table: str, key: str, value: object) -> None:
        if self._started:  # changes that a start reads from the journal were made in an earlier run
            self._seen_by.changed(self._feed.sequence, table, key, value, own=self._role.takes_messages)
            self._unsynced.changed(table, key)
        self._sender.changed(table, key, value)
        if self._role.takes_messages and not self._applies:
            for inbox in self._inboxes.values():
                inbox.changed_here(table, key)

    def _on_reset_done(self, _event: ResetDone) -> None:
        """Note that all followers lack the change: if this broker was killed now, they would undo it."""
        if self._role.takes_messages:
            for link in self._sender.followers:
                self._lagging.note(link.broker_id, self._feed.sequence)

    # -- receiving ---------------------------------------------------------------------------------------

    def _received(self, link: PeerLink, payload: bytes) -> None:
        frame = decode_state(payload)
        if not isinstance(frame, Changes):
            self._handle_request(link, frame)
            return
        inbox = self._inboxes.get(link)
        if inbox is None:
            return
        if not link.sealed:
            frame = frame.without_secrets()
        if frame.asked:
            accepts = self._accepts.of_answer(link, frame, asked=link in self._requests)
        else:
            accepts = self._accepts.of_leader(link, frame)
        if self.shadow is not None:
            accepts = self.shadow.accepting(link.address, frame, accepts)
        inbox.take(frame, partial(self._later.takes, link, accepts))
        link.send(FrameKind.STATE_ACK, encode(Ack(inbox.received, inbox.applied)))
        self._news.set()

    def _handle_request(self, link: PeerLink, frame: State) -> None:
        if isinstance(frame, TablesRequest):
            self._accepts.note_own_sent(link)
            self._sender.send_all(link, Why.ASKED)
        elif isinstance(frame, PromiseRequest):
            sending = self._sender.followers.get(link)
            if sending is None or sending.full_sends:
                return
            if self._locks.promises(link.broker_id, link.address, frame.hold_s):
                self._sender.flush()
                link.send(FrameKind.STATE, encode(TablesSent(frame.number, self.terms.term)))
        elif (
            isinstance(frame, TablesSent) and not self._accepts.lacks(link) and frame.term >= self.terms.term
        ):
            # A leader whose term is lower than this broker's is ignored.
            self._locks.confirmed(frame.number)

    def _send_own(self, link: PeerLink) -> None:
        """Send the master this broker's whole tables, for which the master has not asked.

        Nothing is sent while this broker ends its work as acting master: the tables that the master sends in
        return would undo the changes that this work still makes.
        """
        if self._ends_to_act:
            return
        self._accepts.note_own_sent(link)
        self._sender.send_all(link, Why.LED_SINCE)

    async def _make_changes(self) -> None:
        while True:
            self._news.clear()
            for link, inbox in list(self._inboxes.items()):
                await self._make_ready(link, inbox)
            waits = any(len(inbox) for inbox in self._inboxes.values())
            try:
                async with asyncio.timeout(CHECK_SECONDS if waits else None):
                    await self._news.wait()
            except TimeoutError:
                pass

    async def _make_ready(self, link: PeerLink, inbox: Inbox) -> None:
        """Apply the changes whose place the log has reached, in slices; at the link's end, apply the rest."""
        before, ready = inbox.applied, inbox.ready(self._store.max_commit_log_offset)
        made = 0
        while (action := inbox.take_next()) is not None:
            self._do(link, inbox, action)
            made += 1
            if made % SLICE == 0:
                await asyncio.sleep(0)
        if has_metadata(ready) and not await self._keep_what(link):
            return
        inbox.made()
        if inbox.applied != before and link in self._inboxes:
            link.send(FrameKind.STATE_ACK, encode(Ack(inbox.received, inbox.applied)))

    async def _keep_what(self, link: PeerLink) -> bool:
        """Write the changes that were made to the disk; ``False``: the disk refuses changes of the leader.

        The leader would otherwise count this broker as a copy, with a topic's messages but without the topic.
        """
        if not link.is_master:
            await self._durable.tried()
            return True
        try:
            await self._durable.all()
        except OSError as error:
            self._refused(error)
            return False
        return True

    def _do(self, link: PeerLink, inbox: Inbox, action: Action) -> None:
        if isinstance(action, FeedEntry):
            if self._is_late(inbox, action):
                return
            self._durable.owes_progress |= not link.is_master
            self._apply(self._accepts.with_our_version(link, action))
            return
        self._events.publish(TablesReceived(action.locks_in_s == 0))
        self._unsynced.note_synced()
        self._later.tables_ended(link, action)
        if not action.asked:
            self._has_tables = True
            self._unsynced.ends()
            self._remove_others(link, action)
        elif link in self._sender.links and (answer := self._accepts.answer(link)).welcome:
            if self._role.takes_messages:
                # The peer acted meanwhile and took none of this broker's changes.
                self._sender.begin(link)
            elif answer.newer or not answer.news_only:
                self._remove_others(link, action, acted=link.broker_id if answer.acted else None)
        if action.asked and (asked := self._requests.get(link)) is not None and not asked.done():
            self._locks.taken(action.locks_in_s)
            asked.set_result(None)

    def _is_late(self, inbox: Inbox, entry: FeedEntry) -> bool:
        """Whether this broker has changed the key of a received change since, and its own change counts."""
        age = self._feed.age(entry)
        if age is None or age is Age.SAME:
            is_news = self._feed.has_rule(entry.table) and self._feed.is_news(entry, led=False)
            return inbox.is_outdated(entry) and not is_news
        return age is Age.OLDER

    def _apply(self, entry: FeedEntry) -> None:
        self._applies = True
        try:
            self._feed.apply(entry)
        except ValueError as error:
            # The table is one that only newer versions of OrbitMQ have.
            self._limiter.write(
                logging.WARNING, "a change that is left out", "a change is left out: %s", error
            )
        finally:
            self._applies = False

    def _remove_others(self, link: PeerLink, complete: Complete, *, acted: int | None = None) -> None:
        """Remove the keys that the leader's tables do not have.

        In a peer's answer a missing key may only show that the peer has an earlier state of this broker's
        tables. Then a key is removed only if the peer has the key that it belongs to (``FedTable.whole``), or
        if the peer, with id ``acted``, acted, had the key from this broker and has dealt with it. A leader
        that sends no users at all removes none: it requires no keys, or the link is not sealed.
        :class:`LaterChanges` handles keys that record their last change.
        """
        for name, table in self._feed.tables().items():
            if table.items is None or (name in SECRET and USERS not in complete.keys):
                continue
            told = complete.keys.get(name, set())
            version = None
            if table.versioned is not None:
                now = table.versioned.version
                version = (now.state_version, now.timestamp, now.counter)
            for key in [key for key, _ in table.items() if key not in told]:
                if self._unsynced.has_changed(name, key):
                    continue
                if table.last is not None and table.last.of(name, key, deleted=False):
                    continue
                done = acted is not None and self._seen_by.knew(acted, name, key)
                if done or not complete.asked or complete.knows_whole(table, key):
                    stamp = None if self.shadow is None else self.shadow.removing(link.address, name, key)
                    self._apply(FeedEntry(0, 0, name, key, None, version, stamp or UNSET))

    def _acknowledged(self, link: PeerLink, payload: bytes) -> None:
        sending = self._sender.acknowledged(link, payload)
        if sending is not None and self._role.leads:
            # While this broker may lead, no other does, and a follower makes the changes it acknowledges.
            self._seen_by.note_applied(link.broker_id, sending.applied)
        if sending is not None and self._role.takes_messages:
            self._lagging.note_applied(link.broker_id, sending.applied)

    # -- links and roles ---------------------------------------------------------------------------------

    def _link_changed(self, link: PeerLink, up: bool) -> None:
        if not up:
            self._sender.closed(link)
            inbox = self._inboxes.pop(link, None)
            if inbox is not None:
                self._make_the_rest(link, inbox)
            self._accepts.closed(link)
            self._later.closed(link)
            if (answer := self._requests.get(link)) is not None:
                answer.cancel()
            return
        self._inboxes[link] = Inbox()
        self._accepts.opened(link)
        self._sender.opened(link)

    def _role_changed(self, changed: RoleChanged) -> None:
        if changed.after in LEADING or self._role.takes_messages:
            for link, inbox in self._inboxes.items():
                self._make_the_rest(link, inbox)
        self._ends_to_act = changed.before is Role.ACTING_MASTER and changed.after is Role.SLAVE
        if changed.after in LEADING:
            self._unsynced.ends()
        if not begins_term(changed):
            return
        if self._store.crashed and changed.after not in LEADING:
            self._unsynced.begins(self.terms.term)
        term = self.terms.begin()
        log.info("the tables of this broker are of term %d", term)
        if changed.after is Role.ACTING_MASTER:
            self.acted.begins(term)
        for name, table in self._feed.tables().items():
            if table.versioned is not None:
                self._note_version(name)
        if self._role.takes_messages:
            for link in self._sender.followers:
                self._sender.begin(link)

    def _role_taken(self, _taken: RoleTaken) -> None:
        """Send the master the tables: all work that this broker began while it acted has ended and is in
        them."""
        if self._ends_to_act:
            self._ends_to_act = False
            for link in self._sender.masters:
                self._send_own(link)

    def _make_the_rest(self, link: PeerLink, inbox: Inbox) -> None:
        """Make the leader's remaining changes now, though the log may never reach their places."""
        rest = inbox.rest()
        for action in rest:
            self._do(link, inbox, action)
        if self._background is not None and has_metadata(rest):
            self._spawn(self._durable.tried(), "save what was told last")
