"""The handler of ReceiveMessage, which sends the messages of a pop, each in a separate response.

A receive that waits for messages has no task; it gets one when there are messages for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from inspect import isawaitable
from itertools import chain
from typing import Final, Protocol

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.broker.pop.acknowledging import Acknowledging, MessageReceipt, Taken
from orbitmq.broker.pop.requests import MAX_MESSAGES, Popped, PopRequest
from orbitmq.broker.pop.service import Pops, PopsFullError
from orbitmq.gateway import delivered, receipts, schema
from orbitmq.gateway.call import NO_HEADERS, Call, Handler, Reply
from orbitmq.gateway.caller import Caller, Callers
from orbitmq.gateway.clients import GrpcClients, log
from orbitmq.gateway.framing import PREFIX_BYTES, prefixed
from orbitmq.gateway.held import INVISIBLE_MS, HeldMessages
from orbitmq.gateway.messages import milliseconds, new, parse, timestamp
from orbitmq.gateway.names import group_name, topic_name
from orbitmq.gateway.order import OrderWarnings
from orbitmq.gateway.plain_deliveries import PlainDeliveries
from orbitmq.gateway.quotas import CallQuotas
from orbitmq.gateway.settings import POLL_MS
from orbitmq.gateway.status import PORT_ERRORS, Code, RefusalError, refusal
from orbitmq.gateway.subscriptions import expression_of, tags_of
from orbitmq.gateway.unary import ok, refused, request_of, status
from orbitmq.message import property_names
from orbitmq.message.errors import CompressionError
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import Record, iter_records
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.seam import Clock
from orbitmq.wire import pop_info
from orbitmq.wire.errors import RemotingError

INVISIBLE_LIMITS_MS: Final = (10_000, 12 * 3600 * 1000)
# How long before a call's deadline its empty answer is sent; at most half of the call's time.
ANSWER_BEFORE_MS: Final = 1500
# The invisible time that messages are set to if they could not be written to the client.
AT_ONCE_MS: Final = 1
# The least bytes of responses that are written together.
PIECE_BYTES: Final = 64 * 1024
# Only requests whose names and expressions are together at most this long share an object.
_SHARED_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class _Receive:
    """A ReceiveMessage request in the broker's terms.

    Attributes:
        topic: an encoded ``Message`` with only the topic, as the client names it.
        renews: whether the broker renews the messages' invisible time (``auto_renew``).
        tags: the tags of the wanted messages; empty if tags do not matter.
        most_tries: after this many deliveries a message becomes a dead letter.
    """

    pop: PopRequest
    topic: bytes
    renews: bool
    tags: frozenset[str]
    most_tries: int


@dataclass(frozen=True, slots=True)
class _Taken:
    """A popped message.

    Attributes:
        tries: the number of this delivery of the message, from 1 on.
    """

    record: Record
    properties: Mapping[str, str]
    settled: MessageReceipt
    handle: str
    tries: int


@lru_cache(maxsize=1000)
def _shared(receive: _Receive) -> _Receive:
    """The shared copy of a request: receives with equal requests, such as a group's, keep one object."""
    return receive


class _Way(Protocol):
    """Sends the answer of a receive: a call without a task, or :class:`_Awaited`."""

    @property
    def gone(self) -> bool: ...

    def when_gone(self, function: Callable[[], object] | None) -> None:
        """Call this function when the call is gone; None calls nothing."""
        ...

    def reply_framed(self, data: bytes) -> None:
        """Send an answer without messages."""
        ...

    def go_on(self, handler: Handler) -> None:
        """Let a task, which runs this handler, answer with messages."""
        ...


