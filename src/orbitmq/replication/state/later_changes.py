"""Users and rules after a fault: of two brokers' changes of a key the later one counts, whichever leads.

The other tables need rules for each kind of fault (:mod:`merge_rules`). These two record when each key was
changed or deleted (:mod:`orbitmq.broker.last_changes`), and the rules decide only where neither side has a
record. A slave that has later changes than its master sends them to the master.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import UNSET

from orbitmq.broker.change_feed import USERS, ChangeFeed, FeedEntry
from orbitmq.broker.stamps import Age
from orbitmq.replication.link.peers import PeerLink
from orbitmq.replication.state.inbox import Complete


class LaterChanges:
    """Compares changes that a peer sends with the tables of this broker.

    Args:
        make: makes a change.
        send_recorded: sends the master the tables that record their changes.
    """

    def __init__(
        self,
        feed: ChangeFeed,
        make: Callable[[FeedEntry], object],
        send_recorded: Callable[[PeerLink], object],
    ) -> None:
        self._feed = feed
        self._make = make
        self._send_recorded = send_recorded
        # Links on which a value older than this broker's has come since the peer's last whole tables began.
        self._behind: set[PeerLink] = set()

    def closed(self, link: PeerLink) -> None:
        """Forget a link that has ended."""
        self._behind.discard(link)

    def takes(self, link: PeerLink, by_rule: Callable[[FeedEntry], bool], entry: FeedEntry) -> bool:
        """Whether a received change is to be made here.

        Args:
            by_rule: decides about tables without records, and about keys of which both sides have the same
                record.
        """
        age = self._feed.age(entry)
        if age is Age.OLDER:
            self._behind.add(link)
        return age is Age.NEWER or (age is not Age.OLDER and by_rule(entry))

    def tables_ended(self, link: PeerLink, complete: Complete) -> None:
        """Handle the end of a peer's whole tables: remove keys whose deletion the peer has forgotten.

        Tables without any user prove nothing: the peer requires no keys, or the link is not sealed.
        """
        if USERS not in complete.keys:
            return
        for name, table in self._feed.tables().items():
            if table.last is None or table.items is None:
                continue
            told = complete.keys.get(name, set())
            for key in [key for key, _ in table.items() if key not in told]:
                number = table.last.of(name, key, deleted=False)
                if number > complete.forgotten:
                    self._behind.add(link)  # the peer has never had the key
                elif number:
                    self._make(FeedEntry(0, 0, name, key, None, changed=complete.forgotten or UNSET))
            table.last.forget(complete.forgotten)
        if link in self._behind:
            self._behind.discard(link)
            if link.is_master and not complete.asked:
                self._send_recorded(link)
