"""Compares the log of a RocketMQ broker with this broker's, before its HA port is connected.

Over that port a master sends whatever its log has behind the reported end, so a follower whose last records
differ would never notice. VIEW_MESSAGE_BY_ID (33) gives a record by its place in the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orbitmq.broker.config import BrokerConfig
from orbitmq.message.reserved import MASTER_ID
from orbitmq.replication.link.errors import LinkError
from orbitmq.replication.link.inquiry import Inquiry
from orbitmq.replication.link.tail_truncation import TailTruncation
from orbitmq.store.ports import CopiedLog


class Comparing:
    """Compares this broker's log with a master's."""

    def __init__(self, config: BrokerConfig, store: CopiedLog, truncation: TailTruncation) -> None:
        self._config = config
        self._store = store
        self._truncation = truncation

    async def agree(self, master: Inquiry, settings: Mapping[str, str]) -> None:
        """Set aside this broker's records that the master lacks.

        Raises:
            LinkError: the master must not be followed, or the two logs have no record in common.
            TransportError: the master does not answer.
            OSError, StoreError: the disk refused.
        """
        self._check_settings(master.address, settings)
        store = self._store
        begin, end = store.min_commit_log_offset, store.max_commit_log_offset
        there = await master.log_range()
        if there is None:
            return
        first, last = there
        if begin == end:
            if end == 0 < last and self._config.broker_id == MASTER_ID:
                await self._begin_with(master, first)
            return
        if end < first:
            raise LinkError(
                f"the log of this broker ends at {end}, that of {master.address} begins at {first}: what is "
                "between is deleted. To copy it anew stop this broker and move its store folder away"
            )
        if last <= first:
            raise LinkError(
                f"the log of {master.address} is empty, that of this broker ends at {end} and is kept"
            )
        common = await self._common(master, max(begin, first), end)
        if common < end:
            await self._truncation.cut(common, end, master.address)

    async def _begin_with(self, member: Inquiry, first: int) -> None:
        """Store the first record of a member's log, so that this broker's empty log is restored from its
        place on.

        RocketMQ's broker sends its last file to a follower that reports 0, else everything from the reported
        place on.
        """
        record = await member.record(first)
        if not record:
            raise LinkError(f"it does not show the first record of its log, at {first}")
        self._store.append_raw(first, record)
        await self._store.flush()

    def _check_settings(self, address: str, settings: Mapping[str, str]) -> None:
        config = self._config
        ours = {
            "mappedFileSizeCommitLog": str(config.mapped_file_size_commit_log),
            "brokerClusterName": config.broker_cluster_name,
            "brokerName": config.broker_name,
        }
        for key, value in ours.items():
            if settings.get(key, value) != value:
                raise LinkError(
                    f"{key} is {settings[key]} at {address} and {value} here: it has to be the same"
                )
        if settings.get("brokerId") == str(config.broker_id):
            raise LinkError(f"{address} has brokerId {config.broker_id} too")

    async def _common(self, master: Inquiry, begin: int, end: int) -> int:
        """The end of the last record that both logs have; records before ``begin`` are not compared."""
        store, file_bytes = self._store, self._store.config.commit_log_file_bytes
        while end > begin:
            file_start = max(begin, (end - 1) // file_bytes * file_bytes)
            starts = [at for at in await store.raw.record_starts(file_start, end) if at >= file_start]
            if starts and store.record_at(starts[-1], damaged=True) is None:
                starts.pop()  # the blank at the end of a file
            same = await self._same(master, starts)
            if same == len(starts):
                return end
            if same > 0 or file_start == begin:
                return starts[same] if starts else begin
            end = file_start
        return begin

    async def _same(self, master: Inquiry, starts: Sequence[int]) -> int:
        """The number of records that the master has too, up to the first that differs."""
        if not starts or await self._equal(master, starts[-1]):
            return len(starts)
        low, high = 0, len(starts) - 1
        while low < high:
            middle = (low + high) // 2
            if await self._equal(master, starts[middle]):
                low = middle + 1
            else:
                high = middle
        return low

    async def _equal(self, master: Inquiry, offset: int) -> bool:
        return await master.record(offset) == self._store.record_at(offset, damaged=True)