class _Awaited:
    """Passes the answer of a receive to the call's task, which awaits ``rest``."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self.when_gone = call.when_gone
        self.rest: asyncio.Future[Handler] = asyncio.get_running_loop().create_future()

    @property
    def gone(self) -> bool:
        return self._call.gone

    def reply_framed(self, data: bytes) -> None:
        self.go_on(lambda call: call.write_framed(data))

    def go_on(self, handler: Handler) -> None:
        if not self.rest.done():  # the task was cancelled
            self.rest.set_result(handler)


class _Waiting:
    """The receive of a client that waits for its pop (see ``pop.service.PopClient``)."""

    __slots__ = ("_receives", "_way", "receive", "who")

    def __init__(self, receives: Receives, way: _Way, who: Caller, receive: _Receive) -> None:
        self._receives = receives
        self._way = way
        self.who = who
        self.receive = receive

    @property
    def gone(self) -> bool:
        return self._way.gone

    def answer(self, popped: Popped) -> None:
        self._end()
        self._receives.answer_with(self._way, self.who, self.receive, popped)

    def is_of(self, user: str) -> bool:
        """Whether the receive is a call of this user."""
        return self.who.user == user

    def recheck(self) -> bool:
        """Whether the user still has the right to the call; if not, the call ends with the refusal."""
        try:
            self._receives.recheck(self)
        except RefusalError as error:
            self._refuse(error)
            return False
        return True

    def refuse(self, error: RemotingError) -> None:
        self._refuse(refusal(error))

    def _refuse(self, error: RefusalError) -> None:
        self._end()
        self._way.reply_framed(self._receives.empty(refused(error)))

    def wait(self) -> None:
        """Drop the held pop when the call ends."""
        self._way.when_gone(self)

    def __call__(self) -> None:
        """Drop the held pop of a call that ended unanswered. A bound method would take 64 bytes more."""
        self._receives.leave(self)
        self._way.reply_framed(b"")

    def stop(self) -> None:
        """End the call without messages."""
        self._receives.leave(self)
        self.answer(self._receives.nothing(self.receive))

    def _end(self) -> None:
        self._receives.forget(self)
        self._way.when_gone(None)


class Receives:
    """Delivers messages to gRPC clients."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metadata: MetadataAccess,
        pops: Pops,
        acknowledging: Acknowledging,
        clients: GrpcClients,
        held: HeldMessages,
        callers: Callers,
        order: OrderWarnings,
        quotas: CallQuotas,
    ) -> None:
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._callers = callers
        self._order = order
        self._quotas = quotas
        self._pops = pops
        self._acknowledging = acknowledging
        self._clients = clients
        self._held = held
        self._log = LogLimiter(log)
        self._waiting: dict[_Waiting, None] = {}
        self._stopping = False
        self._plain = PlainDeliveries(delivered.PLAIN_NAMES, delivered.digest_of, delivered.host_of)
        self._head = prefixed(new(schema.ReceiveMessageResponse, status=ok()).SerializeToString())

    async def __call__(self, call: Call) -> None:
        """Handle a receive whose request is compressed, or whose stream ends later than its message."""
        request = await request_of(call, schema.ReceiveMessageRequest)
        way = _Awaited(call)
        self._receive(call, request, way)
        call.metadata = NO_HEADERS
        await (await way.rest)(call)

    def begin(self, call: Call, message: bytes, _reply: Reply) -> bool:
        """See :data:`~orbitmq.gateway.call.Begin`."""
        self._receive(call, parse(schema.ReceiveMessageRequest, message), call)
        return True

    def _receive(self, call: Call, request: schema.ReceiveMessageRequest, way: _Way) -> None:
        """Answer with a status, the messages and the time of delivery, or wait for messages."""
        try:
            who = self._callers.of(call, request)
            receive = self._read_request(request)
            if receive.renews:
                who = self._clients.known(who).shared(who)
            client = _Waiting(self, way, who, receive)
            wait_ms = 0 if self._stopping else _wait_ms(call.timeout_ms, request)
            popped = self._pops.pop(receive.pop, wait_ms, client)
        except RefusalError as error:
            way.reply_framed(self.empty(refused(error)))
        except PopsFullError:
            text = f"popPollingSize: {self._config.pop_polling_size} receives wait for this topic and group"
            way.reply_framed(self.empty(status(Code.TOO_MANY_REQUESTS, text)))
        except PORT_ERRORS as error:
            way.reply_framed(self.empty(refused(refusal(error))))
        else:
            if popped is None:
                self._waiting[client] = None
                client.wait()
            else:
                self.answer_with(way, who, receive, popped)

    def stop(self) -> None:
        """Answer the waiting calls; later calls do not wait."""
        self._stopping = True
        for client in list(self._waiting):
            client.stop()

    # -- for waiting clients ---------------------------------------------------------------------------

    def answer_with(self, way: _Way, who: Caller, receive: _Receive, popped: Popped) -> None:
        """Answer with the popped messages, or with MESSAGE_NOT_FOUND."""
        if popped.count:
            way.go_on(partial(self._deliver, who, receive, popped))
        else:
            way.reply_framed(self.empty(status(Code.MESSAGE_NOT_FOUND, "no new message")))

    def empty(self, end: schema.Status) -> bytes:
        """An answer without messages."""
        first = new(schema.ReceiveMessageResponse, status=end).SerializeToString()
        return prefixed(first) + prefixed(self._now())

    def nothing(self, receive: _Receive) -> Popped:
        """The outcome of a pop that found no message."""
        return self._pops.nothing(receive.pop)

    def recheck(self, client: _Waiting) -> None:
        """Raise RefusalError if the user of a waiting receive has lost the right to it."""
        pop = client.receive.pop
        queue = new(schema.MessageQueue, topic=new(schema.Resource, name=pop.topic))
        group = new(schema.Resource, name=pop.group)
        request = new(schema.ReceiveMessageRequest, group=group, message_queue=queue)
        self._callers.check(client.who, "ReceiveMessage", request)

    def leave(self, client: _Waiting) -> None:
        """Drop the held pop of a receive that ends before it got messages."""
        self.forget(client)
        self._pops.leave(client.receive.pop, client)

    def forget(self, client: _Waiting) -> None:
        """Remove a receive from the waiting ones."""
        self._waiting.pop(client, None)

    # -- what is wanted --------------------------------------------------------------------------------

    def _read_request(self, request: schema.ReceiveMessageRequest) -> _Receive:
        topic = request.message_queue.topic
        name, group = topic_name(topic), group_name(request.group)
        if request.batch_size < 1:
            raise RefusalError(
                Code.BAD_REQUEST, f"batch_size {request.batch_size}, limits 1 to {MAX_MESSAGES}"
            )
        config = self._metadata.group(group)
        self._order.look(config, name)
        expression, kind = expression_of(request.filter_expression)
        pop = PopRequest(
            group,
            name,
            -1,
            min(request.batch_size, MAX_MESSAGES),
            _invisible_ms(request),
            from_newest=True,
            expression=expression,
            expression_type=kind,
            ordered=config.consume_message_orderly,
            # Only FIFO groups use the attempt id; in other groups it would make equal requests differ.
            attempt_id=(request.attempt_id or None) if config.consume_message_orderly else None,
        )
        receive = _Receive(
            pop,
            new(schema.Message, topic=topic).SerializeToString(),
            request.auto_renew,
            tags_of(expression, kind),
            max(1, config.retry_max_times + 1),
        )
        alike = pop.attempt_id is None and len(receive.topic) + len(expression) <= _SHARED_BYTES
        return _shared(receive) if alike else receive

    # -- taking ----------------------------------------------------------------------------------------

    async def _taken(self, who: Caller, receive: _Receive, popped: Popped) -> list[_Taken]:
        """The popped messages that match the filter; the others are acknowledged."""
        pop, broker = receive.pop, self._config.broker_name
        found = []
        for record in chain.from_iterable(map(iter_records, popped.body)):
            properties = decode_properties(record.properties)
            handle = receipts.of_record(record, properties, popped, pop.invisible_ms, broker)
            settled = handle.settled(pop.topic, pop.group)
            tries = _tries(record, popped, handle)
            if receive.tags and properties.get(property_names.TAGS) not in receive.tags:
                # The consume queue's filter let it pass: another tag with the same hash.
                await self._end(partial(self._acknowledging.acknowledge, settled))
            elif tries > receive.most_tries:
                await self._give_up(who, settled, f"delivered {tries} times, limit {receive.most_tries}")
            else:
                found.append(_Taken(record, properties, settled, handle.encode(), tries))
        return found

    async def _content(self, who: Caller, receive: _Receive, taken: _Taken) -> schema.Message | None:
        """The message for the client; None for a body that cannot be decompressed: a dead letter then."""
        try:
            body = delivered.body_of(taken.record)
        except CompressionError as error:
            await self._give_up(who, taken.settled, str(error))
            return None
        topic = parse(schema.Message, receive.topic).topic
        return delivered.message_of(taken.record, taken.properties, body, topic, taken.handle, taken.tries)

    async def _give_up(self, who: Caller, settled: MessageReceipt, reason: str) -> None:
        self._log.write(
            logging.WARNING,
            "given up",
            "message %d of %s@%d is a dead letter of group %s: %s",
            settled.offset, settled.topic, settled.queue_id, settled.group, reason,
        )  # fmt: skip
        await self._end(partial(self._acknowledging.give_up, settled, reason, who.client_id))

    async def _end(self, end: Callable[[], Awaitable[object] | object]) -> None:
        """End a delivery by this function; if that fails, the message is redelivered after its time."""
        try:
            outcome = end()
            if isawaitable(outcome):
                await outcome
        except PORT_ERRORS as error:
            self._log.write(logging.WARNING, "end", "a message comes again when its time is over: %s", error)

    # -- writing ---------------------------------------------------------------------------------------

    async def _deliver(self, who: Caller, receive: _Receive, popped: Popped, call: Call) -> None:
        """Write the messages to the client; messages that cannot be written become visible at once."""
        responses = self._responses(receive, popped)
        if responses:
            await self._deliver_plain(call, who, receive, popped, responses)
            return
        messages = await self._taken(who, receive, popped)
        if not messages:
            await call.write_framed(self.empty(status(Code.MESSAGE_NOT_FOUND, "no new message")))
            return
        if receive.renews:
            self._keep(call, who, receive.pop, popped)
        written = 0
        try:
            await call.write(new(schema.ReceiveMessageResponse, status=ok()).SerializeToString())
            for message in messages:
                content = await self._content(who, receive, message)
                if content is not None:
                    data = new(schema.ReceiveMessageResponse, message=content).SerializeToString()
                    self._quotas.delivered(call, who, receive.pop.topic, len(data))
                    await call.write(data)
                written += 1
            await call.write(self._now())
        finally:
            for message in messages[written:]:
                await self._end(partial(self._acknowledging.change, message.settled, AT_ONCE_MS))

    def _responses(self, receive: _Receive, popped: Popped) -> list[bytes] | None:
        """The framed responses for the messages of a pop; None if one of the messages is unusual."""
        pop, broker = receive.pop, self._config.broker_name
        if pop.ordered or popped.order_counts:
            return None
        heads: dict[int, bytes] = {}
        for (kind, queue), start in popped.starts.items():
            if kind != pop_info.NORMAL:
                return None
            receipt = (start, popped.pop_time_ms, pop.invisible_ms, popped.revive_queue, kind, broker, queue)
            heads[int(queue)] = "".join(f"{word} " for word in receipt).encode()
        tags = frozenset(tag.encode() for tag in receive.tags)
        return self._plain.responses(popped.body, pop.topic.encode(), receive.topic, tags, heads)

    async def _deliver_plain(
        self, call: Call, who: Caller, receive: _Receive, popped: Popped, responses: list[bytes]
    ) -> None:
        """Write responses, several at a time; messages that cannot be written become visible at once."""
        if receive.renews:
            self._keep(call, who, receive.pop, popped)
        out, size, written = [self._head], 0, 0
        try:
            for number, response in enumerate(responses, start=1):
                self._quotas.delivered(call, who, receive.pop.topic, len(response) - PREFIX_BYTES)
                out.append(response)
                size += len(response)
                last = number == len(responses)
                if last:
                    out.append(prefixed(self._now()))
                if last or size >= PIECE_BYTES:
                    await call.write_framed(b"".join(out))
                    out, size, written = [], 0, number
        finally:
            if written < len(responses):
                for message in (await self._taken(who, receive, popped))[written:]:
                    await self._end(partial(self._acknowledging.change, message.settled, AT_ONCE_MS))

    def _keep(self, call: Call, who: Caller, pop: PopRequest, popped: Popped) -> None:
        """Have messages renewed while their client lives; messages lost on their way are redelivered."""
        try:
            self._clients.known(who)
        except RefusalError:
            return
        several = []
        for (kind, queue), start in popped.starts.items():
            topic = pop_info.retry_topic(pop.topic, pop.group, kind)
            taken = Taken(topic, pop.group, int(queue), start, popped.pop_time_ms, in_order=pop.ordered)
            self._held.keep(who.client_id, taken)
            several.append(taken)
        call.watch(partial(self._held.deliveries_ended, who.client_id, several))

    def _now(self) -> bytes:
        now = timestamp(self._clock.now_ms())
        return new(schema.ReceiveMessageResponse, delivery_timestamp=now).SerializeToString()


