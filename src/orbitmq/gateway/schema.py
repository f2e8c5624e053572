"""The messages of the protobuf package ``apache.rocketmq.v2``, as far as OrbitMQ serves them.

Each class is one message; each annotation is one field, with its type, its number, and its options. The type
checker reads the classes as they are; :mod:`orbitmq.gateway.messages` makes protobuf's classes from them.
Fields of enumerations are plain integers, as on the wire: a client may send numbers newer than this table.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Final

if TYPE_CHECKING:
    from google.protobuf.message import Message as _Protobuf
else:
    _Protobuf = object


class Form(_Protobuf):
    """The base of the messages in this module."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """Marks the fields of one oneof, by the oneof's name: at most one of them is set."""

    name: str


# Marks a field that records whether it was set (proto3 ``optional``).
OPTIONAL: Final = "optional"
INT64: Final = "int64"


# -- enumerations --------------------------------------------------------------------------------------


class Permission(IntEnum):
    """The permission of a queue."""

    UNSPECIFIED = 0
    NONE = 1
    READ = 2
    WRITE = 3
    READ_WRITE = 4


class FilterType(IntEnum):
    """The type of a filter expression."""

    UNSPECIFIED = 0
    TAG = 1
    SQL = 2


class AddressScheme(IntEnum):
    """The kind of the addresses in endpoints."""

    UNSPECIFIED = 0
    IPV4 = 1
    IPV6 = 2
    DOMAIN_NAME = 3


class MessageType(IntEnum):
    """The type of a message."""

    UNSPECIFIED = 0
    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4
    LITE = 5
    PRIORITY = 6


class DigestType(IntEnum):
    """The algorithm of a body's checksum."""

    UNSPECIFIED = 0
    CRC32 = 1
    MD5 = 2
    SHA1 = 3


class TransactionResolution(IntEnum):
    """The end of a transaction: commit or roll-back."""

    UNSPECIFIED = 0
    COMMIT = 1
    ROLLBACK = 2


class ClientType(IntEnum):
    """The type of a client."""

    UNSPECIFIED = 0
    PRODUCER = 1
    PUSH_CONSUMER = 2
    SIMPLE_CONSUMER = 3
    PULL_CONSUMER = 4
    LITE_PUSH_CONSUMER = 5
    LITE_SIMPLE_CONSUMER = 6


class Encoding(IntEnum):
    """The compression of a body."""

    UNSPECIFIED = 0
    IDENTITY = 1
    GZIP = 2


# -- parts of other messages ---------------------------------------------------------------------------


class Timestamp(Form):
    """An instant, as seconds and nanoseconds since the epoch."""

    seconds: Annotated[int, 1, INT64]
    nanos: Annotated[int, 2]


class Duration(Form):
    """A span of time."""

    seconds: Annotated[int, 1, INT64]
    nanos: Annotated[int, 2]


class Status(Form):
    """The status of a response; ``code`` is a :class:`orbitmq.gateway.status.Code`."""

    code: Annotated[int, 1]
    message: Annotated[str, 2]


class Resource(Form):
    """A topic or a group."""

    resource_namespace: Annotated[str, 1]
    name: Annotated[str, 2]


class FilterExpression(Form):
    """A filter expression and its type."""

    type: Annotated[int, 1]
    expression: Annotated[str, 2]


class SubscriptionEntry(Form):
    """A topic and the filter expression of its consumer."""

    topic: Annotated[Resource, 1]
    expression: Annotated[FilterExpression, 2]


class ExponentialBackoff(Form):
    """Exponential back-off."""

    initial: Annotated[Duration, 1]
    max: Annotated[Duration, 2]
    multiplier: Annotated[float, 3]


class CustomizedBackoff(Form):
    """A fixed delay for each attempt."""

    next: Annotated[Sequence[Duration], 1]


class RetryPolicy(Form):
    """The number of attempts and the delays between them."""

    max_attempts: Annotated[int, 1]
    exponential_backoff: Annotated[ExponentialBackoff, 2, OneOf("strategy")]
    customized_backoff: Annotated[CustomizedBackoff, 3, OneOf("strategy")]


class Address(Form):
    """A host and its port."""

    host: Annotated[str, 1]
    port: Annotated[int, 2]


class Endpoints(Form):
    """The addresses of a broker or client."""

    scheme: Annotated[int, 1]
    addresses: Annotated[Sequence[Address], 2]


class Broker(Form):
    """A broker in a route; clients use those with id 0 only."""

    name: Annotated[str, 1]
    id: Annotated[int, 2]
    endpoints: Annotated[Endpoints, 3]


class MessageQueue(Form):
    """A queue of a topic on a broker."""

    topic: Annotated[Resource, 1]
    id: Annotated[int, 2]
    permission: Annotated[int, 3]
    broker: Annotated[Broker, 4]
    accept_message_types: Annotated[Sequence[int], 5]


class Digest(Form):
    """A checksum."""

    type: Annotated[int, 1]
    checksum: Annotated[str, 2]


class DeadLetterQueue(Form):
    """The original topic and message id of a dead letter."""

    topic: Annotated[str, 1]
    message_id: Annotated[str, 2]


