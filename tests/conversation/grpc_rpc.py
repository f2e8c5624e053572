"""The calls of apache.rocketmq.v2 as tests make them, over :class:`GrpcClient`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.grpc_client import GrpcClient, prefixed

from orbitmq.broker.broker import Broker
from orbitmq.broker.pop.revive import PopRevive
from orbitmq.gateway import schema
from orbitmq.gateway.messages import duration, new, parse
from orbitmq.gateway.schema import ClientType, FilterType, MessageType, TransactionResolution
from orbitmq.gateway.status import Code
from orbitmq.runtime.seam import Runtime
from orbitmq.wire.codes import RequestCode

A = TypeVar("A", bound=schema.Form)
PORT = 10911
BODY_LIMIT = 4 * 1024 * 1024


def resource(name: str) -> schema.Resource:
    return new(schema.Resource, name=name)


def message(
    body: bytes = b"hello",
    *,
    topic: str = "T",
    id: str = "01AABBCCDDEE0000000000000000000001",
    properties: dict[str, str] | None = None,
    **system: Any,
) -> schema.Message:
    """A message to send; further arguments are its system properties."""
    return new(
        schema.Message,
        topic=resource(topic),
        user_properties=properties or {},
        system_properties=new(schema.SystemProperties, message_id=id, **system),
        body=body,
    )


@dataclass
class Received:
    """The answer to a ReceiveMessage."""

    code: int
    text: str
    messages: list[schema.Message] = field(default_factory=list)
    delivered: bool = False

    @property
    def bodies(self) -> list[bytes]:
        return [each.body for each in self.messages]

    def handle(self, index: int = 0) -> str:
        return self.messages[index].system_properties.receipt_handle


def access_point(*addresses: tuple[str, int]) -> schema.Endpoints:
    """Endpoints like those that a client is configured with."""
    return new(
        schema.Endpoints, addresses=[new(schema.Address, host=host, port=port) for host, port in addresses]
    )


class Stream:
    """An open Telemetry stream."""

    def __init__(self, client: GrpcClient, stream: int) -> None:
        self._client = client
        self.stream = stream

    async def send(self, settings: schema.Settings) -> None:
        await self.say(new(schema.TelemetryCommand, settings=settings))

    async def say(self, command: schema.TelemetryCommand) -> None:
        await self._client.send(self.stream, prefixed(command.SerializeToString()))

    async def next(self, timeout_s: float = 5.0) -> schema.TelemetryCommand:
        return parse(schema.TelemetryCommand, await self._client.next(self.stream, timeout_s))

    @property
    def answer(self) -> Any:
        return self._client.answers[self.stream]

    def reset(self) -> None:
        """Reset the stream, as happens when a client is cut off."""
        self._client.h2.reset_stream(self.stream)
        self._client.flush()


class RpcClient:
    """One client of RocketMQ 5.

    Args:
        client_id: an empty one sends no client id.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        client_id: str = "client-1",
        group: str = "cg",
        host: str = "127.0.0.1",
        port: int = PORT,
        language: str = "PYTHON",
        version: str = "5.1.2",
        **options: Any,
    ) -> None:
        self.language = language
        self.version = version
        self.grpc = GrpcClient(runtime, host, port, **options)
        self.client_id = client_id
        self.group = group
        self.more_headers: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        await self.grpc.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.grpc.__aexit__()

    @property
    def headers(self) -> list[tuple[str, str]]:
        if not self.client_id:
            return []
        return [
            ("x-mq-client-id", self.client_id),
            ("x-mq-language", self.language),
            ("x-mq-client-version", self.version),
            *self.more_headers.items(),
        ]

    async def ask(self, method: str, request: schema.Form, form: type[A], *, timeout: str = "") -> A:
        """Make a call with one response message."""
        headers = [*self.headers, *([("grpc-timeout", timeout)] if timeout else [])]
        answer = await self.grpc.call(method, request.SerializeToString(), headers=headers)
        assert answer.status == 0, (answer.status, answer.message)
        (data,) = answer.messages()
        return parse(form, data)

    async def route(self, topic: str = "T", *addresses: tuple[str, int]) -> schema.QueryRouteResponse:
        request = new(schema.QueryRouteRequest, topic=resource(topic), endpoints=access_point(*addresses))
        return await self.ask("QueryRoute", request, schema.QueryRouteResponse)

    async def assignment(
        self, topic: str = "T", *addresses: tuple[str, int]
    ) -> schema.QueryAssignmentResponse:
        request = new(
            schema.QueryAssignmentRequest,
            topic=resource(topic),
            group=resource(self.group),
            endpoints=access_point(*addresses),
        )
        return await self.ask("QueryAssignment", request, schema.QueryAssignmentResponse)

    async def heartbeat(self, kind: int = ClientType.SIMPLE_CONSUMER) -> schema.HeartbeatResponse:
        request = new(schema.HeartbeatRequest, group=resource(self.group), client_type=kind)
        return await self.ask("Heartbeat", request, schema.HeartbeatResponse)

    async def goodbye(self) -> schema.NotifyClientTerminationResponse:
        request = new(schema.NotifyClientTerminationRequest, group=resource(self.group))
        return await self.ask("NotifyClientTermination", request, schema.NotifyClientTerminationResponse)

    def telemetry(self) -> Stream:
        return Stream(self.grpc, self.grpc.open("Telemetry", headers=self.headers))

    async def start(self, kind: int = ClientType.PUSH_CONSUMER) -> Stream:
        """Send the client's settings and read the broker's, as each client does first."""
        stream = self.telemetry()
        await stream.send(self.settings(kind))
        answer = await stream.next()
        assert answer.status.code == Code.OK, answer
        return stream

    def settings(
        self, kind: int = ClientType.PUSH_CONSUMER, topics: Sequence[str] = ("T",), expression: str = "*"
    ) -> schema.Settings:
        if kind == ClientType.PRODUCER:
            publishing = new(schema.Publishing, topics=[resource(topic) for topic in topics])
            return new(schema.Settings, client_type=kind, publishing=publishing)
        wanted = new(schema.FilterExpression, type=FilterType.TAG, expression=expression)
        entries = [
            new(schema.SubscriptionEntry, topic=resource(topic), expression=wanted) for topic in topics
        ]
        subscription = new(schema.Subscription, group=resource(self.group), subscriptions=entries)
        return new(schema.Settings, client_type=kind, subscription=subscription)

    async def send(self, *messages: schema.Message) -> schema.SendMessageResponse:
        request = new(schema.SendMessageRequest, messages=messages)
        return await self.ask("SendMessage", request, schema.SendMessageResponse)

    async def sent(self, *bodies: bytes, **values: Any) -> None:
        """Send messages that the broker has to accept."""
        answer = await self.send(*(message(body, **values) for body in bodies))
        assert answer.status.code == Code.OK, answer

    async def begin(
        self, body: bytes = b"paid", *, topic: str = "T", recovery_ms: int | None = None, **system: Any
    ) -> schema.SendResultEntry:
        """Send a half message that the broker has to accept."""
        half = message(body, topic=topic, message_type=MessageType.TRANSACTION, **system)
        if recovery_ms is not None:
            recovery = half.system_properties.orphaned_transaction_recovery_duration
            recovery.CopyFrom(duration(recovery_ms))
        answer = await self.send(half)
        assert answer.status.code == Code.OK, answer
        assert answer.entries[0].transaction_id
        return answer.entries[0]

    async def end(
        self,
        half: schema.SendResultEntry,
        resolution: int = TransactionResolution.COMMIT,
        *,
        topic: str = "T",
        transaction_id: str | None = None,
        message_id: str | None = None,
    ) -> schema.EndTransactionResponse:
        request = new(
            schema.EndTransactionRequest,
            topic=resource(topic),
            message_id=half.message_id if message_id is None else message_id,
            transaction_id=half.transaction_id if transaction_id is None else transaction_id,
            resolution=resolution,
        )
        return await self.ask("EndTransaction", request, schema.EndTransactionResponse)

    async def recall(self, handle: str, topic: str = "T") -> schema.RecallMessageResponse:
        request = new(schema.RecallMessageRequest, topic=resource(topic), recall_handle=handle)
        return await self.ask("RecallMessage", request, schema.RecallMessageResponse)

    def receive_request(
        self,
        topic: str = "T",
        *,
        count: int = 32,
        invisible_ms: int = 10_000,
        wait_ms: int | None = 0,
        renew: bool = False,
        expression: str = "*",
        kind: int = FilterType.TAG,
        attempt: str | None = None,
    ) -> schema.ReceiveMessageRequest:
        request = new(
            schema.ReceiveMessageRequest,
            group=resource(self.group),
            message_queue=new(schema.MessageQueue, topic=resource(topic), id=-1),
            filter_expression=new(schema.FilterExpression, type=kind, expression=expression),
            batch_size=count,
            auto_renew=renew,
        )
        if invisible_ms:
            request.invisible_duration.CopyFrom(duration(invisible_ms))
        if wait_ms is not None:
            request.long_polling_timeout.CopyFrom(duration(wait_ms))
        if attempt is not None:
            request.attempt_id = attempt
        return request

    async def receive(self, topic: str = "T", *, timeout: str = "", **values: Any) -> Received:
        """The response to a ReceiveMessage."""
        headers = [*self.headers, *([("grpc-timeout", timeout)] if timeout else [])]
        request = self.receive_request(topic, **values)
        answer = await self.grpc.call("ReceiveMessage", request.SerializeToString(), headers=headers)
        assert answer.status == 0, (answer.status, answer.message)
        return received(answer.messages())

    async def ack(self, *handles: str, topic: str = "T") -> schema.AckMessageResponse:
        entries = [
            new(schema.AckMessageEntry, message_id=f"m-{number}", receipt_handle=handle)
            for number, handle in enumerate(handles)
        ]
        request = new(
            schema.AckMessageRequest, group=resource(self.group), topic=resource(topic), entries=entries
        )
        return await self.ask("AckMessage", request, schema.AckMessageResponse)

    async def change(
        self, handle: str, invisible_ms: int, topic: str = "T"
    ) -> schema.ChangeInvisibleDurationResponse:
        request = new(
            schema.ChangeInvisibleDurationRequest,
            group=resource(self.group),
            topic=resource(topic),
            receipt_handle=handle,
            invisible_duration=duration(invisible_ms),
            message_id="m-1",
        )
        return await self.ask("ChangeInvisibleDuration", request, schema.ChangeInvisibleDurationResponse)

    async def give_up(self, handle: str, topic: str = "T") -> schema.ForwardMessageToDeadLetterQueueResponse:
        request = new(
            schema.ForwardMessageToDeadLetterQueueRequest,
            group=resource(self.group),
            topic=resource(topic),
            receipt_handle=handle,
            message_id="m-1",
            delivery_attempt=3,
            max_delivery_attempts=3,
        )
        return await self.ask(
            "ForwardMessageToDeadLetterQueue", request, schema.ForwardMessageToDeadLetterQueueResponse
        )


