"""Looking at single messages, by key or by place (QueryMessageProcessor)."""

from __future__ import annotations

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.store import MessageStore
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers import QueryMessageRequest, QueryMessageResponse, ViewMessageByIdRequest

# Header field that says: the key is a unique id (MixAll.UNIQUE_MSG_QUERY_FLAG).
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
MAX_BODY_BYTES = 8 << 20


class QueryHandlers(Family):
    """Messages by their keys and by their place in the log."""

    def __init__(self, config: BrokerConfig, store: MessageStore) -> None:
        self._config = config
        self._store = store

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_MESSAGE: self.by_key,
            RequestCode.VIEW_MESSAGE_BY_ID: self.by_id,
        }

    def by_key(self, _connection: ServerConnection, command: Command) -> Answer:
        """The newest messages of a topic with a key, or with a unique id, stored in a range of time."""
        return self._by_key(command, QueryMessageRequest.from_ext(command.ext))

    async def _by_key(self, command: Command, header: QueryMessageRequest) -> Command:
        count = header.max_num
        if command.ext.get(UNIQUE_KEY_QUERY) == "true":
            count = self._config.default_query_max_num
        count = min(count, self._config.max_msgs_num_batch)
        index = self._store.index
        if index is None:
            raise RemotingError(
                ResponseCode.QUERY_NOT_FOUND, "this broker keeps no message index (messageIndexEnable=false)"
            )
        begin, end = header.begin_timestamp, header.end_timestamp
        offsets = await index.find(header.topic, header.key, begin, end, count)
        body = self._records(offsets)
        time_ms, offset = index.newest
        found = QueryMessageResponse(index_last_update_timestamp=time_ms, index_last_update_phyoffset=offset)
        if not body:
            remark = "can not find message, maybe time range not correct"
            return command.reply(ResponseCode.QUERY_NOT_FOUND, remark, ext=found.to_ext())
        return found.reply_to(command, body=body)

    def _records(self, offsets: list[int]) -> bytes:
        """The records, the newest ones when not all of them fit into one answer."""
        records: list[bytes] = []
        size = 0
        for offset in reversed(offsets):
            record = self._store.record_at(offset)
            if record is None:
                continue
            size += len(record)
            if records and size > MAX_BODY_BYTES:
                break
            records.append(record)
        return b"".join(reversed(records))

    def by_id(self, _connection: ServerConnection, command: Command) -> Answer:
        """The record at a commit log offset."""
        offset = ViewMessageByIdRequest.from_ext(command.ext).offset
        record = self._store.record_at(offset)
        if record is None:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"can not find message by the offset, {offset}")
        return command.reply(body=record)