class SystemProperties(Form):
    """The system properties of a message."""

    tag: Annotated[str, 1, OPTIONAL]
    keys: Annotated[Sequence[str], 2]
    message_id: Annotated[str, 3]
    body_digest: Annotated[Digest, 4]
    body_encoding: Annotated[int, 5]
    message_type: Annotated[int, 6]
    born_timestamp: Annotated[Timestamp, 7]
    born_host: Annotated[str, 8]
    store_timestamp: Annotated[Timestamp, 9, OPTIONAL]
    store_host: Annotated[str, 10]
    delivery_timestamp: Annotated[Timestamp, 11, OPTIONAL]
    receipt_handle: Annotated[str, 12, OPTIONAL]
    queue_id: Annotated[int, 13]
    queue_offset: Annotated[int, 14, INT64, OPTIONAL]
    invisible_duration: Annotated[Duration, 15, OPTIONAL]
    delivery_attempt: Annotated[int, 16, OPTIONAL]
    message_group: Annotated[str, 17, OPTIONAL]
    trace_context: Annotated[str, 18, OPTIONAL]
    orphaned_transaction_recovery_duration: Annotated[Duration, 19, OPTIONAL]
    dead_letter_queue: Annotated[DeadLetterQueue, 20, OPTIONAL]
    lite_topic: Annotated[str, 21, OPTIONAL]
    priority: Annotated[int, 22, OPTIONAL]


class Message(Form):
    """A message."""

    topic: Annotated[Resource, 1]
    user_properties: Annotated[MutableMapping[str, str], 2]
    system_properties: Annotated[SystemProperties, 3]
    body: Annotated[bytes, 4]


class Assignment(Form):
    """A queue that a consumer has to receive from."""

    message_queue: Annotated[MessageQueue, 1]


# -- settings ------------------------------------------------------------------------------------------


class UserAgent(Form):
    """The language, version and host of a client."""

    language: Annotated[int, 1]
    version: Annotated[str, 2]
    platform: Annotated[str, 3]
    hostname: Annotated[str, 4]


class Publishing(Form):
    """Settings of a producer."""

    topics: Annotated[Sequence[Resource], 1]
    max_body_size: Annotated[int, 2]
    validate_message_type: Annotated[bool, 3]


class Subscription(Form):
    """Settings of a consumer."""

    group: Annotated[Resource, 1, OPTIONAL]
    subscriptions: Annotated[Sequence[SubscriptionEntry], 2]
    fifo: Annotated[bool, 3, OPTIONAL]
    receive_batch_size: Annotated[int, 4, OPTIONAL]
    long_polling_timeout: Annotated[Duration, 5, OPTIONAL]
    lite_subscription_quota: Annotated[int, 6, OPTIONAL]
    max_lite_topic_size: Annotated[int, 7, OPTIONAL]


class Metric(Form):
    """Whether a client exports its metrics, and to which endpoints."""

    on: Annotated[bool, 1]
    endpoints: Annotated[Endpoints, 2]


class Settings(Form):
    """Settings of a client; the server sends them back with its own additions."""

    client_type: Annotated[int, 1, OPTIONAL]
    access_point: Annotated[Endpoints, 2, OPTIONAL]
    backoff_policy: Annotated[RetryPolicy, 3, OPTIONAL]
    request_timeout: Annotated[Duration, 4, OPTIONAL]
    publishing: Annotated[Publishing, 5, OneOf("pub_sub")]
    subscription: Annotated[Subscription, 6, OneOf("pub_sub")]
    user_agent: Annotated[UserAgent, 7]
    metric: Annotated[Metric, 8]
    client_properties: Annotated[MutableMapping[str, str], 9]


# -- calls ---------------------------------------------------------------------------------------------


class QueryRouteRequest(Form):
    topic: Annotated[Resource, 1]
    endpoints: Annotated[Endpoints, 2]


class QueryRouteResponse(Form):
    status: Annotated[Status, 1]
    message_queues: Annotated[Sequence[MessageQueue], 2]


class QueryAssignmentRequest(Form):
    topic: Annotated[Resource, 1]
    group: Annotated[Resource, 2]
    endpoints: Annotated[Endpoints, 3]


class QueryAssignmentResponse(Form):
    status: Annotated[Status, 1]
    assignments: Annotated[Sequence[Assignment], 2]


class HeartbeatRequest(Form):
    group: Annotated[Resource, 1, OPTIONAL]
    client_type: Annotated[int, 2]


class HeartbeatResponse(Form):
    status: Annotated[Status, 1]


class NotifyClientTerminationRequest(Form):
    group: Annotated[Resource, 1, OPTIONAL]


class NotifyClientTerminationResponse(Form):
    status: Annotated[Status, 1]


class SendMessageRequest(Form):
    messages: Annotated[Sequence[Message], 1]


class SendResultEntry(Form):
    status: Annotated[Status, 1]
    message_id: Annotated[str, 2]
    transaction_id: Annotated[str, 3]
    offset: Annotated[int, 4, INT64]
    recall_handle: Annotated[str, 5]


