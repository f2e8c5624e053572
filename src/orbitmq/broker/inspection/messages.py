"""Looks up single messages: by key, by unique id, by place in the commit log (QueryMessageProcessor)."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.broker.config import BrokerConfig
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.ids import parse_offset_message_id
from orbitmq.store import MessageStore
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

MAX_BODY_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class FoundMessages:
    """Messages that have a key.

    Attributes:
        records: their stored records, one after the other; empty when there is none.
        index_time_ms: store time of the newest message in the index; ``index_offset``: its place in the log.
    """

    records: bytes
    index_time_ms: int
    index_offset: int


class MessageLookup:
    """Finds stored messages."""

    def __init__(self, config: BrokerConfig, store: MessageStore) -> None:
        self._config = config
        self._store = store

    async def by_key(
        self, topic: str, key: str, begin_ms: int, end_ms: int, count: int, *, unique: bool = False
    ) -> FoundMessages:
        """The newest messages of a topic with a key, stored in a range of time.

        Args:
            count: how many messages at most.
            unique: whether the key is a unique id; then the limit is that of the settings.

        Raises:
            RemotingError: QUERY_NOT_FOUND, this broker keeps no message index.
        """
        config = self._config
        count = min(config.default_query_max_num if unique else count, config.max_msgs_num_batch)
        index = self._store.index
        if index is None:
            raise RemotingError(
                ResponseCode.QUERY_NOT_FOUND, "this broker keeps no message index (messageIndexEnable=false)"
            )
        offsets = await index.find(topic, key, begin_ms, end_ms, count)
        records = self._records(offsets)
        time_ms, offset = index.newest
        return FoundMessages(records, time_ms, offset)

    def _records(self, offsets: list[int]) -> bytes:
        """The records, the newest ones when not all of them fit into one answer."""
        records: list[bytes] = []
        size = 0
        for offset in reversed(offsets):
            record = self._store.record_at(offset, damaged=True)
            if record is None:
                continue
            size += len(record)
            if records and size > MAX_BODY_BYTES:
                break
            records.append(record)
        return b"".join(reversed(records))

    def by_offset(self, offset: int) -> bytes:
        """The record at a commit log offset.

        Raises:
            RemotingError: SYSTEM_ERROR, no record begins there.
        """
        record = self._store.record_at(offset, damaged=True)
        if record is None:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return record

    def by_message_id(self, message_id: str) -> bytes:
        """The record with this offset message id.

        Raises:
            RemotingError: INVALID_PARAMETER, the id is malformed; SYSTEM_ERROR, its record is not there.
        """
        try:
            offset = parse_offset_message_id(message_id)[2]
        except MessageFormatError as error:
            raise RemotingError(ResponseCode.INVALID_PARAMETER, f"msgId: {error}") from error
        record = self._store.record_at(offset, damaged=True)
        if record is None:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"can not find message by the id, {message_id}")
        return record
