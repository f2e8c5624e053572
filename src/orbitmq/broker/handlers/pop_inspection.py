"""Looking at what can be popped (PeekMessageProcessor, PollingInfoProcessor)."""

from __future__ import annotations

from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.handlers.pop_answers import FOUND, NOTHING
from orbitmq.broker.pop.service import Pops
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_headers as headers
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command


class PopInspectionHandlers(Family):
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
