"""Which slaves lack changes of their master; kept on the disk beside the master's tables (no I/O)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orbitmq.broker.change_feed import UNTOLD, ChangeFeed, FedTable
from orbitmq.broker.events import Events, SlaveLagChanged
from orbitmq.replication.link.peers import PeerLink
from orbitmq.replication.state.outbox import SendingLink

_KEY = "slaves"


class LaggingFollowers:
    """The broker ids of followers that lack changes: their link was lost, they have not answered for a while,
    the whole tables are being sent to them, or they have not received the end of a reset yet.

    Nothing else shows which of two tables of one term is older. A killed master begins with tables written
    some seconds before, and a slave that had all changes has more than that. A slave noted here lacks changes
    that this disk has.
    """

    def __init__(self, feed: ChangeFeed, events: Events) -> None:
        self._feed = feed
        self._events = events
        # By broker id, the number of the last change that the follower lacks; 0: noted in an earlier run.
        self._ids: dict[int, int] = {}
        # Followers that were not sent all changes in this run: they may have changes that this broker lost.
        self._never_synced: set[int] = set()
        feed.register(UNTOLD, FedTable(bool, self._apply))

    def __contains__(self, broker_id: object) -> bool:
        return broker_id in self._ids

    def note(self, broker_id: int, lacked: int) -> None:
        """Note that a follower lacks the change with this number."""
        news = broker_id not in self._ids
        self._ids[broker_id] = lacked
        if news:
            self._publish(broker_id, True)

    def begins(self, broker_id: int, lacked: int) -> None:
        """Note that a follower is being sent the whole tables, up to the change with this number."""
        if broker_id not in self._ids:
            self._never_synced.add(broker_id)
        self.note(broker_id, lacked)

    def has_older(self, broker_id: int) -> bool:
        """Whether this broker's disk had all that the follower has when the follower began to lack
        changes."""
        return broker_id in self._ids and broker_id not in self._never_synced

    def note_applied(self, broker_id: int, applied: int) -> None:
        """Note that a follower has made all changes up to this number."""
        if self._ids.get(broker_id, applied + 1) <= applied:
            del self._ids[broker_id]
            self._never_synced.discard(broker_id)
            self._publish(broker_id, None)

    def _publish(self, broker_id: int, untold: bool | None) -> None:
        self._feed.changed(UNTOLD, str(broker_id), untold)
        self._events.publish(SlaveLagChanged())

    def note_stuck(self, followers: Iterable[tuple[PeerLink, SendingLink]]) -> bool:
        """Note followers that have not acknowledged frames sent before the previous call; returns whether any
        acknowledgement is missing."""
        newest = {link.broker_id: sending for link, sending in followers}
        for broker_id, sending in newest.items():
            if sending.is_stuck():
                self.note(broker_id, sending.sent)
        return any(sending.is_owed for sending in newest.values())

    def _apply(self, key: str, untold: Any) -> None:
        if untold:
            self._ids[int(key)] = 0
        else:
            self._ids.pop(int(key), None)

    def file_text(self) -> Iterator[str]:
        """The content of ``untoldSlaves.json``."""
        yield json.dumps({_KEY: sorted(self._ids)})

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``untoldSlaves.json``."""
        self._ids = {int(broker_id): 0 for broker_id in content.get(_KEY) or ()}
