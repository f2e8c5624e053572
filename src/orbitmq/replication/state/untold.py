"""Which slaves do not have all that their master has changed, on the disk beside its tables (no I/O)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from orbitmq.broker.change_feed import UNTOLD, ChangeFeed, FedTable
from orbitmq.replication.link.peers import PeerLink
from orbitmq.replication.state.outbox import SendingLink

_KEY = "slaves"


class Untold:
    """The broker ids of followers that lost their link, have not answered for a while, or are being told
    everything, until they have all.

    Of tables of one term nothing else says which are older. A master that begins anew has what it wrote some
    seconds ago: a slave that was told all has more, such a one less.
    """

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self._ids: set[int] = set()
        feed.register(UNTOLD, FedTable(bool, self._apply))

    def __contains__(self, broker_id: object) -> bool:
        return broker_id in self._ids

    def note(self, broker_id: int, untold: bool) -> None:
        """A follower has all, or lacks something."""
        if (broker_id in self._ids) is not untold:
            self._set(broker_id, untold)
            self._feed.changed(UNTOLD, str(broker_id), untold or None)

    def look(self, followers: Iterable[tuple[PeerLink, SendingLink]]) -> bool:
        """Note who has not answered what was sent before the last look; whether somebody owes an answer."""
        newest = {link.broker_id: sending for link, sending in followers}
        for broker_id, sending in newest.items():
            if sending.is_stuck():
                self.note(broker_id, True)
        return any(sending.is_owed for sending in newest.values())

    def _set(self, broker_id: int, untold: bool) -> None:
        if untold:
            self._ids.add(broker_id)
        else:
            self._ids.discard(broker_id)

    def _apply(self, key: str, untold: Any) -> None:
        self._set(int(key), bool(untold))

    def file_text(self) -> Iterator[str]:
        """``untoldSlaves.json``."""
        yield json.dumps({_KEY: sorted(self._ids)})

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``untoldSlaves.json``."""
        self._ids = {int(broker_id) for broker_id in content.get(_KEY) or ()}
