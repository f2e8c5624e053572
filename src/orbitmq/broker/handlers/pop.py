"""Pop over the wire (PopMessageProcessor)."""

from __future__ import annotations

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.handlers.pop_answers import NOTHING, WaitingPop
from orbitmq.broker.pop.popping import PopRequest
from orbitmq.broker.pop.service import Pops, PopsFullError
from orbitmq.runtime.seam import Clock
from orbitmq.transport.peer_clock import LATE_MS
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_headers as headers
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

_FROM_NEWEST = 1


class PopHandlers(Family):
    """POP_MESSAGE, answered at once or when messages come."""

    def __init__(self, config: BrokerConfig, clock: Clock, pops: Pops) -> None:
        self._config = config
        self._clock = clock
        self._pops = pops

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.POP_MESSAGE: self.pop}

    def pop(self, connection: ServerConnection, command: Command) -> Answer:
        """Answer with messages, or wait for them as long as the client says."""
        now = self._clock.now_ms()
        command.ext.setdefault("bornTime", str(now))
        header = headers.PopMessageRequest.from_ext(command.ext)
        born = header.born_time or now
        way_ms = connection.clock.way_ms(born, now)
        # What was on its way for so much longer than it wanted to wait is nobody's any more.
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
