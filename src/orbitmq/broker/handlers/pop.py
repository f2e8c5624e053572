"""The requests of pop (PopMessageProcessor, AckMessageProcessor, NotificationProcessor and others)."""

from __future__ import annotations

from functools import partial

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily, WaitingClient, answer_with
from orbitmq.broker.pop.acknowledging import Acknowledging, Changed, MessageReceipt, Missed
from orbitmq.broker.pop.requests import Popped, PopRequest
from orbitmq.broker.pop.service import Pops, PopsFullError
from orbitmq.broker.to_master import ToMaster
from orbitmq.runtime.seam import Clock
from orbitmq.transport.peer_clock import LATE_MS
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire import all_headers as headers
from orbitmq.wire import pop_info
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

FOUND = "FOUND"
NOTHING = "NO_MESSAGE_IN_QUEUE"


class WaitingPop(WaitingClient):
    """The client behind a pop (see ``service.PopClient``)."""

    __slots__ = ("_invisible_ms",)

    def __init__(self, connection: ServerConnection, command: Command, invisible_ms: int) -> None:
        super().__init__(connection, command)
        self._invisible_ms = invisible_ms

    def answer(self, popped: Popped) -> None:
        self._connection.send(self.response(popped))

    def response(self, popped: Popped) -> Command:
        """The response to the pop."""
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
            remark=FOUND if popped.count else NOTHING,
            body=b"".join(popped.body),
        )


_FROM_NEWEST = 1


class PopHandlers(HandlerFamily):
    """POP_MESSAGE, answered at once or when messages arrive."""

    def __init__(self, config: BrokerConfig, clock: Clock, pops: Pops) -> None:
        self._config = config
        self._clock = clock
        self._pops = pops

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.POP_MESSAGE: self.pop}

    def pop(self, connection: ServerConnection, command: Command) -> Answer:
        """Answer with messages, or wait for messages as long as the request's ``pollTime``."""
        now = self._clock.now_ms()
        command.ext.setdefault("bornTime", str(now))
        header = headers.PopMessageRequest.from_ext(command.ext)
        born = header.born_time or now
        way_ms = connection.clock.way_ms(born, now)
        # The client of a request that was on its way for longer than its wait, and this margin, has given up.
        if way_ms > header.poll_time + LATE_MS:
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
        wait_ms = header.poll_time - way_ms if header.poll_time > 0 else 0
        client = WaitingPop(connection, command, header.invisible_time)
        try:
            popped = self._pops.pop(request, wait_ms, client)
        except PopsFullError:
            return command.reply(ResponseCode.POLLING_FULL, NOTHING)
        return None if popped is None else client.response(popped)


class PopAckHandlers(HandlerFamily):
    """Acknowledgements, and changes of invisible times; a slave passes them on to its master."""

    def __init__(self, acknowledging: Acknowledging, to_master: ToMaster) -> None:
        self._acknowledging = acknowledging
        self._to_master = to_master

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.ACK_MESSAGE: partial(self._where_it_leads, self.ack),
            RequestCode.BATCH_ACK_MESSAGE: partial(self._where_it_leads, self.batch_ack),
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: partial(self._where_it_leads, self.change),
        }

    def _where_it_leads(self, here: Handler, connection: ServerConnection, command: Command) -> Answer:
        answer = self._to_master.ask(command, connection.remote[0])
        return here(connection, command) if answer is None else answer

    def ack(self, _connection: ServerConnection, command: Command) -> Answer:
        """Acknowledge a message; answered when that is on disk."""
        header = headers.AckMessageRequest.from_ext(command.ext)
        settled = MessageReceipt(
            header.consumer_group, header.topic, header.queue_id, header.offset, header.extra_info
        )
        return answer_with(self._acknowledging.acknowledge(settled), lambda _: command.reply())

    def batch_ack(self, _connection: ServerConnection, command: Command) -> Answer:
        """Acknowledge messages of several pops."""
        body = bodies.BatchAckMessageRequestBody.decode(command.body) if command.body else None
        if body is None or not body.acks:
            return command.reply(ResponseCode.NO_MESSAGE, "the body has no acks")
        outcome = self._acknowledging.acknowledge_many(body.acks)
        return answer_with(outcome, partial(_acknowledged, command))

    def change(self, _connection: ServerConnection, command: Command) -> Answer:
        """Give a message another invisible time, and a new receipt."""
        header = headers.ChangeMessageInvisibletimeRequest.from_ext(command.ext)
        settled = MessageReceipt(
            header.consumer_group, header.topic, header.queue_id, header.offset, header.extra_info
        )
        outcome = self._acknowledging.change(settled, header.invisible_time)
        return answer_with(outcome, partial(_changed, command))