def receiving(rpc: RpcClient, *, timeout: str = "", **values: object) -> int:
    """Begin a ReceiveMessage; returns the number of its stream."""
    headers = [*rpc.headers, *([("grpc-timeout", timeout)] if timeout else [])]
    stream = rpc.grpc.open("ReceiveMessage", headers=headers)
    request = rpc.receive_request(**values)  # type: ignore[arg-type]
    rpc.grpc.h2.send_data(stream, prefixed(request.SerializeToString()), end_stream=True)
    rpc.grpc.flush()
    return stream


def received(data: Sequence[bytes]) -> Received:
    """Parse the messages of a ReceiveMessage: a status first, the delivery's time last."""
    responses = [parse(schema.ReceiveMessageResponse, each) for each in data]
    assert responses[0].HasField("status")
    first = responses[0].status
    answer = Received(first.code, first.message)
    for response in responses[1:]:
        assert not answer.delivered, "the time of the delivery is the last response"
        if response.HasField("message"):
            answer.messages.append(response.message)
        else:
            answer.delivered = response.HasField("delivery_timestamp")
    return answer


async def all_of(client: RpcClient, count: int, **values: Any) -> list[schema.Message]:
    """Receive until this many messages have arrived."""
    found: list[schema.Message] = []
    while len(found) < count:
        found += (await client.receive(**{"wait_ms": 20_000, **values})).messages
        await asyncio.sleep(0)
    return found


def kinds(queue: schema.MessageQueue) -> list[MessageType]:
    return [MessageType(kind) for kind in queue.accept_message_types]


def in_flight(broker: Broker) -> int:
    """The number of the broker's popped messages that are not acknowledged yet."""
    return len(broker.part(PopRevive).state.in_flight)


async def answer_of(rpc: RpcClient, stream: int, timeout_s: float = 60.0) -> Received:
    """The answer to the ReceiveMessage on this stream."""
    answer = rpc.grpc.answers[stream]
    await asyncio.wait_for(answer.done.wait(), timeout_s)
    assert answer.status == 0, answer
    return received(answer.messages())


async def ordered_group(broker: Broker, group: str = "cg", retries: int = 16) -> None:
    """Create a group that consumes in order."""
    async with BrokerPeer(broker.runtime) as peer:
        body = b'{"groupName":"%s","consumeMessageOrderly":true,"retryMaxTimes":%d}' % (
            group.encode(),
            retries,
        )
        await peer.ok(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
