"""Pulling messages, at once or when they come (PullMessageProcessor)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from orbitmq.broker.assembly import Services
from orbitmq.broker.events import PullPermitted
from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.messaging import filters as subscriptions
from orbitmq.message import reserved
from orbitmq.message.sysflag import PullFlag
from orbitmq.store import GetResult, GetStatus
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.bodies import MessageModel, SubscriptionGroupConfig
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers import PullMessageRequest, PullMessageResponse

MAX_PULL_BYTES = 8 * 1024 * 1024

_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}


@dataclass(slots=True, eq=False)
class _Pull:
    """One pull request, which may wait. ``offset`` is what it has not seen yet."""

    services: Services
    connection: ServerConnection
    command: Command
    header: PullMessageRequest
    group: SubscriptionGroupConfig
    tags: frozenset[int] | None
    offset: int

    @property
    def gone(self) -> bool:
        return self.connection.closed

    def look(self) -> tuple[ResponseCode, GetResult]:
        """Read once from the store."""
        header = self.header
        config = self.services.config
        asked_bytes = header.max_msg_bytes or 0
        result = self.services.store.get(
            header.topic,
            header.queue_id,
            self.offset,
            max(1, min(header.max_msg_nums, config.transfer_max_count)),
            max_bytes=min(asked_bytes, MAX_PULL_BYTES) if asked_bytes > 0 else config.transfer_max_bytes,
            tags=self.tags,
        )
        code = _CODES.get(result.status)
        if code is None:  # there is no message at all in the queue
            at_start = self.offset == 0
            code = ResponseCode.PULL_NOT_FOUND if at_start else ResponseCode.PULL_OFFSET_MOVED
        return code, result

    def answer(self, code: ResponseCode, result: GetResult, remark: str | None = None) -> Command:
        """The response for what was read."""
        services = self.services
        header = self.header
        topic = services.topics.get(header.topic)
        services.counters.handled_out += result.count
        services.offsets.note_pull(header.consumer_group, header.topic, header.queue_id, result.next_offset)
        response = PullMessageResponse(
            suggest_which_broker_id=self.group.broker_id
            if services.config.slave_read_enable
            else reserved.MASTER_ID,
            next_begin_offset=result.next_offset,
            min_offset=result.min_offset,
            max_offset=result.max_offset,
            topic_sys_flag=topic.topic_sys_flag if topic is not None else 0,
            group_sys_flag=self.group.group_sys_flag,
        )
        body = result.body if code == ResponseCode.SUCCESS else b""
        return response.reply_to(self.command, code=code, remark=remark or result.status.name, body=body)

    def moved(self) -> Command | None:
        """The answer to a group that an administrator has moved since its last pull."""
        header = self.header
        reset = self.services.offsets.take_reset(header.consumer_group, header.topic, header.queue_id)
        if reset is None:
            return None
        self.offset = reset
        _, result = self.look()
        result.next_offset = reset
        return self.answer(ResponseCode.PULL_OFFSET_MOVED, result, "OFFSET_RESET")

    def wake(self) -> bool:
        """Look again; messages that the filter takes out are skipped without bothering the client."""
        if self.header.topic not in self.services.topics:
            remark = f"topic[{self.header.topic}] was deleted"
            self.connection.send(self.command.reply(ResponseCode.TOPIC_NOT_EXIST, remark))
            return True
        moved = self.moved()
        if moved is not None:
            self.connection.send(moved)
            return True
        code, result = self.look()
        if code == ResponseCode.PULL_NOT_FOUND:
            return False
        if result.status is GetStatus.NO_MATCHED_MESSAGE:
            self.offset = result.next_offset
            return False
        self.connection.send(self.answer(code, result))
        return True

    def expire(self) -> None:
        """Answer with how far the filter got, so that the client does not start over."""
        if self.header.topic not in self.services.topics:
            self.wake()
            return
        code, result = self.look()
        if code == ResponseCode.PULL_NOT_FOUND and self.offset > self.header.queue_offset:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY
            result.next_offset = self.offset
        self.connection.send(self.answer(code, result))


class PullHandlers(Family):
    """PULL_MESSAGE and LITE_PULL_MESSAGE."""

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.lite_pull}

    def lite_pull(self, connection: ServerConnection, command: Command) -> Answer:
        """As :meth:`pull`, when the settings allow lite pull consumers."""
        config = self._services.config
        if not config.lite_pull_message_enable:
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] for lite pull consumer is forbidden",
            )
        return self.pull(connection, command)

    def pull(self, connection: ServerConnection, command: Command) -> Answer:
        """Answer with messages, or wait for them when the client says so."""
        header = PullMessageRequest.from_ext(command.ext)
        group = self._permitted(header)
        tags = self._tags(header, group)
        self._tell_permitted(header, tags)
        pull = _Pull(self._services, connection, command, header, group, tags, header.queue_offset)
        if header.sys_flag & PullFlag.COMMIT_OFFSET and header.commit_offset >= 0:
            self._services.offsets.commit(
                header.consumer_group, header.topic, header.queue_id, header.commit_offset
            )
        moved = pull.moved()
        if moved is not None:
            return moved
        self._services.offsets.note_pull_start(
            header.consumer_group, header.topic, header.queue_id, header.queue_offset
        )
        code, result = pull.look()
        if code == ResponseCode.PULL_NOT_FOUND and header.sys_flag & PullFlag.SUSPEND:
            self._park(pull)
            return None
        return pull.answer(code, result)

    def _tell_permitted(self, header: PullMessageRequest, tags: frozenset[int] | None) -> None:
        own = bool(header.sys_flag & PullFlag.SUBSCRIPTION)
        event = PullPermitted(header.consumer_group, header.topic, tags, not own, header.sub_version)
        self._services.events.publish(event)

    def _park(self, pull: _Pull) -> None:
        config = self._services.config
        polling = self._services.long_polling
        header = pull.header
        long = config.long_polling_enable
        timeout_ms = header.suspend_timeout_millis if long else config.short_polling_time_ms
        if not polling.park(header.topic, header.queue_id, pull, timeout_ms):
            raise RemotingError(
                ResponseCode.SYSTEM_BUSY,
                f"broker busy: {len(polling)} pulls wait for messages, "
                f"limit pullThreadPoolQueueCapacity {polling.limit}",
            )

    def _permitted(self, header: PullMessageRequest) -> SubscriptionGroupConfig:
        services = self._services
        config = services.config
        if not config.readable:
            raise RemotingError(
                ResponseCode.NO_PERMISSION, f"the broker[{config.broker_ip1}] pulling message is forbidden"
            )
        group = services.groups.find(header.consumer_group)
        if group is None:
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist",
            )
        if not group.consume_enable:
            raise RemotingError(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {header.consumer_group}"
            )
        topic = self.topic(header.topic)
        if not topic.perm & reserved.PERM_READ:
            raise RemotingError(
                ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden"
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}]",
            )
        return group

    def _tags(self, header: PullMessageRequest, group: SubscriptionGroupConfig) -> frozenset[int] | None:
        """What the pull filters by: its own expression, or that of its group's heartbeats."""
        if header.sys_flag & PullFlag.SUBSCRIPTION:
            _require_tags(header.expression_type)
            return _expression_codes(header.topic, header.subscription)
        services = self._services
        state = services.clients.consumers(header.consumer_group)
        if state is None:
            raise RemotingError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
        if state.message_model is MessageModel.BROADCASTING and not group.consume_broadcast_enable:
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
            )
        if not services.groups.may_read(header.consumer_group, header.topic):
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{header.consumer_group}] is forbidden for topic[{header.topic}]",
            )
        data = state.subscriptions.get(header.topic)
        if data is None:
            raise RemotingError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
        if data.sub_version < header.sub_version:
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest"
            )
        _require_tags(data.expression_type)
        return subscriptions.tag_codes(data)


@lru_cache(maxsize=4096)
def _expression_codes(topic: str, expression: str | None) -> frozenset[int] | None:
    return subscriptions.tag_codes(subscriptions.parse(topic, expression, subscriptions.TAG))


def _require_tags(expression_type: str | None) -> None:
    if not subscriptions.is_tag_type(expression_type):
        raise RemotingError(
            ResponseCode.SYSTEM_ERROR,
            f"The broker does not support consumer to filter message by {expression_type}",
        )