def _invisible_ms(request: schema.ReceiveMessageRequest) -> int:
    if request.auto_renew:
        return INVISIBLE_MS
    asked = milliseconds(request.invisible_duration)
    low, high = INVISIBLE_LIMITS_MS
    if not low <= asked <= high:
        # The text begins with that of Apache's proxy, for which users search.
        text = f"the invisibleTime is too {'small' if asked < low else 'large'}"
        text += f": invisible_duration {asked} ms, limits {low} to {high} ms"
        raise RefusalError(Code.ILLEGAL_INVISIBLE_TIME, text)
    return asked


def _wait_ms(timeout_ms: int | None, request: schema.ReceiveMessageRequest) -> int:
    """How long a call waits for messages: its long_polling_timeout, and not beyond its deadline."""
    asked = milliseconds(request.long_polling_timeout) if request.HasField("long_polling_timeout") else None
    if timeout_ms is None:
        return POLL_MS if asked is None else max(0, asked)
    most = timeout_ms - min(ANSWER_BEFORE_MS, timeout_ms // 2)
    return max(0, most if asked is None else min(asked, most))


def _tries(record: Record, popped: Popped, handle: receipts.Handle) -> int:
    """The number of this delivery of a message; for an orderly group the broker counts, not the record."""
    count = record.reconsume_times
    kind = handle.info.retry
    of_message = (kind, pop_info.order_count_key(record.queue_id, record.queue_offset))
    of_queue = popped.order_counts.get((kind, str(record.queue_id)), 0)
    return max(count, popped.order_counts.get(of_message, of_queue)) + 1
