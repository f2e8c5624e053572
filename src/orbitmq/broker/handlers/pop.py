"""Pop over the wire (PopMessageProcessor, AckMessageProcessor, ChangeInvisibleTimeProcessor and others)."""

from __future__ import annotations

from functools import partial

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.handlers.base import Answer, Family, Handler, answer_with
from orbitmq.broker.pop.popping import Popped, PopRequest
from orbitmq.broker.pop.service import Pops, PopsFullError
from orbitmq.broker.pop.settling import Changed, Missed, Settled, Settling
from orbitmq.runtime.seam import Clock
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import bodies, headers, pop_info
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError

# A request that was on its way for so much longer than it wanted to wait is nobody's any more.
TOO_LATE_MS = 500
_FOUND = "FOUND"
_NOTHING = "NO_MESSAGE_IN_QUEUE"
_FROM_NEWEST = 1


class PopHandlers(Family):
    """POP_MESSAGE and what follows one: acknowledgements, other invisible times; PEEK_MESSAGE and notices."""

    def __init__(self, config: BrokerConfig, clock: Clock, pops: Pops, settling: Settling) -> None:
        self._config = config
        self._clock = clock
        self._pops = pops
        self._settling = settling

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.POP_MESSAGE: self.pop,
            RequestCode.ACK_MESSAGE: self.ack,
            RequestCode.BATCH_ACK_MESSAGE: self.batch_ack,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self.change,
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.NOTIFICATION: self.notification,
            RequestCode.POLLING_INFO: self.polling_info,
        }

    def pop(self, connection: ServerConnection, command: Command) -> Answer:
        """Answer with messages, or wait for them as long as the client says."""
        now = self._clock.now_ms()
        command.ext.setdefault("bornTime", str(now))
        header = headers.PopMessageRequest.from_ext(command.ext)
        born = header.born_time or now
        if now - born - header.poll_time > TOO_LATE_MS:
            return command.reply(
                ResponseCode.POLLING_TIMEOUT,
                f"the broker[{self._config.broker_ip1}] pop message is timeout too much",
            )
        request = PopRequest(
            group=header.consumer_group,
            topic=header.topic,
            queue_id=header.queue_id,
            max_count=header.max_msg_nums,
            invisible_ms=header.invisible_time,
            from_newest=header.init_mode == _FROM_NEWEST,
            expression=header.exp,
            expression_type=header.exp_type,
            ordered=header.order,
            attempt_id=header.attempt_id,
        )
        wait_ms = born + header.poll_time - now if header.poll_time > 0 else 0
        client = _WaitingClient(connection, command, header.invisible_time)
        try:
            popped = self._pops.pop(request, wait_ms, client)
        except PopsFullError:
            return command.reply(ResponseCode.POLLING_FULL, _NOTHING)
        return None if popped is None else client.response(popped)

    def ack(self, _connection: ServerConnection, command: Command) -> Answer:
        """A message is done; answered when that is on disk."""
        header = headers.AckMessageRequest.from_ext(command.ext)
        settled = Settled(
            header.consumer_group, header.topic, header.queue_id, header.offset, header.extra_info
        )
        return answer_with(self._settling.acknowledge(settled), lambda _: command.reply())

    def batch_ack(self, _connection: ServerConnection, command: Command) -> Answer:
        """Messages of several pops are done."""
        body = bodies.BatchAckMessageRequestBody.decode(command.body) if command.body else None
        if body is None or not body.acks:
            return command.reply(ResponseCode.NO_MESSAGE, "the body has no acks")
        outcome = self._settling.acknowledge_many(body.acks)
        return answer_with(outcome, partial(_acknowledged, command))

    def change(self, _connection: ServerConnection, command: Command) -> Answer:
        """Give a message another invisible time, and a new receipt."""
        header = headers.ChangeMessageInvisibletimeRequest.from_ext(command.ext)
        settled = Settled(
            header.consumer_group, header.topic, header.queue_id, header.offset, header.extra_info
        )
        outcome = self._settling.change(settled, header.invisible_time)
        return answer_with(outcome, partial(_changed, command))

    def peek(self, _connection: ServerConnection, command: Command) -> Answer:
        """Show messages without taking them."""
        header = headers.PeekMessageRequest.from_ext(command.ext)
        seen = self._pops.peek(header.consumer_group, header.topic, header.queue_id, header.max_msg_nums)
        code = ResponseCode.SUCCESS if seen.count else ResponseCode.PULL_NOT_FOUND
        return headers.PeekMessageResponse(
            pop_time=seen.pop_time_ms, invisible_time=0, revive_qid=0, rest_num=seen.rest
        ).reply_to(command, code=code, remark=_FOUND if seen.count else _NOTHING, body=b"".join(seen.body))

    def notification(self, connection: ServerConnection, command: Command) -> Answer:
        """Say whether there are messages, now or when some come."""
        now = self._clock.now_ms()
        command.ext.setdefault("bornTime", str(now))
        header = headers.NotificationRequest.from_ext(command.ext)
        client = _NoticeClient(connection, command)
        wait_ms = (header.born_time or now) + header.poll_time - now if header.poll_time > 0 else 0
        try:
            found = self._pops.has_messages(
                header.consumer_group,
                header.topic,
                header.queue_id,
                ordered=header.order,
                attempt_id=header.attempt_id,
                wait_ms=wait_ms,
                client=client,
            )
        except PopsFullError:
            return headers.NotificationResponse(has_msg=False, polling_full=True).reply_to(command)
        return None if found is None else client.response(found)

    def polling_info(self, _connection: ServerConnection, command: Command) -> Answer:
        """How many pops wait."""
        header = headers.PollingInfoRequest.from_ext(command.ext)
        waiting = self._pops.waiting(header.consumer_group, header.topic, header.queue_id)
        return headers.PollingInfoResponse(polling_num=waiting).reply_to(command)


