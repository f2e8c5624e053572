"""Timer messages: recalls, and requests of administrators and slaves."""

from __future__ import annotations

from functools import partial

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily, answer_with
from orbitmq.broker.timers.inspection import TimerInspection
from orbitmq.broker.timers.progress import CHECK_BYTES
from orbitmq.broker.timers.recall import Recall
from orbitmq.message import property_names
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.send import RecallMessageRequest, RecallMessageResponse


class TimerHandlers(HandlerFamily):
    """RECALL_MESSAGE, GET_TIMER_CHECK_POINT, GET_TIMER_METRICS."""

    def __init__(self, config: BrokerConfig, recall: Recall, inspection: TimerInspection) -> None:
        self._config = config
        self._recall = recall
        self._inspection = inspection

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.RECALL_MESSAGE: self.recall,
            RequestCode.GET_TIMER_CHECK_POINT: self.check_point,
            RequestCode.GET_TIMER_METRICS: self.metrics,
        }

    def recall(self, connection: ServerConnection, command: Command) -> Answer:
        """Take back a message that still waits for its time."""
        header = RecallMessageRequest.from_ext(command.ext)
        recalled = self._recall.recall(
            header.topic, header.recall_handle, header.producer_group or "", connection.remote
        )
        return answer_with(recalled, partial(self._recalled, command))

    def _recalled(self, command: Command, message_id: str) -> Command:
        ext = RecallMessageResponse(msg_id=message_id).to_ext()
        ext[property_names.MSG_REGION] = self._config.region_id
        return command.reply(ext=ext)

    def check_point(self, _connection: ServerConnection, command: Command) -> Answer:
        """The 56 bytes of TimerCheckpoint.encode."""
        # A returning RocketMQ master stays isolated while this request is refused: zeros without timers.
        return command.reply(
            body=self._inspection.check_point() if self._config.timer_wheel_enable else bytes(CHECK_BYTES)
        )

    async def metrics(self, _connection: ServerConnection, command: Command) -> Command:
        """How many messages wait, by topic; with the header field ``pendingBy=minute`` also by minute."""
        if not self._config.timer_wheel_enable:
            return command.reply(
                ResponseCode.SYSTEM_ERROR, "The timer message store is null: timerWheelEnable is false"
            )
        detailed = command.ext.get("pendingBy") == "minute"
        return command.reply(body=await self._inspection.metrics(detailed=detailed))
