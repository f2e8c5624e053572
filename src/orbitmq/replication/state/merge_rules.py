"""Decides which table changes sent by a peer are applied here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from msgspec import structs

from orbitmq.broker.change_feed import (
    GROUPS,
    OFFSETS,
    POP_DELIVERIES,
    POP_ORDERS,
    POPS,
    RESETS,
    TOPICS,
    ChangeFeed,
    FeedEntry,
)
from orbitmq.broker.role import RoleState
from orbitmq.replication.link.peers import PeerLink
from orbitmq.replication.state.acting_term import ActingTerm
from orbitmq.replication.state.frames import Changes
from orbitmq.replication.state.lagging_followers import LaggingFollowers
from orbitmq.replication.state.terms import Terms
from orbitmq.replication.state.unsynced_start import UnsyncedStart
from orbitmq.wire.bodies.topic import DataVersion

# Tables that are needed to read messages: a member that did not act may be the only one with a change.
_NEEDED = (TOPICS, GROUPS, OFFSETS)
# Tables that were on this disk in full when a member began to lack changes: the member's are older.
_KEPT = frozenset({OFFSETS, RESETS, POPS, POP_DELIVERIES, POP_ORDERS})


@dataclass(slots=True)
class TablesAnswer:
    """A peer's answer with its whole tables, while it arrives.

    Attributes:
        welcome: whether the answer is taken. This is decided at its first frame, since it raises this
            broker's term.
        acted: whether the peer acted and has sent its changes to no broker: then its newer entries count
            although its tables are older.
        news_only: whether only entries that are new to this broker are taken, see :meth:`Terms.has_older`.
        older: tables of the answer that are not newer than this broker's.
        had: the keys of each own table when the answer began; empty unless this broker's tables were lost.
        kept: the same for a peer that did not act and lacks changes: only keys that this broker lacks are
            taken.
        newer: whether every key counts that this broker has not changed since its start, see
            :class:`UnsyncedStart`.
    """

    welcome: bool
    acted: bool
    news_only: bool
    older: set[str] = field(default_factory=set)
    had: dict[str, set[str]] = field(default_factory=dict)
    kept: dict[str, set[str]] = field(default_factory=dict)
    newer: bool = False


class MergeRules:
    """The rules of one broker, for all its links.

    Args:
        lagging: the followers that lack changes of this broker.
        unsynced: the keys that this broker has changed since it was killed and started without asking others.
        send_own: sends the master this broker's whole tables, for which the master has not asked.
        follows: called when a leader's tables begin to arrive, of which this broker's become a copy.
    """

    def __init__(
        self,
        feed: ChangeFeed,
        role: RoleState,
        terms: Terms,
        acted: ActingTerm,
        lagging: LaggingFollowers,
        unsynced: UnsyncedStart,
        send_own: Callable[[PeerLink], object],
        follows: Callable[[], object],
    ) -> None:
        self._feed = feed
        self._role = role
        self._terms = terms
        self._acted = acted
        self._lagging = lagging
        self._unsynced = unsynced
        self._send_own = send_own
        self._follows = follows
        self._answers: dict[PeerLink, TablesAnswer] = {}
        self._own_sent: set[PeerLink] = set()
        # Links whose last full copy of the tables was not applied completely.
        self._lacking: set[PeerLink] = set()

    def opened(self, link: PeerLink) -> None:
        """Note a new link; no table has come over it yet."""
        self._lacking.add(link)

    def closed(self, link: PeerLink) -> None:
        """Forget a link that is gone."""
        self._answers.pop(link, None)
        self._own_sent.discard(link)
        self._lacking.discard(link)

    def note_own_sent(self, link: PeerLink) -> None:
        """Note that this broker's whole tables are being sent to the peer."""
        self._own_sent.add(link)

    def lacks(self, link: PeerLink) -> bool:
        """Whether some of the changes that the peer sent were not taken."""
        return link in self._lacking

    def answer(self, link: PeerLink) -> TablesAnswer:
        """The part of the answer over a link that has arrived so far."""
        return self._answers[link]

    def of_leader(self, link: PeerLink, frame: Changes) -> Callable[[FeedEntry], bool]:
        """The rule for a frame that was not asked for: which of its changes are made."""
        if not link.is_master or self._role.takes_messages or self._role.leads:
            self._lacking.add(link)
            return takes_nothing
        if frame.anew and link not in self._own_sent:
            self._lacking.add(link)
            self._send_own(link)
            return takes_nothing
        if frame.anew and link in self._lacking and not frame.begins:
            # the peer sends its whole tables once more after it has taken this broker's changes
            return takes_nothing
        terms = self._terms
        unheard = frame.term == terms.begun or (self._acted.term and frame.term >= terms.term)
        if unheard and link not in self._own_sent:
            # The peer began its term without this broker's changes.
            terms.note_term(frame.term)
            terms.begin()
        if frame.term < terms.term:
            self._lacking.add(link)
            if link not in self._own_sent:
                self._send_own(link)
            return takes_nothing
        if frame.begins:
            self._lacking.discard(link)
            self._follows()
            self._acted.note_master_synced()
        terms.follows(frame.term)
        return lambda _entry: True

    def of_answer(self, link: PeerLink, frame: Changes, *, asked: bool) -> Callable[[FeedEntry], bool]:
        """The rule for a frame of a peer's whole tables: which of its changes are made."""
        answer = self._answers.get(link)
        if answer is None or frame.begins:
            welcome = asked or self._unsynced.is_on or frame.term > self._terms.term
            untold = link.broker_id in self._lagging
            news_only = self._terms.has_older(frame.term, frame.acted_in, untold=frame.anew or untold)
            answer = self._answers[link] = TablesAnswer(welcome, frame.acted_in > 0, news_only)
            has_all = not frame.anew and not self._lagging.has_older(link.broker_id)
            answer.newer = has_all and self._unsynced.lacks(frame.term)
            self._terms.note_term(frame.term)
            if self._terms.lost:
                answer.had = self._keys(_NEEDED)
            elif news_only and not answer.acted and self._lagging.has_older(link.broker_id):
                answer.kept = self._keys(_KEPT)
        if not answer.welcome:
            return takes_nothing
        known, rule = answer, self._rule_of(answer)
        if known.kept:
            return lambda entry: rule(entry) and self._is_missing(known.kept, entry)
        if known.had:
            return lambda entry: rule(entry) or entry.key not in known.had.get(entry.table, (entry.key,))
        return rule

    def _is_missing(self, kept: dict[str, set[str]], entry: FeedEntry) -> bool:
        """Whether the entry's table is not in ``_KEPT``, or ``kept`` has nothing of the entry's queue."""
        if entry.table not in _KEPT:
            return True
        known = self._feed.tables()[entry.table]
        place = entry.table, entry.key
        if entry.table == RESETS:
            place = OFFSETS, entry.key  # a reset that does not wait here has been carried out
        elif known.whole is not None:
            place = known.whole(entry.key)
        return place[1] not in kept.get(place[0], ())

    def _keys(self, names: Iterable[str]) -> dict[str, set[str]]:
        tables = ((name, self._feed.tables().get(name)) for name in names)
        return {
            name: {key for key, _ in table.items()}
            for name, table in tables
            if table is not None and table.items is not None
        }

    def _rule_of(self, answer: TablesAnswer) -> Callable[[FeedEntry], bool]:
        known, led = answer, not answer.news_only
        if known.newer:
            return lambda entry: (
                not self._unsynced.has_changed(entry.table, entry.key)
                or (known.acted and self._feed.has_rule(entry.table) and self._feed.is_news(entry, led=False))
            )
        if led and not self._role.takes_messages:
            return lambda entry: self._is_newer(known.older, entry)
        if known.acted and known.news_only:
            # The peer's versions prove nothing: it raised them so that its master would take its tables.
            return lambda entry: self._feed.has_rule(entry.table) and self._feed.is_news(entry, led=False)
        return lambda entry: self._is_newer(known.older, entry) and self._feed.is_news(entry, led=led)

    def with_our_version(self, link: PeerLink, entry: FeedEntry) -> FeedEntry:
        """The change to make here: without a version if it comes from an older table, so that versions never
        go back."""
        answer = self._answers.get(link)
        older = answer is not None and (answer.newer or entry.table in answer.older)
        return structs.replace(entry, version=None) if older else entry

    def _is_newer(self, older: set[str], entry: FeedEntry) -> bool:
        """Whether the peer's table is at least as new as this broker's was when the answer began (PO-08)."""
        known = self._feed.tables().get(entry.table)
        if known is None or known.versioned is None or entry.version is None:
            return True
        if entry.table not in older and known.versioned.version.is_newer_than(DataVersion(*entry.version)):
            older.add(entry.table)
        return entry.table not in older


def takes_nothing(_entry: FeedEntry) -> bool:
    """The rule for a frame of which no change is made."""
    return False
