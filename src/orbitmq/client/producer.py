"""The producer: choose a queue, send, and try another broker when that fails."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from orbitmq.client.budget import RetryBudget, retryable_code
from orbitmq.client.chooser import QueueChooser, Selector, by_hash
from orbitmq.client.faults import PROFILES, FaultItem, FaultTable
from orbitmq.client.instance import DEFAULT_TOPIC_QUEUES, ClientInstance
from orbitmq.client.model import SendResult, SendStatus
from orbitmq.client.outgoing import Compression, Outgoing, OutgoingFactory
from orbitmq.client.route_cache import STALE_CODES
from orbitmq.client.routing import TopicRoute
from orbitmq.client.validation import (
    MAX_MESSAGE_BYTES,
    check_batch,
    check_group,
    check_message,
    check_send_topic,
)
from orbitmq.errors import (
    Attempt,
    ClientStateError,
    NameServerError,
    SendError,
    SendErrorKind,
    TopicNotFoundError,
    ValidationError,
)
from orbitmq.message.model import Message, MessageQueue
from orbitmq.message.sysflag import CompressionType
from orbitmq.runtime.seam import Runtime
from orbitmq.runtime.system import system_runtime
from orbitmq.transport.errors import (
    RequestTimeoutError,
    TooManyRequestsError,
    TransportError,
)
from orbitmq.wire.command import Command

CONNECT_FAILED = 10001
ACCESS_TIMED_OUT = 10002
BROKER_NOT_EXIST = 10003

# A try on the broker that has just failed waits this long, doubled each time: the new route may come.
_SAME_BROKER_PAUSE_MS = 50.0
_STATUSES = {int(status): status for status in SendStatus}


@dataclass(slots=True)
class _Topic:
    """What the producer keeps per topic it sends to."""

    chooser: QueueChooser


@dataclass(frozen=True, slots=True)
class ProducerOptions:
    """How a :class:`Producer` sends; see there."""

    timeout_ms: int = 3000
    attempt_timeout_ms: int | None = None
    retries: int = 2
    retry_codes: Collection[int] = ()
    retry_not_stored_ok: bool = False
    max_message_bytes: int = MAX_MESSAGE_BYTES


class Producer:
    """Sends messages. Safe for any number of tasks of one event loop at the same time.

    ::

        async with Producer("orders", name_servers="127.0.0.1:9876") as producer:
            result = await producer.send(Message("topic", b"body", tags="new", keys="4711"))

    Args:
        group: the producer group, 1 to 120 characters.
        name_servers: ``host:port;host:port``.
        timeout_ms: for a whole send, all tries together.
        attempt_timeout_ms: upper limit of one try while others remain. Without it a try gets an equal
            share of the time left, so that a frozen broker never uses up the time of the others.
        retries: further tries after a failed one, each on another broker when there is one.
        retry_codes: response codes to retry beside RocketMQ's own list.
        retry_not_stored_ok: try another broker when the status is not SEND_OK. The message is then stored
            more than once.
        max_message_bytes: larger bodies are refused here.
        compress_from_bytes: bodies from this size on are compressed.
        compression: zlib, LZ4 or ZSTD; the last two need ``orbitmq[compression]`` and 5.x consumers.
        compression_level: of zlib or ZSTD.
        send_latency_fault_enable: avoid brokers that were slow or failed, for a while.
        fault_profile: how long: ``4.x`` (30 s to 600 s) or ``5.x`` (2 s to 30 s).
        default_topic_queues: queues of a topic that the first message creates.
        client: share the connections of another client instead of opening own ones.
        runtime: the machine; the real one by default.
    """

    def __init__(
        self,
        group: str,
        *,
        name_servers: str = "127.0.0.1:9876",
        timeout_ms: int = 3000,
        attempt_timeout_ms: int | None = None,
        retries: int = 2,
        retry_codes: Collection[int] = (),
        retry_not_stored_ok: bool = False,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        compress_from_bytes: int = 4096,
        compression: CompressionType = CompressionType.ZLIB,
        compression_level: int = 5,
        send_latency_fault_enable: bool = False,
        fault_profile: str = "4.x",
        default_topic_queues: int = DEFAULT_TOPIC_QUEUES,
        client: ClientInstance | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        check_group(group)
        if fault_profile not in PROFILES:
            raise ValidationError(f"fault_profile must be one of {sorted(PROFILES)}, got {fault_profile!r}")
        self.group = group
        self._options = ProducerOptions(
            timeout_ms,
            attempt_timeout_ms,
            retries,
            frozenset(retry_codes),
            retry_not_stored_ok,
            max_message_bytes,
        )
        if client is None:
            client = ClientInstance(
                runtime or system_runtime(), name_servers, default_topic_queues=default_topic_queues
            )
        self._client = client
        self._random = client.runtime.random
        self._faults = FaultTable(PROFILES[fault_profile], self._random)
        self._fault_enabled = send_latency_fault_enable
        self._outgoing = OutgoingFactory(
            group,
            client.runtime,
            default_queues=default_topic_queues,
            compression=Compression(compress_from_bytes, compression, compression_level),
            max_message_bytes=max_message_bytes,
        )
        self._topics: dict[str, _Topic] = {}
        self._running = False

    # -- life ------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Start the background work. Nothing is connected before the first send."""
        if self._running:
            raise ClientStateError(f"producer {self.group!r} is started already")
        await self._client.start()
        self._client.register_producer(self.group)
        self._running = True

    async def close(self) -> None:
        """Unregister from the brokers and close the connections. Sends that wait fail."""
        if not self._running:
            return
        self._running = False
        await self._client.unregister_producer(self.group)
        await self._client.close()

    # -- sending ---------------------------------------------------------------------------------------

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        ordering_key: object | None = None,
        selector: Selector | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send one message and wait until the broker has stored it.

        Args:
            queue: send to this queue; there is no second try then.
            ordering_key: send to the queue that this key hashes to, so that messages of one key stay in
                order; there is no second try then. The key travels as ``__SHARDINGKEY``.
            selector: ``selector(queues, message, ordering_key)`` chooses the queue instead of the hash.
            timeout_ms: for this send instead of the producer's.

        Raises:
            ValidationError: the message is not one that a broker would take.
            SendError: it was not sent, or nobody knows (kind TIMEOUT); says who was tried and why it failed.
            ClientStateError: the producer is not running.
        """
        topic = self._check(message)
        out = self._outgoing.small(message, ordering_key) or await self._outgoing.large(message, ordering_key)
        if queue is not None or ordering_key is not None or selector is not None:
            chosen = await self._chosen_queue(message, queue, ordering_key, selector)
            return await self._send(topic, out, chosen, timeout_ms)
        return await self._send(topic, out, None, timeout_ms)

    async def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout_ms: int | None = None
    ) -> SendResult:
        """Send messages of one topic in one request; they are stored next to each other in one queue.

        Raises:
            ValidationError: mixed topics or WAIT flags, delayed messages, or too large together.
            SendError, ClientStateError: as :meth:`send`.
        """
        check_batch(messages, self._options.max_message_bytes)
        topic = self._check(messages[0])
        out = self._outgoing.batch(messages)
        return await self._send(topic, out, queue, timeout_ms)

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        ordering_key: object | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Send without waiting for an answer: one try, and the broker may drop it without a word (AS-10).

        Raises:
            SendError: it could not even be handed to a connection.
            ValidationError, ClientStateError: as :meth:`send`.
        """
        topic = self._check(message)
        out = self._outgoing.small(message, ordering_key) or await self._outgoing.large(message, ordering_key)
        started = self._client.now_ms()
        route = await self._route(out.topic, started)
        if queue is None and ordering_key is not None:
            queue = await self._chosen_queue(message, None, ordering_key, None)
        target = queue or topic.chooser.choose(route, (), started)
        if target is None:
            raise self._no_writable_queue(route, started)
        address = route.master(target.broker_name)
        if address is None:
            attempt = _no_such_broker(target)
            raise self._failed(out.topic, [attempt], SendErrorKind.BROKER_UNREACHABLE, started)
        command = Command(code=out.code, ext=out.header(target), body=out.body)
        try:
            await self._client.remoting.oneway(address, command, timeout_ms or self._options.timeout_ms)
        except TransportError as error:
            if not isinstance(error, TooManyRequestsError):
                self._client.suspect(out.topic)
            kind, code = _transport_kind(error)
            attempt = Attempt(
                target.broker_name,
                address,
                target.queue_id,
                self._client.now_ms() - started,
                code,
                str(error),
            )
            raise self._failed(out.topic, [attempt], kind, started) from error

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of ``topic`` that can be written to now.

        Raises:
            SendError: no name server, or the topic is unknown and nobody would create it.
        """
        check_send_topic(topic)
        return list((await self._route(topic, self._client.now_ms())).publish)

    def fault_table(self) -> list[FaultItem]:
        """What is held against which broker now; empty while latency fault tolerance is off."""
        return self._faults.snapshot()

    # -- the way of one send ---------------------------------------------------------------------------

    def _check(self, message: Message) -> _Topic:
        if not self._running:
            raise ClientStateError(f"producer {self.group!r} is not running; use 'async with' or start()")
        check_message(message, self._options.max_message_bytes)
        topic = self._topics.get(message.topic)
        if topic is None:
            check_send_topic(message.topic)
            chooser = QueueChooser(self._random, self._faults if self._fault_enabled else None)
            topic = self._topics[message.topic] = _Topic(chooser)
        return topic

    async def _route(self, topic: str, started: float) -> TopicRoute:
        route = self._client.route(topic)
        if route is not None:
            return route
        try:
            return await self._client.find_route(topic, for_send=True, timeout_ms=self._options.timeout_ms)
        except NameServerError as error:
            raise self._failed(
                topic, [], SendErrorKind.NO_NAME_SERVER, started, error.code, str(error)
            ) from error
        except TopicNotFoundError as error:
            raise self._failed(
                topic, [], SendErrorKind.TOPIC_UNKNOWN, started, error.code, str(error)
            ) from error

    async def _chosen_queue(
        self, message: Message, queue: MessageQueue | None, key: object | None, selector: Selector | None
    ) -> MessageQueue:
        started = self._client.now_ms()
        route = await self._route(message.topic, started)
        if queue is None:
            if not route.publish:
                raise self._no_writable_queue(route, started)
            queue = (selector or by_hash)(route.publish, message, key)
        if not isinstance(queue, MessageQueue) or queue.topic != message.topic:
            raise ValidationError(f"{queue!r} is not a queue of topic {message.topic!r}")
        return queue

    async def _send(
        self, topic: _Topic, out: Outgoing, fixed: MessageQueue | None, timeout_ms: int | None
    ) -> SendResult:
        client = self._client
        options = self._options
        started = now = client.now_ms()
        route = client.route(out.topic) or await self._route(out.topic, started)
        budget = RetryBudget(
            started,
            options.timeout_ms if timeout_ms is None else timeout_ms,
            1 if fixed is not None else 1 + options.retries,
            options.attempt_timeout_ms,
        )
        attempts: list[Attempt] = []
        tried: list[str] = []
        while True:
            queue = fixed or topic.chooser.choose(route, tried, now)
            if queue is None:
                if not attempts:
                    route = await self._fresh_route(route)
                    queue = topic.chooser.choose(route, tried, now)
                if queue is None:
                    raise self._no_writable_queue(route, started, attempts)
            limit = budget.begin_attempt(now, alternatives=len(route.write_queues) > 1)
            if limit is None:
                break
            outcome = await self._attempt(out, queue, route, limit, now)
            if isinstance(outcome, SendResult):
                if outcome.status is SendStatus.SEND_OK or not options.retry_not_stored_ok:
                    return outcome
                if not budget.may_retry(client.now_ms()):
                    return outcome
            else:
                attempts.append(outcome.attempt)
                if not outcome.retry:
                    break
            tried.append(queue.broker_name)
            now = client.now_ms()
            if not budget.may_retry(now):
                break
            route = await self._next_route(route, tried, budget)
            now = client.now_ms()
        raise self._failed(out.topic, attempts, None, started)

    async def _attempt(
        self, out: Outgoing, queue: MessageQueue, route: TopicRoute, limit_ms: float, begun: float
    ) -> SendResult | _Failure:
        client = self._client
        address = route.master(queue.broker_name)
        if address is None:
            client.suspect(out.topic)
            return _Failure(_no_such_broker(queue), SendErrorKind.BROKER_UNREACHABLE, retry=True)
        command = Command(code=out.code, ext=out.header(queue), body=out.body)
        try:
            answer = await client.remoting.request(address, command, int(limit_ms) or 1)
        except TransportError as error:
            cost = client.now_ms() - begun
            kind, code = _transport_kind(error)
            ours = isinstance(error, TooManyRequestsError)
            if not ours:
                self._note(queue.broker_name, cost, isolation=True, reachable=False)
                client.suspect(out.topic)
            attempt = Attempt(queue.broker_name, address, queue.queue_id, cost, code, str(error))
            return _Failure(attempt, kind, retry=not ours)
        cost = client.now_ms() - begun
        status = _STATUSES.get(answer.code)
        if status is not None:
            self._note(queue.broker_name, cost, isolation=False, reachable=True)
            return out.result(status, queue, answer)
        self._note(queue.broker_name, cost, isolation=True, reachable=False)
        if answer.code in STALE_CODES:
            client.suspect(out.topic)
        remark = answer.remark or "no remark"
        attempt = Attempt(queue.broker_name, address, queue.queue_id, cost, answer.code, remark)
        retry = retryable_code(answer.code, self._options.retry_codes)
        return _Failure(attempt, SendErrorKind.REFUSED, retry)

    def _note(self, broker_name: str, cost_ms: float, *, isolation: bool, reachable: bool) -> None:
        if self._fault_enabled:
            self._faults.update(
                broker_name, cost_ms, self._client.now_ms(), isolation=isolation, reachable=reachable
            )

    async def _next_route(self, route: TopicRoute, tried: list[str], budget: RetryBudget) -> TopicRoute:
        """The route for the next try. When every broker has failed, wait a little for a better one."""
        if any(name not in tried for name in route.write_queues):
            return self._client.route(route.topic) or route
        pause = _SAME_BROKER_PAUSE_MS * 2 ** (len(tried) - 1)
        spare = budget.remaining_ms(self._client.now_ms()) / (budget.attempts_left + 1)
        await self._client.runtime.clock.sleep(max(0.0, min(pause, spare)) / 1000)
        return await self._fresh_route(route)

    async def _fresh_route(self, route: TopicRoute) -> TopicRoute:
        """Ask now, unless someone just did; keep what is known when the name servers are silent."""
        self._client.suspect(route.topic)
        try:
            await self._client.settled(route.topic)
        except NameServerError:
            return route
        return self._client.route(route.topic) or route

    # -- errors ----------------------------------------------------------------------------------------

    def _no_writable_queue(
        self, route: TopicRoute, started: float, attempts: Sequence[Attempt] = ()
    ) -> SendError:
        self._client.suspect(route.topic)
        shares = ", ".join(
            f"{broker.broker_name}: {broker.write_queues} queues, perm {broker.perm}"
            f"{'' if route.master(broker.broker_name) else ', no master'}"
            for broker in route.brokers
        )
        return self._failed(
            route.topic,
            attempts,
            SendErrorKind.NO_WRITABLE_QUEUE,
            started,
            10005,
            f"topic {route.topic!r} has no writable queue ({shares or 'no broker'})",
        )

    def _failed(
        self,
        topic: str,
        attempts: Sequence[Attempt],
        kind: SendErrorKind | None,
        started: float,
        code: int = -1,
        reason: str = "",
    ) -> SendError:
        """The final error; without ``kind`` the last attempt decides (SK-07)."""
        cost = self._client.now_ms() - started
        remark = ""
        if attempts:
            last = attempts[-1]
            code = last.code if code == -1 else code
            kind = kind or _KINDS.get(last.code, SendErrorKind.REFUSED)
            remark = last.cause if kind is SendErrorKind.REFUSED else ""
            tries = "; ".join(str(attempt) for attempt in attempts)
            reason = f"{reason}; {tries}" if reason else tries
        text = (
            f"sending to topic {topic!r} failed after {len(attempts)} of at most "
            f"{1 + self._options.retries} tries in {cost:.0f} ms: {reason or 'no time left'}"
        )
        return SendError(
            kind or SendErrorKind.TIMEOUT,
            topic,
            text,
            attempts=attempts,
            code=code,
            remark=remark,
            cost_ms=cost,
        )


@dataclass(frozen=True, slots=True)
class _Failure:
    attempt: Attempt
    kind: SendErrorKind
    retry: bool


_TOO_MANY = -1000
_KINDS = {
    CONNECT_FAILED: SendErrorKind.BROKER_UNREACHABLE,
    ACCESS_TIMED_OUT: SendErrorKind.TIMEOUT,
    BROKER_NOT_EXIST: SendErrorKind.BROKER_UNREACHABLE,
    _TOO_MANY: SendErrorKind.TOO_MANY_REQUESTS,
}


def _transport_kind(error: TransportError) -> tuple[SendErrorKind, int]:
    if isinstance(error, RequestTimeoutError):
        return SendErrorKind.TIMEOUT, ACCESS_TIMED_OUT
    if isinstance(error, TooManyRequestsError):
        return SendErrorKind.TOO_MANY_REQUESTS, _TOO_MANY
    return SendErrorKind.BROKER_UNREACHABLE, CONNECT_FAILED


def _no_such_broker(queue: MessageQueue) -> Attempt:
    return Attempt(
        queue.broker_name,
        "",
        queue.queue_id,
        0.0,
        BROKER_NOT_EXIST,
        f"the route names no master of broker {queue.broker_name!r}",
    )
