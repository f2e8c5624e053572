"""The requests for pulls (PullMessageProcessor)."""

from __future__ import annotations

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily, WaitingClient
from orbitmq.broker.messaging.pulling import Pulled, Pulling, PullRequest, PullStatus
from orbitmq.message.sysflag import PullFlag
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers.pull import PullMessageRequest, PullMessageResponse

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
    """The response to a pull."""
    response = PullMessageResponse(
        suggest_which_broker_id=pulled.suggested_broker_id,
        next_begin_offset=pulled.next_offset,
        min_offset=pulled.min_offset,
        max_offset=pulled.max_offset,
        topic_sys_flag=pulled.topic_sys_flag,
        group_sys_flag=pulled.group_sys_flag,
    )
    return response.reply_to(command, code=_CODES[pulled.status], remark=pulled.remark, body=pulled.body)


class PullHandlers(HandlerFamily):
    """PULL_MESSAGE and LITE_PULL_MESSAGE."""

    def __init__(self, config: BrokerConfig, pulling: Pulling) -> None:
        self._config = config
        self._pulling = pulling

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.lite_pull}

    def lite_pull(self, connection: ServerConnection, command: Command) -> Answer:
        """Answer like :meth:`pull`, if the settings allow lite pull consumers."""
        config = self._config
        if not config.lite_pull_message_enable:
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] for lite pull consumer is forbidden",
            )
        return self.pull(connection, command)

    def pull(self, connection: ServerConnection, command: Command) -> Answer:
        """Answer with messages, or wait for them if the request's flags allow that."""
        pulled = self._pulling.read(_request(command), WaitingPull(connection, command))
        return None if pulled is None else pull_response(command, pulled)


def _request(command: Command) -> PullRequest:
    header = PullMessageRequest.from_ext(command.ext)
    flags = header.sys_flag
    return PullRequest(
        group=header.consumer_group,
        topic=header.topic,
        queue_id=header.queue_id,
        offset=header.queue_offset,
        max_count=header.max_msg_nums,
        max_bytes=header.max_msg_bytes or 0,
        commit_offset=header.commit_offset if flags & PullFlag.COMMIT_OFFSET else -1,
        suspend_ms=header.suspend_timeout_millis if flags & PullFlag.SUSPEND else None,
        own_expression=bool(flags & PullFlag.SUBSCRIPTION),
        expression=header.subscription,
        expression_type=header.expression_type,
        sub_version=header.sub_version,
    )
