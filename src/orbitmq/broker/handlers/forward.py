"""Questions of administrators that a consumer answers (Broker2Client)."""

from __future__ import annotations

from functools import partial

from orbitmq.broker.clients.consumer_requests import ConsumerRequests
from orbitmq.broker.handlers.base import Answer, Family, Handler, answer_with
from orbitmq.message.model import MessageQueue
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.bodies.stats import GetConsumerStatusBody
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.client import ConsumeMessageDirectlyRequest, GetConsumerRunningInfoRequest
from orbitmq.wire.headers.offset import InvokeBrokerToGetConsumerStatusRequest


class ForwardHandlers(Family):
    """Requests that a consumer answers."""

    def __init__(self, requests: ConsumerRequests) -> None:
        self._requests = requests

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.status,
        }

    def running_info(self, _connection: ServerConnection, command: Command) -> Answer:
        """What a consumer says about itself."""
        header = GetConsumerRunningInfoRequest.from_ext(command.ext)
        question = Command(command.code, dict(command.ext), command.body)
        answer = self._requests.ask(header.consumer_group, header.client_id, question)
        return answer_with(answer, partial(_passed_on, command))

    def consume_directly(self, _connection: ServerConnection, command: Command) -> Answer:
        """Let a consumer consume one stored message now."""
        header = ConsumeMessageDirectlyRequest.from_ext(command.ext)
        answer = self._requests.consume_directly(header, command.ext)
        return answer_with(answer, partial(_passed_on, command))

    def status(self, _connection: ServerConnection, command: Command) -> Answer:
        """How far each consumer of a group says it is in a topic."""
        header = InvokeBrokerToGetConsumerStatusRequest.from_ext(command.ext)
        statuses = self._requests.statuses(header.group, header.topic, header.client_addr)
        return answer_with(statuses, partial(_statuses, command))


def _passed_on(command: Command, answer: Command) -> Command:
    return command.reply(answer.code, answer.remark, answer.ext, answer.body)


def _statuses(command: Command, statuses: dict[str, dict[MessageQueue, int]]) -> Command:
    return command.reply(body=GetConsumerStatusBody(consumer_table=statuses).encode())
