"""Sends other brokers the tables over their links: first the whole tables, then their changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from enum import Enum, auto
from typing import Any, NamedTuple

from orbitmq.broker.change_feed import METADATA, ChangeFeed, FeedEntry
from orbitmq.broker.role import RoleState
from orbitmq.replication.link.errors import LinkError
from orbitmq.replication.link.peers import PeerLink
from orbitmq.replication.link.stream import FrameKind
from orbitmq.replication.members.lock_copy import LockCopy
from orbitmq.replication.state.durable_tables import DurableTables
from orbitmq.replication.state.frames import decode_ack
from orbitmq.replication.state.lagging_followers import LaggingFollowers
from orbitmq.replication.state.outbox import MAX_ENTRIES, Outbox, SendingLink, everything
from orbitmq.runtime.seam import Clock

# The delay between a change and its sending: a key that changes again within it is sent once.
COLLECT_SECONDS = 0.05
# How often to check whether a peer has taken the frames sent to it.
CHECK_SECONDS = 0.02
# A follower silent for twice this long may lack changes that reach this broker's disk meanwhile.
SILENT_SECONDS = 0.25


class Why(Enum):
    """Why a peer is sent the whole tables."""

    FOLLOWS = auto()  # the peer copies this broker's tables
    ASKED = auto()  # the peer begins to lead with them
    LED_SINCE = auto()  # this broker led in a later term than the peer, which did not ask


class SenderFacts(NamedTuple):
    """The facts about its sender in a frame, see :class:`Changes`."""

    term: int
    acted_in: int
    anew: bool


class TablesSender:
    """The sending side of all links.

    Args:
        lagging: the followers that lack changes.
        durable: brings progress from followers to the disk before this broker's whole tables are sent to
            them.
        locks: decides when the table of queue locks is complete.
        stamp: returns the facts about this broker for a frame: for an answer (``True``) or as a leader.
        spawn: runs a task in the background until the exchange stops.

    Attributes:
        links: what each link has been sent.
    """

    def __init__(
        self,
        clock: Clock,
        role: RoleState,
        feed: ChangeFeed,
        lagging: LaggingFollowers,
        durable: DurableTables,
        locks: LockCopy,
        stamp: Callable[[bool], SenderFacts],
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
    ) -> None:
        self._clock = clock
        self._role = role
        self._feed = feed
        self._lagging = lagging
        self._durable = durable
        self._stamp = stamp
        self._locks = locks
        self._spawn = spawn
        self._outbox = Outbox(feed)
        self.links: dict[PeerLink, SendingLink] = {}
        self._flushing: asyncio.TimerHandle | None = None
        self._check_timer: asyncio.TimerHandle | None = None
        # set when frames are acknowledged, a link is closed, or whole tables are sent
        self._progress = asyncio.Event()

    def stop(self) -> None:
        """Stop sending changes; tables are sent only when a peer asks for them."""
        for timer in (self._flushing, self._check_timer):
            if timer is not None:
                timer.cancel()
        self._flushing = self._check_timer = None

    # -- links -------------------------------------------------------------------------------------------

    @property
    def followers(self) -> dict[PeerLink, SendingLink]:
        """The links of the brokers that copy this log."""
        return {link: sending for link, sending in self.links.items() if not link.is_master}

    @property
    def masters(self) -> list[PeerLink]:
        """The links to the master of this broker."""
        return [link for link in self.links if link.is_master]

    def opened(self, link: PeerLink) -> None:
        """Add a link: a follower is sent the whole tables now, other brokers when they ask."""
        self.links[link] = SendingLink(sealed=link.sealed)
        if not link.is_master and self._role.takes_messages:
            self.begin(link)

    def closed(self, link: PeerLink) -> None:
        """Remove a link that is gone, and note that its follower lacks changes from now on."""
        self.links.pop(link, None)
        again = any(link.broker_id == other.broker_id for other in self.links)
        if self._role.takes_messages and not link.is_master and not again:
            self._lagging.note(link.broker_id, self._feed.sequence)
        self._progress.set()

    def acknowledged(self, link: PeerLink, payload: bytes) -> SendingLink | None:
        """Note an acknowledgement; returns the link's sending side if its peer has made all changes.

        Raises:
            LinkError: the acknowledgement names frames that were not sent.
        """
        sending = self.links.get(link)
        if sending is not None and not sending.acknowledged(decode_ack(payload)):
            raise LinkError("it acknowledges tables that were not sent")
        self._progress.set()
        return None if sending is None or sending.waits else sending

    # -- changes -----------------------------------------------------------------------------------------

    def changed(self, table: str, key: str, value: object) -> None:
        """Note that a key has another value, or is gone: it is sent to followers soon, topics and groups at
        once."""
        if not (self.links and self._role.takes_messages and self._feed.travels(table)):
            return
        self._outbox.note(table, key, value)
        at_once = table in METADATA
        if self._flushing is not None and at_once:
            self._flushing.cancel()
        if self._flushing is None or at_once:
            loop = asyncio.get_running_loop()
            self._flushing = loop.call_later(0 if at_once else COLLECT_SECONDS, self.flush)

    def flush(self) -> None:
        """Send the changed keys to followers now."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        if not len(self._outbox):
            return
        sequence, entries, stamp = self._feed.sequence, self._outbox.take(), self._stamp(False)
        for link, sending in self.followers.items():
            for payload in sending.frames(stamp.term, sequence, entries, anew=stamp.anew):
                link.send(FrameKind.STATE, payload)
        if self._check_timer is None:
            self._check_later()

    def _check_later(self) -> None:
        self._check_timer = asyncio.get_running_loop().call_later(SILENT_SECONDS, self._check_stuck)

    def _check_stuck(self) -> None:
        self._check_timer = None
        if self._role.takes_messages and self._lagging.note_stuck(self.followers.items()):
            self._check_later()

    # -- whole tables --------------------------------------------------------------------------------------

    def begin(self, link: PeerLink) -> None:
        """Send a follower the whole tables, in the background; :meth:`push` waits for that."""
        self._lagging.begins(link.broker_id, self._feed.sequence)
        self.send_all(link, Why.FOLLOWS)

    def send_all(self, link: PeerLink, why: Why) -> None:
        """Send a peer the whole tables, in the background."""
        sending = self.links.get(link)
        if sending is None:
            return
        sending.full_sends += 1

        async def send() -> None:
            try:
                await self._send_all(link, sending, why)
            finally:
                sending.full_sends -= 1
                self._progress.set()

        self._spawn(send(), f"tables for {link.address}")

    async def _send_all(self, link: PeerLink, sending: SendingLink, why: Why) -> None:
        """Send the whole tables, not faster than the peer takes them."""
        # Send them one after the other: a key not sent between the first and the last frame counts as
        # missing.
        async with sending.turn:
            await self._durable.progress()
            entries: list[FeedEntry] = []
            begins = True
            for entry in everything(self._feed):
                entries.append(entry)
                if len(entries) < MAX_ENTRIES:
                    continue
                self._send_part(link, sending, entries, why, begins=begins)
                entries, begins = [], False
                await asyncio.sleep(0)
                while self.links.get(link) is sending and not sending.has_room:
                    await self._clock.sleep(CHECK_SECONDS)
                if self.links.get(link) is not sending:
                    return
            if self.links.get(link) is sending:
                self._send_part(link, sending, entries, why, begins=begins, ends=True)

    def _send_part(
        self,
        link: PeerLink,
        sending: SendingLink,
        entries: list[FeedEntry],
        why: Why,
        *,
        begins: bool,
        ends: bool = False,
    ) -> None:
        # Older changes go first, so that none of them undoes a value read after it.
        self.flush()
        asked = why is not Why.FOLLOWS
        stamp = self._stamp(asked)
        for payload in sending.frames(
            stamp.term,
            self._feed.sequence,
            entries,
            begins=begins,
            ends=ends,
            asked=asked,
            acted_in=stamp.acted_in,
            anew=stamp.anew,
            # A peer that did not ask does not begin to lead with these tables.
            locks_in_s=self._locks.complete_in_s(leads=asked) if ends and why is not Why.LED_SINCE else None,
            forgotten=self._feed.forgotten if ends else 0,
        ):
            link.send(FrameKind.STATE, payload)

    def send_recorded(self, link: PeerLink) -> None:
        """Send users and rules to the master, which takes those that were changed later than its own."""
        sending = self.links.get(link)
        if sending is None:
            return
        entries = list(everything(self._feed, recorded=True))
        for payload in sending.frames(self._stamp(True).term, self._feed.sequence, entries, asked=True):
            link.send(FrameKind.STATE, payload)

    # -- waiting -----------------------------------------------------------------------------------------

    async def push(self) -> None:
        """See ``TableExchange``."""
        self.flush()
        while any(sending.waits for sending in self.followers.values()):
            await self._clock.sleep(CHECK_SECONDS / 2)

    async def master_has_changes(self) -> None:
        """See ``TableExchange``."""
        while any(each.full_sends or each.is_owed for link, each in self.links.items() if link.is_master):
            self._progress.clear()
            await self._progress.wait()

    async def shared_with(self, broker_id: int) -> bool:
        """See ``TableExchange``."""
        self.flush()
        # The newest link: a half-open older one may be left.
        while link := next((each for each in reversed(self.followers) if each.broker_id == broker_id), None):
            if await self._has_all(link, self.links[link]):
                return True
        return False

    async def _has_all(self, link: PeerLink, sending: SendingLink) -> bool:
        """Return when a link's follower has all changes made by now; ``False``: the link is gone."""
        number: int | None = None
        while True:
            if number is None and not sending.full_sends:
                # Changes sent over an older link are also in the whole tables that were sent at first.
                number = sending.number
            if number is not None and sending.received >= number:
                return True
            self._progress.clear()
            await self._progress.wait()
            if self.links.get(link) is not sending:
                return False