def _acknowledged(command: Command, missed: Missed) -> Command:
    if not missed:
        return command.reply()
    count = sum(map(len, missed.values()))
    # A field of ours: RocketMQ does not say which.
    ext = {pop_info.MISSED: pop_info.encode_missed(missed)}
    return command.reply(ResponseCode.SUCCESS, f"acks: {count} messages are not in flight", ext)


def _changed(command: Command, changed: Changed) -> Command:
    return headers.ChangeMessageInvisibletimeResponse(
        pop_time=changed.pop_time_ms,
        invisible_time=changed.invisible_ms,
        revive_qid=changed.revive_queue,
    ).reply_to(command)


class _WaitingClient:
    """The client behind a pop (see ``service.PopClient``)."""

    __slots__ = ("_command", "_connection", "_invisible_ms")

    def __init__(self, connection: ServerConnection, command: Command, invisible_ms: int) -> None:
        self._connection = connection
        self._command = command
        self._invisible_ms = invisible_ms

    @property
    def gone(self) -> bool:
        return self._connection.closed

    def answer(self, popped: Popped) -> None:
        self._connection.send(self.response(popped))

    def refuse(self, error: RemotingError) -> None:
        self._connection.send(self._command.reply(error.code, error.remark))

    def response(self, popped: Popped) -> Command:
        """The command for an answer."""
        counts = popped.order_counts
        return headers.PopMessageResponse(
            pop_time=popped.pop_time_ms,
            invisible_time=self._invisible_ms,
            revive_qid=popped.revive_queue,
            rest_num=popped.rest,
            start_offset_info=pop_info.encode_start_offsets(popped.starts),
            msg_offset_info=pop_info.encode_message_offsets(popped.offsets),
            order_count_info=pop_info.encode_start_offsets(counts) if counts else None,
        ).reply_to(
            self._command,
            code=ResponseCode.SUCCESS if popped.count else ResponseCode.POLLING_TIMEOUT,
            remark=_FOUND if popped.count else _NOTHING,
            body=b"".join(popped.body),
        )


class _NoticeClient:
    """The client behind a request for a notice."""

    __slots__ = ("_command", "_connection")

    def __init__(self, connection: ServerConnection, command: Command) -> None:
        self._connection = connection
        self._command = command

    @property
    def gone(self) -> bool:
        return self._connection.closed

    def answer(self, has_messages: bool) -> None:
        self._connection.send(self.response(has_messages))

    def response(self, has_messages: bool) -> Command:
        """The command for an answer."""
        return headers.NotificationResponse(has_msg=has_messages).reply_to(self._command)
