"""The handler of SendMessage, which stores the messages of gRPC producers."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import lru_cache
from inspect import isawaitable
from typing import TypeAlias

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.durability import REMARKS, RESPONSE_CODES
from orbitmq.broker.messaging.sending import Origin, Sending, SendRequest, Stored
from orbitmq.gateway import schema
from orbitmq.gateway.call import Call, Reply
from orbitmq.gateway.caller import Caller, Callers
from orbitmq.gateway.clients import GrpcClients
from orbitmq.gateway.incoming import send_request
from orbitmq.gateway.messages import new, parse
from orbitmq.gateway.names import GrpcTopics
from orbitmq.gateway.schema import MessageType
from orbitmq.gateway.status import PORT_ERRORS, Code, RefusalError, of_many, of_remoting, refusal
from orbitmq.gateway.transaction_id import TransactionId
from orbitmq.gateway.unary import Unary, ok, refused, status
from orbitmq.message import reserved
from orbitmq.message.ids import parse_offset_message_id
from orbitmq.runtime.seam import Clock
from orbitmq.store import PutStatus, StoreClosedError
from orbitmq.wire.addresses import AddressError, split
from orbitmq.wire.bodies.topic import TopicConfig
from orbitmq.wire.command import PROTOCOL_VERSION
from orbitmq.wire.errors import RemotingError, WireError

_NOWHERE = ("0.0.0.0", 0)  # noqa: S104 - an empty field of a record, nothing is bound to it

# The outcome of a put: a message in the commit log, perhaps not on disk yet, or why it was refused.
Put: TypeAlias = Stored | Awaitable[Stored] | RefusalError


class SendMessage:
    """The handler of SendMessage: a single message for a known topic needs no task."""

    def __init__(self, callers: Callers, sends: GrpcSends) -> None:
        self._callers = callers
        self._sends = sends
        self._ordinary = Unary(callers, schema.SendMessageRequest, schema.SendMessageResponse, sends.send)

    async def __call__(self, call: Call) -> None:
        await self._ordinary(call)

    def begin(self, call: Call, message: bytes, reply: Reply) -> bool:
        """See :data:`~orbitmq.gateway.call.Begin`."""
        request = parse(schema.SendMessageRequest, message)
        if len(request.messages) != 1:
            return False
        try:
            return self._sends.send_one(self._callers.of(call, request), request.messages[0], reply)
        except RefusalError as error:
            answer = new(schema.SendMessageResponse, status=refused(error))
            reply(answer.SerializeToString())
            return True


class GrpcSends:
    """Stores messages of gRPC clients."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, topics: GrpcTopics, sending: Sending, clients: GrpcClients
    ) -> None:
        self._config = config
        self._clock = clock
        self._topics = topics
        self._sending = sending
        self._clients = clients

    async def send(self, caller: Caller, request: schema.SendMessageRequest) -> schema.SendMessageResponse:
        """Store messages one by one, in their order; each gets its own result."""
        messages = request.messages
        if not messages:
            raise RefusalError(Code.MESSAGE_CORRUPTED, "the request has no message")
        topics = {message.topic.name: message.topic for message in messages}
        if len(topics) > 1 and any(map(_is_half, messages)):
            shown = ", ".join(name[:128] for name in list(topics)[:2])
            raise RefusalError(
                Code.MESSAGE_CORRUPTED,
                f"a request with transactional messages has {len(topics)} topics, limit 1: {shown}",
            )
        configs: dict[str, TopicConfig | RefusalError] = {}
        for name, topic in topics.items():
            configs[name] = await self._topic(topic)
        # No await until the last message is put, so that no other sender's message comes between.
        put = [self._put(caller, message, configs[message.topic.name]) for message in messages]
        entries = [await self._entry(message, each) for message, each in zip(messages, put, strict=True)]
        return new(schema.SendMessageResponse, status=_of_all(entries), entries=entries)

    def send_one(self, caller: Caller, message: schema.Message, reply: Reply) -> bool:
        """Store a message, and reply when it is safe. False if its topic has to be awaited first."""
        topic = self._topics.known(message.topic.name)
        if topic is None or not topic.perm & self._config.broker_permission & reserved.PERM_WRITE:
            return False

        def then(stored: Stored) -> None:
            reply(_response(self._of_stored(message, stored)))

        try:
            request = self._request(caller, message, topic)
            begun = self._sending.send_then(
                Origin(host_of(caller.address), PROTOCOL_VERSION), request, then, lambda: reply(lost())
            )
        except (RefusalError, *PORT_ERRORS) as error:
            reply(_response(_of_error(error)))
            return True
        if begun and _is_half(message):
            self._clients.transacts(caller, topic.topic_name)
        return begun

    async def _topic(self, topic: schema.Resource) -> TopicConfig | RefusalError:
        try:
            config = await self._topics.existing(topic)
        except RefusalError as error:
            return error
        except PORT_ERRORS as error:
            return refusal(error)
        if not config.perm & self._config.broker_permission & reserved.PERM_WRITE:
            return RefusalError(Code.FORBIDDEN, f"topic {config.topic_name} takes no messages here")
        return config

    def _put(self, caller: Caller, message: schema.Message, topic: TopicConfig | RefusalError) -> Put:
        if isinstance(topic, RefusalError):
            return topic
        try:
            request = self._request(caller, message, topic)
            put = self._sending.send(Origin(host_of(caller.address), PROTOCOL_VERSION), request)
        except RefusalError as error:
            return error
        except PORT_ERRORS as error:
            return refusal(error)
        if _is_half(message):
            self._clients.transacts(caller, topic.topic_name)
        return put

    def _request(self, caller: Caller, message: schema.Message, topic: TopicConfig) -> SendRequest:
        config = self._config
        return send_request(
            message,
            topic,
            now_ms=self._clock.now_ms(),
            client=caller.address,
            body_limit=config.body_limit,
            max_delay_ms=config.timer_max_delay_s * 1000,
        )

    async def _entry(self, message: schema.Message, put: Put) -> schema.SendResultEntry:
        try:
            if isinstance(put, RefusalError):
                raise put
            stored = await put if isawaitable(put) else put
        except (RefusalError, *PORT_ERRORS) as error:
            return _of_error(error)
        return self._of_stored(message, stored)

    def _of_stored(self, message: schema.Message, stored: Stored) -> schema.SendResultEntry:
        if stored.status is not PutStatus.OK:
            return _of_status(stored.status)
        entry = new(
            schema.SendResultEntry,
            status=ok(),
            message_id=message.system_properties.message_id,
            offset=stored.queue_offset,
            recall_handle=stored.recall_handle or "",
        )
        if _is_half(message):
            entry.transaction_id = self._transaction(message.topic.name, stored).encode()
        return entry

    def _transaction(self, topic: str, stored: Stored) -> TransactionId:
        """The transaction that a half message begins; its producer group is its topic."""
        _, _, log_offset = parse_offset_message_id(stored.message_id)
        return TransactionId(self._config.broker_name, topic, stored.queue_offset, log_offset)


