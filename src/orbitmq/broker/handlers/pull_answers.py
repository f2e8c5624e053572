"""How a pull is answered, at once or after waiting (PullMessageProcessor)."""

from __future__ import annotations

from orbitmq.broker.handlers.waiting import WaitingClient
from orbitmq.broker.messaging.pulling import Pulled, PullStatus
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import PullMessageResponse

_CODES = {
    PullStatus.FOUND: ResponseCode.SUCCESS,
    PullStatus.NO_NEW_MSG: ResponseCode.PULL_NOT_FOUND,
    PullStatus.NO_MATCHED_MSG: ResponseCode.PULL_RETRY_IMMEDIATELY,
    PullStatus.OFFSET_ILLEGAL: ResponseCode.PULL_OFFSET_MOVED,
}


class WaitingPull(WaitingClient):
    """The client behind a pull that waits (see ``pulling.PullClient``)."""

    __slots__ = ()

    def answer(self, pulled: Pulled) -> None:
        self._connection.send(pull_response(self._command, pulled))


def pull_response(command: Command, pulled: Pulled) -> Command:
    """The command for an answer."""
    response = PullMessageResponse(
        suggest_which_broker_id=pulled.suggested_broker_id,
        next_begin_offset=pulled.next_offset,
        min_offset=pulled.min_offset,
        max_offset=pulled.max_offset,
        topic_sys_flag=pulled.topic_sys_flag,
        group_sys_flag=pulled.group_sys_flag,
    )
    return response.reply_to(command, code=_CODES[pulled.status], remark=pulled.remark, body=pulled.body)
