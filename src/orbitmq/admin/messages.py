"""Operations on stored messages: by id, by key, and their traces."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orbitmq.admin.answers import IncompleteError, Partial
from orbitmq.admin.arguments import checks_arguments
from orbitmq.admin.cluster_client import ClusterClient
from orbitmq.admin.model import BrokerInfo
from orbitmq.client.observe.trace_steps import TraceStep, steps
from orbitmq.durations import instant_ms
from orbitmq.errors import BrokerError, MessageNotFoundError, TopicNotFoundError, ValidationError
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.ids import parse_offset_message_id
from orbitmq.message.model import ReceivedMessage
from orbitmq.message.record import decode_record, iter_records, readable
from orbitmq.message.reserved import TRACE_TOPIC
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.client import ConsumeMessageDirectlyResult
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command

if TYPE_CHECKING:
    from datetime import datetime

MAX_TIME_MS = 2**63 - 1
# Field of the request header which says that the key is a unique id (MixAll.UNIQUE_MSG_QUERY_FLAG).
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"
# A broker waits up to 10 s for the member's answer.
CONSUME_MS = 12_000


@dataclass(frozen=True, slots=True)
class ConsumedNow:
    """The result of a message that a member handled at an operator's request.

    Attributes:
        outcome: the outcome in RocketMQ's words, such as "success", "later", "throw exception".
        remark: the member's remark.
        took: duration in seconds.
    """

    outcome: str
    remark: str
    took: float

    @property
    def succeeded(self) -> bool:
        return self.outcome in ("success", "commit")


@checks_arguments
class MessageAdmin:
    """Operations on stored messages, as ``Admin.messages``. They change no group's progress."""

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def get(self, message_id: str, *, topic: str | None = None) -> ReceivedMessage:
        """One stored message; no group's progress changes.

        Args:
            message_id: the broker's id (``SendResult.offset_message_id``), which contains the broker's
                address and the commit log offset; or with ``topic`` the sender's unique id
                (``SendResult.message_id``). Both are hexadecimal; an id without the address of a registered
                broker counts as a unique id.

        Raises:
            ValidationError: the text is no id, or is a unique id without its topic.
            MessageNotFoundError: no broker has the message.
            TopicNotFoundError: no broker has ``topic``.
            IncompleteError: a broker refuses or does not answer, and no other one has the message.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        try:
            host, port, offset = parse_offset_message_id(message_id)
        except MessageFormatError as error:
            if topic is None:
                raise ValidationError(str(error)) from error
        else:
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            # Requests go only to registered brokers: an id could name any host.
            names = {broker.address: broker.name for broker in await self._cluster.brokers()}
            if address in names:
                return await self._message_at(names[address], address, offset, message_id)
            if topic is None:
                raise ValidationError(
                    f"message id {message_id}: {address} is not the address of a broker; "
                    "a unique id needs its topic"
                )
        found = await self.by_unique_id(topic, message_id, count=1)
        if not found:
            raise MessageNotFoundError(f"no broker has a message with the unique id {message_id} in {topic}")
        return found[-1]

    async def find(
        self,
        topic: str,
        *,
        key: str,
        begin: datetime | None = None,
        end: datetime | None = None,
        max_messages: int = 64,
    ) -> Partial[Sequence[ReceivedMessage]]:
        """The messages of ``topic`` with ``key`` among their keys, the oldest first.

        The brokers search their message indexes, to which a message is added a moment after it is stored.

        Args:
            begin, end: only messages stored between these times, to the second.
            max_messages: most messages of each broker, which returns its newest ones; the broker's
                ``maxMsgsNumBatch`` (64) limits the number, too.

        Raises:
            ValidationError: a time has no time zone, the key is empty, or ``max_messages`` is below 1.
            TopicNotFoundError: no broker has ``topic``.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        if " " in key:
            raise ValidationError(f"key must be one key, without spaces, got {key!r:.80}")
        begin_ms = 0 if begin is None else instant_ms("begin", begin)
        end_ms = MAX_TIME_MS if end is None else instant_ms("end", end)
        return await self._query(
            topic, key, unique=False, begin_ms=begin_ms, end_ms=end_ms, count=max_messages
        )

    async def trace(self, message_id: str, *, trace_topic: str = TRACE_TOPIC) -> Partial[Sequence[TraceStep]]:
        """The trace of a message, as recorded by clients with message trace: its sends and deliveries, the
        oldest first.

        Clients send their traces up to a second later. The search reads the newest 64 trace messages of the
        id from each broker.

        Args:
            message_id: the sender's unique id (``SendResult.message_id``).
            trace_topic: the topic to which clients send traces.

        Raises:
            ValidationError: the id is empty or has spaces.
            MessageNotFoundError: the message has no trace.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        answer: Partial[Sequence[ReceivedMessage]] = Partial(())
        with suppress(TopicNotFoundError):
            answer = await self.find(trace_topic, key=message_id)
        texts = ((message.body.decode(errors="replace"), message.born_host) for message in answer.found)
        found = steps(texts, message_id)
        if not (found or answer.left_out):
            raise MessageNotFoundError(
                f"there is no trace of message {message_id} in {trace_topic}: clients write one with "
                "trace=True, where brokers have the topic (traceTopicEnable)"
            )
        return Partial(found, answer.left_out)

    async def consume(
        self, message_id: str, group: str, client_id: str, *, topic: str | None = None
    ) -> ConsumedNow:
        """Let one member of a group handle a stored message now, outside its queues, and return the result.
        No progress changes, and a rejected message is not delivered again.

        Args:
            message_id, topic: as for :meth:`get`.
            client_id: the member's client id, as :meth:`GroupAdmin.show` returns it.

        Raises:
            BrokerError: the member is not connected to the broker that has the message, or does not answer.
            ValidationError, MessageNotFoundError, TopicNotFoundError, IncompleteError, TransportError,
            NameServerError: as for :meth:`get`.
        """
        message = await self.get(message_id, topic=topic)
        addresses = {broker.name: broker.address for broker in await self._cluster.leaders()}
        request = headers.ConsumeMessageDirectlyRequest(
            consumer_group=group,
            client_id=client_id,
            msg_id=message.offset_message_id,
            topic=message.topic,
        )
        address = addresses.get(message.broker_name, message.store_host)
        answer = await self._cluster.ask(address, request.command(), least_ms=CONSUME_MS)
        result = ConsumeMessageDirectlyResult.decode(answer.body)
        kind = "no result" if result.consume_result is None else result.consume_result.name
        outcome = kind.removeprefix("CR_").lower().replace("_", " ")
        return ConsumedNow(outcome, result.remark or "", result.spent_time_mills / 1000)

    async def by_unique_id(self, topic: str, unique_id: str, *, count: int = 32) -> Sequence[ReceivedMessage]:
        """The messages with a unique id. One broker has all of them: if it answers, the answers of the others
        are not needed.

        Raises:
            IncompleteError: no broker that answers has the message, and another one does not answer.
        """
        answer = await self._query(topic, unique_id, unique=True, begin_ms=0, end_ms=MAX_TIME_MS, count=count)
        if answer.left_out and not answer.found:
            text = f"no broker that answers has {unique_id} in {topic}"
            raise IncompleteError(Partial(None, answer.left_out), text)
        return answer.found

    async def _message_at(self, name: str, address: str, offset: int, message_id: str) -> ReceivedMessage:
        try:
            answer = await self._cluster.ask(address, headers.ViewMessageByIdRequest(offset=offset).command())
        except BrokerError as error:
            if error.code == ResponseCode.SYSTEM_ERROR:
                raise MessageNotFoundError(f"message {message_id}: {error}") from error
            raise
        return readable(decode_record(answer.body), name)

    async def _query(
        self, topic: str, key: str, *, unique: bool, begin_ms: int, end_ms: int, count: int
    ) -> Partial[list[ReceivedMessage]]:
        """The messages of ``topic`` with a key or a unique id. One broker of each broker group is asked."""
        header = headers.QueryMessageRequest(
            topic=topic, key=key, max_num=count, begin_timestamp=begin_ms, end_timestamp=end_ms
        )

        command = header.command()
        command.ext[UNIQUE_KEY_QUERY] = str(unique).lower()

        def read(broker: BrokerInfo, answer: Command) -> list[ReceivedMessage]:
            return [readable(record, broker.name) for record in iter_records(answer.body)]

        answers = await self._cluster.ask_all(
            await self._cluster.readers(topic), command, read, without=ResponseCode.QUERY_NOT_FOUND
        )
        # The index compares only hashes, so messages with other keys may be among the answers.
        found = [
            message
            for _, messages in answers.pairs
            for message in messages
            if message.topic == topic and (message.message_id == key if unique else key in message.keys)
        ]
        return answers.partial(sorted(found, key=lambda message: message.store_timestamp_ms))