def _acknowledged(command: Command, missed: Missed) -> Command:
    if not missed:
        return command.reply()
    count = sum(map(len, missed.values()))
    # A header field of OrbitMQ's own: RocketMQ's response does not show which acknowledgements failed.
    ext = {pop_info.MISSED: pop_info.encode_missed(missed)}
    return command.reply(ResponseCode.SUCCESS, f"acks: {count} messages are not in flight", ext)


def _changed(command: Command, changed: Changed) -> Command:
    return headers.ChangeMessageInvisibletimeResponse(
        pop_time=changed.pop_time_ms,
        invisible_time=changed.invisible_ms,
        revive_qid=changed.revive_queue,
    ).reply_to(command)


class PopNoticeHandlers(HandlerFamily):
    """NOTIFICATION: for clients that pop only when there are messages."""

    def __init__(self, clock: Clock, pops: Pops) -> None:
        self._clock = clock
        self._pops = pops

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.NOTIFICATION: self.notification}

    def notification(self, connection: ServerConnection, command: Command) -> Answer:
        """Answer whether there are messages, now or when some arrive."""
        now = self._clock.now_ms()
        command.ext.setdefault("bornTime", str(now))
        header = headers.NotificationRequest.from_ext(command.ext)
        client = _NoticeClient(connection, command)
        way_ms = connection.clock.way_ms(header.born_time or now, now)
        wait_ms = header.poll_time - way_ms if header.poll_time > 0 else 0
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


class _NoticeClient(WaitingClient):
    """The client behind a request for a notice."""

    __slots__ = ()

    def answer(self, has_messages: bool) -> None:
        self._connection.send(self.response(has_messages))

    def response(self, has_messages: bool) -> Command:
        """The response to the request."""
        return headers.NotificationResponse(has_msg=has_messages).reply_to(self._command)


class PopInspectionHandlers(HandlerFamily):
    """PEEK_MESSAGE and POLLING_INFO."""

    def __init__(self, pops: Pops) -> None:
        self._pops = pops

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.POLLING_INFO: self.polling_info,
        }

    def peek(self, _connection: ServerConnection, command: Command) -> Answer:
        """Show messages without taking them."""
        header = headers.PeekMessageRequest.from_ext(command.ext)
        seen = self._pops.peek(header.consumer_group, header.topic, header.queue_id, header.max_msg_nums)
        code = ResponseCode.SUCCESS if seen.count else ResponseCode.PULL_NOT_FOUND
        return headers.PeekMessageResponse(
            pop_time=seen.pop_time_ms, invisible_time=0, revive_qid=0, rest_num=seen.rest
        ).reply_to(command, code=code, remark=FOUND if seen.count else NOTHING, body=b"".join(seen.body))

    def polling_info(self, _connection: ServerConnection, command: Command) -> Answer:
        """How many pops wait."""
        header = headers.PollingInfoRequest.from_ext(command.ext)
        waiting = self._pops.waiting(header.consumer_group, header.topic, header.queue_id)
        return headers.PollingInfoResponse(polling_num=waiting).reply_to(command)
