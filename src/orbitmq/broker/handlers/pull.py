"""Pulling over the wire (PullMessageProcessor)."""

from __future__ import annotations

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.handlers.pull_answers import WaitingPull, pull_response
from orbitmq.broker.messaging.pulling import Pulling, PullRequest
from orbitmq.message.sysflag import PullFlag
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers.pull import PullMessageRequest


class PullHandlers(Family):
    """PULL_MESSAGE and LITE_PULL_MESSAGE."""

    def __init__(self, config: BrokerConfig, pulling: Pulling) -> None:
        self._config = config
        self._pulling = pulling

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.PULL_MESSAGE: self.pull, RequestCode.LITE_PULL_MESSAGE: self.lite_pull}

    def lite_pull(self, connection: ServerConnection, command: Command) -> Answer:
        """As :meth:`pull`, when the settings allow lite pull consumers."""
        config = self._config
        if not config.lite_pull_message_enable:
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                f"the broker[{config.broker_ip1}] for lite pull consumer is forbidden",
            )
        return self.pull(connection, command)

    def pull(self, connection: ServerConnection, command: Command) -> Answer:
        """Answer with messages, or wait for them when the client says so."""
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
