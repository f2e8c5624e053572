"""The handler of RecallMessage, which takes back a delayed message before its delivery."""

from __future__ import annotations

from typing import Final

from orbitmq.broker.timers.recall import Recall
from orbitmq.gateway import schema
from orbitmq.gateway.caller import Caller
from orbitmq.gateway.cluster import OtherBrokers, TopicBroker
from orbitmq.gateway.messages import new
from orbitmq.gateway.names import topic_name
from orbitmq.gateway.sends import host_of
from orbitmq.gateway.status import Code, RefusalError
from orbitmq.gateway.unary import ok
from orbitmq.transport.errors import TransportError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import HeaderError, RemotingError
from orbitmq.wire.headers.send import RecallMessageRequest, RecallMessageResponse
from orbitmq.wire.recall_handle import RecallHandle

MAX_HANDLE: Final = 64 * 1024  # characters
# The time limit for another broker that stores the recall; clients of RocketMQ 5 wait 3 s.
PASSED_ON_MS: Final = 2500


class Recalls:
    """Takes back delayed messages of gRPC clients."""

    def __init__(self, recall: Recall, others: OtherBrokers) -> None:
        self._recall = recall
        self._others = others

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
            member = await self._member(topic, handle)
            if member is not None:
                message_id = await self._passed_on(topic, handle, member)
            else:
                # A gRPC producer's group is its topic, in a recall as in a send.
                message_id = await self._recall.recall(topic, handle, topic, host_of(caller.address))
        except RemotingError as error:
            if error.code != ResponseCode.SLAVE_NOT_AVAILABLE:
                raise
            raise RefusalError(Code.INTERNAL_SERVER_ERROR, error.remark) from error
        return new(schema.RecallMessageResponse, status=ok(), message_id=message_id)

    async def _member(self, topic: str, handle: str) -> TopicBroker | None:
        """The other broker that has the message, such as this slave's master; None if none is known."""
        try:
            name = RecallHandle.decode(handle).broker_name
        except HeaderError:
            return None
        members = (await self._others.of(topic)).members
        return next((member for member in members if member.name == name), None)

    async def _passed_on(self, topic: str, handle: str, member: TopicBroker) -> str:
        """Take the message back at another broker; returns its id.

        Clients send a recall to their configured endpoint, whichever broker has the message.
        """
        header = RecallMessageRequest(topic=topic, recall_handle=handle, producer_group=topic)
        try:
            response = await self._others.ask(member.address, header.command(), PASSED_ON_MS)
        except TransportError as error:
            text = f"the message of this handle is at broker {member.name}: {error}"
            raise RefusalError(Code.INTERNAL_SERVER_ERROR, text) from error
        if response.code != ResponseCode.SUCCESS:
            raise RemotingError(response.code, response.remark or "")
        return RecallMessageResponse.from_ext(response.ext).msg_id
