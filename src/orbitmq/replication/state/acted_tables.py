"""Sends the deliveries of an acting slave to another slave in an answer, as slaves have no link."""

from __future__ import annotations

import msgspec

from orbitmq.broker.change_feed import LOCKS, METADATA, ChangeFeed
from orbitmq.replication.link.errors import LinkError
from orbitmq.replication.link.stream import FrameKind
from orbitmq.replication.state.acting_term import ActingTerm
from orbitmq.replication.state.exchange import StateExchange
from orbitmq.replication.state.outbox import SendingLink, everything

# Left out: queue locks, which may be many and which only the heir needs, and the ends of empty queues, which
# come from the broker whose log is copied, as each broker deletes old files by its own disk.
_LEFT_OUT = frozenset({LOCKS, *METADATA})


class _AnswerLink:
    """Stands in for a link: its frames came in an answer."""

    is_master = False
    sealed = False
    broker_id = -1

    def __init__(self, address: str) -> None:
        self.address = address

    def send(self, kind: FrameKind, payload: bytes) -> None:
        """Sends nothing: no peer waits for acknowledgements."""


class ActedTables:
    """See ``ActedExchange``."""

    def __init__(self, feed: ChangeFeed, exchange: StateExchange, acted: ActingTerm) -> None:
        self._feed = feed
        self._exchange = exchange
        self._acted = acted

    def acted(self) -> bytes:
        """See ``ActedExchange``."""
        if not self._acted.term:
            return b""
        entries = [entry for entry in everything(self._feed) if entry.table not in _LEFT_OUT]
        frames = SendingLink(sealed=False).frames(
            self._exchange.terms.term,
            self._feed.sequence,
            entries,
            begins=True,
            ends=True,
            asked=True,
            acted_in=self._acted.term,
        )
        return msgspec.msgpack.encode(list(frames))

    async def apply_acted(self, address: str, data: bytes) -> None:
        """See ``ActedExchange``."""
        try:
            frames = msgspec.msgpack.decode(data, type=list[bytes])
        except msgspec.DecodeError as error:
            raise LinkError(f"what {address} did cannot be read: {error}") from error
        await self._exchange.apply_frames(_AnswerLink(address), frames)