class SendMessageResponse(Form):
    status: Annotated[Status, 1]
    entries: Annotated[Sequence[SendResultEntry], 2]


class ReceiveMessageRequest(Form):
    group: Annotated[Resource, 1]
    message_queue: Annotated[MessageQueue, 2]
    filter_expression: Annotated[FilterExpression, 3]
    batch_size: Annotated[int, 4]
    invisible_duration: Annotated[Duration, 5, OPTIONAL]
    auto_renew: Annotated[bool, 6]
    long_polling_timeout: Annotated[Duration, 7, OPTIONAL]
    attempt_id: Annotated[str, 8, OPTIONAL]


class ReceiveMessageResponse(Form):
    status: Annotated[Status, 1, OneOf("content")]
    message: Annotated[Message, 2, OneOf("content")]
    delivery_timestamp: Annotated[Timestamp, 3, OneOf("content")]


class AckMessageEntry(Form):
    message_id: Annotated[str, 1]
    receipt_handle: Annotated[str, 2]
    lite_topic: Annotated[str, 3, OPTIONAL]


class AckMessageRequest(Form):
    group: Annotated[Resource, 1]
    topic: Annotated[Resource, 2]
    entries: Annotated[Sequence[AckMessageEntry], 3]


class AckMessageResultEntry(Form):
    message_id: Annotated[str, 1]
    receipt_handle: Annotated[str, 2]
    status: Annotated[Status, 3]


class AckMessageResponse(Form):
    status: Annotated[Status, 1]
    entries: Annotated[Sequence[AckMessageResultEntry], 2]


class ChangeInvisibleDurationRequest(Form):
    group: Annotated[Resource, 1]
    topic: Annotated[Resource, 2]
    receipt_handle: Annotated[str, 3]
    invisible_duration: Annotated[Duration, 4]
    message_id: Annotated[str, 5]
    lite_topic: Annotated[str, 6, OPTIONAL]
    suspend: Annotated[bool, 7, OPTIONAL]


class ChangeInvisibleDurationResponse(Form):
    status: Annotated[Status, 1]
    receipt_handle: Annotated[str, 2]


class ForwardMessageToDeadLetterQueueRequest(Form):
    group: Annotated[Resource, 1]
    topic: Annotated[Resource, 2]
    receipt_handle: Annotated[str, 3]
    message_id: Annotated[str, 4]
    delivery_attempt: Annotated[int, 5]
    max_delivery_attempts: Annotated[int, 6]
    lite_topic: Annotated[str, 7, OPTIONAL]


class ForwardMessageToDeadLetterQueueResponse(Form):
    status: Annotated[Status, 1]


class EndTransactionRequest(Form):
    topic: Annotated[Resource, 1]
    message_id: Annotated[str, 2]
    transaction_id: Annotated[str, 3]
    resolution: Annotated[int, 4]
    source: Annotated[int, 5]
    trace_context: Annotated[str, 6]


class EndTransactionResponse(Form):
    status: Annotated[Status, 1]


class RecallMessageRequest(Form):
    topic: Annotated[Resource, 1]
    recall_handle: Annotated[str, 2]


class RecallMessageResponse(Form):
    status: Annotated[Status, 1]
    message_id: Annotated[str, 2]


class PrintThreadStackTraceCommand(Form):
    nonce: Annotated[str, 1]


class ThreadStackTrace(Form):
    nonce: Annotated[str, 1]
    thread_stack_trace: Annotated[str, 2, OPTIONAL]


class VerifyMessageCommand(Form):
    nonce: Annotated[str, 1]
    message: Annotated[Message, 2]


class VerifyMessageResult(Form):
    nonce: Annotated[str, 1]


class RecoverOrphanedTransactionCommand(Form):
    message: Annotated[Message, 1]
    transaction_id: Annotated[str, 2]


class ReconnectEndpointsCommand(Form):
    nonce: Annotated[str, 1]


class TelemetryCommand(Form):
    status: Annotated[Status, 1, OPTIONAL]
    settings: Annotated[Settings, 2, OneOf("command")]
    thread_stack_trace: Annotated[ThreadStackTrace, 3, OneOf("command")]
    verify_message_result: Annotated[VerifyMessageResult, 4, OneOf("command")]
    recover_orphaned_transaction_command: Annotated[RecoverOrphanedTransactionCommand, 5, OneOf("command")]
    print_thread_stack_trace_command: Annotated[PrintThreadStackTraceCommand, 6, OneOf("command")]
    verify_message_command: Annotated[VerifyMessageCommand, 7, OneOf("command")]
    reconnect_endpoints_command: Annotated[ReconnectEndpointsCommand, 8, OneOf("command")]


# -- grpc.health.v1 ------------------------------------------------------------------------------------


class ServingStatus(IntEnum):
    """The health of a service, for health checks."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2


class HealthCheckRequest(Form):
    """``service``: the name of a service; empty for the server as a whole."""

    service: Annotated[str, 1]


class HealthCheckResponse(Form):
    """``status``: a :class:`ServingStatus`."""

    status: Annotated[int, 1]
