"""RecallMessage: taking back a message that waits for its time."""

from __future__ import annotations

from typing import Final

from orbitmq.broker.timers.recall import Recall
from orbitmq.gateway import schema
from orbitmq.gateway.caller import Caller
from orbitmq.gateway.messages import new
from orbitmq.gateway.names import topic_name
from orbitmq.gateway.sends import host_of
from orbitmq.gateway.status import Code, RefusalError
from orbitmq.gateway.unary import ok
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

MAX_HANDLE: Final = 64 * 1024  # characters


class Recalls:
    """Takes back messages of gRPC clients."""

    def __init__(self, recall: Recall) -> None:
        self._recall = recall

    async def recall(
        self, caller: Caller, request: schema.RecallMessageRequest
    ) -> schema.RecallMessageResponse:
        """Take back the message that a handle names."""
        topic, handle = topic_name(request.topic), request.recall_handle
        if not handle:
            raise RefusalError(Code.BAD_REQUEST, "recall_handle is empty")
        if len(handle) > MAX_HANDLE:
            raise RefusalError(
                Code.BAD_REQUEST, f"recall_handle has {len(handle)} characters, limit {MAX_HANDLE}"
            )
        try:
            # The group of a producer is its topic, as in what it sends.
            message_id = await self._recall.recall(topic, handle, topic, host_of(caller.address))
        except RemotingError as error:
            if error.code != ResponseCode.SLAVE_NOT_AVAILABLE:
                raise
            raise RefusalError(Code.INTERNAL_SERVER_ERROR, error.remark) from error
        return new(schema.RecallMessageResponse, status=ok(), message_id=message_id)
