"""After a start with an empty log: finds members whose log holds what this master may have lost.

A follower of OrbitMQ sends its log's end in its greeting. A slave of RocketMQ only requests the tables, and
deletes its own entries that they lack.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from orbitmq.replication.link.errors import LinkError
from orbitmq.replication.link.inquiry import Inquiry
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.wire.errors import WireError

log = logging.getLogger(__name__)


class LostLogOwners:
    """Checks each member that appears, until it is known to have no log of its own.

    Args:
        log_end: returns the end of this broker's log.
        record_at: returns the record at a place of this broker's log, ``None``: there is none.
    """

    def __init__(
        self, client: RemotingClient, log_end: Callable[[], int], record_at: Callable[[int], bytes | None]
    ) -> None:
        self._client = client
        self._log_end = log_end
        self._record_at = record_at
        self._looks = False
        # By address, where known: whether the member has another log than this broker.
        self._elder: dict[str, bool] = {}

    def went_online(self, *, empty: bool) -> None:
        """Note that the broker serves from now on. ``empty``: it has no log, and there was no member to
        ask."""
        self._looks = empty
        self._elder.clear()

    def may_be(self, members: Mapping[int, str]) -> bool:
        """Whether one of the members has another log, or may have one."""
        return self._looks and any(self._elder.get(address, True) for address in members.values())

    async def look(self, members: Mapping[int, str]) -> dict[int, str]:
        """The members that have a log while this broker has none."""
        if not self._looks:
            return {}
        self._elder = {at: found for at, found in self._elder.items() if at in members.values()}
        for address in members.values():
            if self._elder.get(address, True):
                await self._look_at(address)
        return (
            {} if self._log_end() else {number: at for number, at in members.items() if self._elder.get(at)}
        )

    async def _look_at(self, address: str) -> None:
        member = Inquiry(self._client, address)
        try:
            # A member that refuses to answer has an empty log: RocketMQ's broker fails before its first file.
            first, last = await member.log_range() or (0, 0)
            first = max(first, 0)
            own = self._record_at(first)
            # If this log is longer but lacks the record, the record's file has expired: the log is not a new
            # one.
            other = first < last and (own is not None or self._log_end() <= first)
            other = other and await member.record(first) != own
        except (TransportError, WireError, LinkError) as error:
            log.info("whether %s has what this broker may have lost is not known yet: %s", address, error)
            return
        if other and self._log_end() and not self._elder.get(address):
            log.error(
                "the slave at %s has another log than this master, which began without one and has taken "
                "messages since: it gets no tables from here, so that it keeps its own. Stop it and move its "
                "store folder away, or, to have its messages back, move that of this master away and start "
                "the slave first",
                address,
            )
        self._elder[address] = other
