"""How a pop is answered, at once or after waiting (PopMessageProcessor)."""

from __future__ import annotations

from orbitmq.broker.handlers.waiting import WaitingClient
from orbitmq.broker.pop.popping import Popped
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_headers as headers
from orbitmq.wire import pop_info
from orbitmq.wire.codes import ResponseCode
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
            remark=FOUND if popped.count else NOTHING,
            body=b"".join(popped.body),
        )
