"""The pop service for doors: pops that are answered at once or when messages arrive, and peeks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.pop.held_pops import HeldPops, Place, RetryResult
from orbitmq.broker.pop.ordered import OrderedPops
from orbitmq.broker.pop.popping import Popping
from orbitmq.broker.pop.requests import MAX_MESSAGES, Popped, PopRequest
from orbitmq.errors import OrbitError
from orbitmq.runtime.seam import Clock
from orbitmq.store import PASS_ALL, GetStatus, MessageFilter, MessageStore
from orbitmq.wire.bodies.topic import TopicConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError


class PopClient(Protocol):
    """The client behind a pop that waits. Either :meth:`answer` or :meth:`refuse` is called, once."""

    @property
    def gone(self) -> bool:
        """Whether the client has gone."""
        ...

    def answer(self, popped: Popped) -> None:
        """Give the answer: messages arrived, or the time is over."""
        ...

    def refuse(self, error: RemotingError) -> None:
        """Refuse the pop: the topic or the group was deleted, or may not be read."""
        ...

    def is_of(self, user: str) -> bool:
        """Whether this user signed the request."""
        ...

    def recheck(self) -> bool:
        """Whether the user still has the right to the pop; without it the pop is refused, and ends."""
        ...


class NoticeClient(Protocol):
    """The client behind a request that waits for messages without taking them."""

    @property
    def gone(self) -> bool: ...

    def answer(self, has_messages: bool) -> None: ...

    def is_of(self, user: str) -> bool: ...

    def recheck(self) -> bool: ...


class PopsFullError(OrbitError):
    """Too many pops already wait."""


class Pops:
    """The port of POP_MESSAGE, PEEK_MESSAGE, NOTIFICATION and POLLING_INFO."""

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        topics: TopicConfigs,
        store: MessageStore,
        popping: Popping,
        orders: OrderedPops,
        held: HeldPops,
        held_notices: HeldPops,
    ) -> None:
        self._config = config
        self._clock = clock
        self._topics = topics
        self._store = store
        self._popping = popping
        self._orders = orders
        self._held = held
        self._held_notices = held_notices

    def pop(self, request: PopRequest, wait_ms: int, client: PopClient) -> Popped | None:
        """Take messages.

        Returns:
            The answer, which may have no messages when ``wait_ms`` is 0; ``None`` when the pop waits and
            ``client`` gets the answer later.

        Raises:
            RemotingError: the request is refused.
            PopsFullError: there is no message now, and too many pops wait.
        """
        filter = self._popping.check(request)
        self._end_repeated(request)
        popped = self._popping.pop(request, filter)
        if popped.count or wait_ms <= 0:
            if popped.rest and popped.count:
                self._held.wake(_place(request))
            return popped
        waiter = _WaitingPop(self, request, filter, client)
        if not self._held.park(_place(request), waiter, self._sources(request), wait_ms):
            raise PopsFullError
        self._schedule_retry(request, waiter, popped)
        return None

    def _end_repeated(self, request: PopRequest) -> None:
        """End a waiting pop with the same attempt id, without messages: its client has given it up."""
        if not request.ordered or not request.attempt_id:
            return
        for held in self._held.at(_place(request)):
            waiter = held.waiter
            if isinstance(waiter, _WaitingPop) and waiter.request.attempt_id == request.attempt_id:
                self._held.expire(held)

    def leave(self, request: PopRequest, client: PopClient) -> None:
        """Drop a waiting pop without an answer: its client no longer waits."""
        held = self._held.find(_place(request), _WaitingPop(self, request, PASS_ALL, client))
        if held is not None:
            self._held.drop(held)

    def retry(self, waiter: _WaitingPop) -> RetryResult:
        """Let a waiting pop try again."""
        try:
            self._popping.permitted(
                waiter.request.group, waiter.request.topic, waiter.request.queue_id, "pop message"
            )
        except RemotingError as error:
            waiter.client.refuse(error)
            return RetryResult.ANSWERED_AND_MORE
        popped = self._popping.pop(waiter.request, waiter.filter)
        if not popped.count:
            self._schedule_retry(waiter.request, waiter, popped)
            return RetryResult.WAITS
        waiter.client.answer(popped)
        return RetryResult.ANSWERED_AND_MORE if popped.rest else RetryResult.ANSWERED

    def _schedule_retry(self, request: PopRequest, waiter: _WaitingPop, popped: Popped) -> None:
        """Schedule another try of a waiting pop: when a queue becomes free, or at once if messages are left
        to filter."""
        now = self._clock.now_ms()
        if popped.free_at_ms is not None:
            self._held.retry_at(_place(request), waiter, popped.free_at_ms)
        elif popped.rest and not popped.full:
            self._held.retry_at(_place(request), waiter, now)

    def _sources(self, request: PopRequest) -> Iterator[tuple[str, list[int]]]:
        config = self._topics.get(request.topic)
        if config is not None:
            yield request.topic, _queues(config, request.queue_id)
        if not request.ordered:
            # Watch also retry topics that do not exist yet: the first redelivery makes them.
            for topic in self._popping.sources.retry_names(request.topic, request.group):
                yield topic, [0]

    # -- looking without taking ------------------------------------------------------------------------

    def peek(self, group: str, topic: str, queue_id: int, max_count: int) -> Popped:
        """Messages that a pop would take, as they are stored.

        Raises:
            RemotingError: the request is refused.
        """
        config = self._popping.permitted(group, topic, queue_id, "peeking message")
        if not 1 <= max_count <= MAX_MESSAGES:
            raise RemotingError(
                ResponseCode.INVALID_PARAMETER, f"maxMsgNums {max_count}: limits 1 to {MAX_MESSAGES}"
            )
        seen = Popped(self._clock.now_ms(), 0)
        for source in (*self._popping.sources.retry_topics(topic, group), config):
            wanted_queue = queue_id if source is config else -1
            for each in _queues(source, wanted_queue):
                start = self._popping.peek_position(group, source.topic_name, each)
                high = self._store.max_offset(source.topic_name, each)
                seen.rest += max(0, high - start)
                if start < high and seen.count < max_count:
                    result = self._store.get(source.topic_name, each, start, max_count - seen.count)
                    if result.status is GetStatus.FOUND:
                        seen.body.append(result.body)
                        seen.count += result.count
        return seen

    def has_messages(
        self,
        group: str,
        topic: str,
        queue_id: int,
        *,
        ordered: bool,
        attempt_id: str | None,
        wait_ms: int,
        client: NoticeClient,
    ) -> bool | None:
        """Whether a pop would find messages; ``None`` when ``client`` gets the answer later.

        Raises:
            RemotingError: the request is refused.
            PopsFullError: there is no message now, and too many requests wait.
        """
        request = PopRequest(group, topic, queue_id, 1, 1, ordered=ordered, attempt_id=attempt_id)
        self._popping.permitted(group, topic, queue_id, "peeking message")
        if self.any_for(request):
            return True
        if wait_ms <= 0:
            return False
        waiter = _WaitingNotice(self, request, client)
        if not self._held_notices.park(_place(request), waiter, self._sources(request), wait_ms):
            raise PopsFullError
        return None

    def any_for(self, request: PopRequest) -> bool:
        """Whether there is a message that this pop may take."""
        config = self._topics.get(request.topic)
        if config is None:
            return False
        for queue_id in _queues(config, request.queue_id):
            if self._waits_in(request, config.topic_name, queue_id):
                return True
        if request.ordered:
            return False
        retries = self._popping.sources.retry_topics(request.topic, request.group)
        return any(self._waits_in(request, source.topic_name, 0) for source in retries)

    def _waits_in(self, request: PopRequest, topic: str, queue_id: int) -> bool:
        now = self._clock.now_ms()
        if request.ordered and self._orders.blocked_until(
            topic, request.group, queue_id, request.attempt_id, now
        ):
            return False
        position = self._popping.peek_position(request.group, topic, queue_id)
        return position < self._store.max_offset(topic, queue_id)

    def waiting(self, group: str, topic: str, queue_id: int) -> int:
        """How many pops of the group wait for this queue; an id below 0: for any queue.

        Raises:
            RemotingError: the request is refused.
        """
        self._popping.permitted(group, topic, queue_id, "peeking message")
        return self._held.waiting((topic, group, max(queue_id, -1)))

    def freed(self, topic: str, group: str, queue_id: int) -> None:
        """Wake the requests that wait for a queue of a group, which is no longer blocked."""
        self._held.wake_queue(topic, group, queue_id)
        self._held_notices.wake_queue(topic, group, queue_id)

    def nothing(self, request: PopRequest) -> Popped:
        """The answer to a pop that found no message."""
        return Popped(self._clock.now_ms(), 0)


def _place(request: PopRequest) -> Place:
    return request.topic, request.group, max(request.queue_id, -1)


def _queues(config: TopicConfig, queue_id: int) -> list[int]:
    return [queue_id] if queue_id >= 0 else list(range(config.read_queue_nums))


class _WaitingPop:
    """A pop that waits (see ``held_pops.PopWaiter``)."""

    __slots__ = ("_pops", "client", "filter", "request")

    def __init__(self, pops: Pops, request: PopRequest, filter: MessageFilter, client: PopClient) -> None:
        self._pops = pops
        self.request = request
        self.filter = filter
        self.client = client

    def __eq__(self, other: object) -> bool:
        """Whether both hold a request of the same client."""
        return isinstance(other, _WaitingPop) and other.client is self.client

    def __hash__(self) -> int:
        return hash(id(self.client))

    @property
    def gone(self) -> bool:
        return self.client.gone

    def is_of(self, user: str) -> bool:
        return self.client.is_of(user)

    def retry(self) -> RetryResult:
        return self._pops.retry(self)

    def expire(self) -> None:
        self.client.answer(self._pops.nothing(self.request))

    def recheck(self) -> None:
        if self.client.recheck():
            self.expire()


class _WaitingNotice:
    """A waiting request for a notice."""

    __slots__ = ("_client", "_pops", "_request")

    def __init__(self, pops: Pops, request: PopRequest, client: NoticeClient) -> None:
        self._pops = pops
        self._request = request
        self._client = client

    @property
    def gone(self) -> bool:
        return self._client.gone

    def is_of(self, user: str) -> bool:
        return self._client.is_of(user)

    def retry(self) -> RetryResult:
        if not self._pops.any_for(self._request):
            return RetryResult.WAITS
        self._client.answer(True)
        return RetryResult.ANSWERED_AND_MORE

    def expire(self) -> None:
        self._client.answer(False)

    def recheck(self) -> None:
        if self._client.recheck():
            self.expire()