def _of_status(found: PutStatus) -> schema.SendResultEntry:
    """The entry of a message that is in the log, but not flushed or copied as the settings require."""
    text = REMARKS.get(found) or f"the message is in the log, and not safe: {found.value}"
    return new(schema.SendResultEntry, status=status(of_remoting(RESPONSE_CODES[found]), text))


def unsafe(found: PutStatus) -> bytes:
    """The answer to a request whose one message is in the log, but not flushed or copied as required."""
    return _response(_of_status(found))


def lost() -> bytes:
    """The answer to a request whose one message may be lost: whether it survives is unknown."""
    return _response(_of_error(StoreClosedError("the commit log could not be flushed")))


def _of_error(error: RefusalError | RemotingError | WireError | StoreClosedError) -> schema.SendResultEntry:
    found = error if isinstance(error, RefusalError) else refusal(error)
    return new(schema.SendResultEntry, status=refused(found))


def _response(entry: schema.SendResultEntry) -> bytes:
    """The answer to a request with one message."""
    answer = new(schema.SendMessageResponse, status=entry.status, entries=[entry])
    return answer.SerializeToString()


def _is_half(message: schema.Message) -> bool:
    return message.system_properties.message_type == MessageType.TRANSACTION


def _of_all(entries: Sequence[schema.SendResultEntry]) -> schema.Status:
    """The status of the call: that of its messages if they agree, else MULTIPLE_RESULTS."""
    code = of_many(entry.status.code for entry in entries)
    return status(code, entries[0].status.message if code != Code.MULTIPLE_RESULTS else "")


@lru_cache(4096)
def host_of(address: str) -> tuple[str, int]:
    """Host and port of a numeric address, for the record; ``_NOWHERE`` if it has none."""
    try:
        return split(address)
    except AddressError:
        return _NOWHERE
