"""What follows a pop (AckMessageProcessor, ChangeInvisibleTimeProcessor)."""

from __future__ import annotations

from functools import partial

from orbitmq.broker.handlers.base import Answer, Family, Handler, answer_with
from orbitmq.broker.pop.settling import Changed, Missed, Settled, Settling
from orbitmq.broker.to_master import ToMaster
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire import all_headers as headers
from orbitmq.wire import pop_info
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command


class PopAckHandlers(Family):
    """Acknowledgements, and other invisible times; a slave lets its master serve them."""

    def __init__(self, settling: Settling, to_master: ToMaster) -> None:
        self._settling = settling
        self._to_master = to_master

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.ACK_MESSAGE: partial(self._where_it_leads, self.ack),
            RequestCode.BATCH_ACK_MESSAGE: partial(self._where_it_leads, self.batch_ack),
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: partial(self._where_it_leads, self.change),
        }

    def _where_it_leads(self, here: Handler, connection: ServerConnection, command: Command) -> Answer:
        answer = self._to_master.ask(command)
        return here(connection, command) if answer is None else answer

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
