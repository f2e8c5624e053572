"""Receiving by pop: the order in which brokers are asked, the waiting, and late answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from orbitmq.client.consumer.filter_checks import FilterChecks
from orbitmq.client.consumer.leases import Lease, Leases, give_back
from orbitmq.client.consumer.membership import Membership
from orbitmq.client.consumer.notices import Notices, Place
from orbitmq.client.consumer.topic_patterns import TopicPatterns
from orbitmq.client.core.broker_calls import Filter
from orbitmq.client.core.pop_calls import PopCalls, PopOptions, Receipt
from orbitmq.client.life import ClientState
from orbitmq.errors import OrbitError, ValidationError
from orbitmq.message.model import ReceivedMessage
from orbitmq.message.settling import ACK, settle
from orbitmq.runtime.tasks import outcome

# Pause before the next try when no broker can be asked.
PAUSE_S = 0.2
# With several places (topic and broker), the next place is asked when one has not answered within this time.
PATIENCE_S = 0.2
# Shortest wait worth a request: brokers count in milliseconds.
LEAST_WAIT_S = 0.001

Popped: TypeAlias = tuple[ReceivedMessage, Receipt]


@dataclass(frozen=True, slots=True, eq=False)
class _Pop:
    """A pop that was sent.

    Attributes:
        sent_s: time of the request, in monotonic seconds: the invisible time begins then, or a little later.
        held: the request waits at the broker, so the invisible time begins when messages arrive.
    """

    place: Place
    wanted: Filter
    invisible_s: float
    renew_s: float
    sent_s: float
    held: bool
    answer: asyncio.Task[list[Popped]]


class Receiving:
    """Pops from the brokers of all subscribed topics, one place (topic and broker) after the other.

    A place that does not answer does not delay the others: after ``PATIENCE_S`` the next one is asked. The
    slow place is not asked again before it has answered; the receive call that runs at that time gets the
    answer.
    """

    def __init__(
        self,
        membership: Membership,
        pops: PopCalls,
        options: PopOptions,
        leases: Leases,
        life: ClientState,
        filters: Mapping[str, Filter],
        patterns: TopicPatterns,
        checks: FilterChecks,
    ) -> None:
        self._client = membership.client
        self._clock = membership.client.runtime.clock
        self._namespace = membership.namespace
        self._pops = pops
        self._options = options
        self._leases = leases
        self._life = life
        self._filters = filters
        self._patterns = patterns
        self._checks = checks
        self._notices = Notices(self._clock, pops, options)
        self._late: dict[_Pop, None] = {}
        self._turn = 0
        self._attempts = 0

    def forget(self, topic: str) -> None:
        """Drop the waiting requests of a topic whose subscription was changed or removed."""
        self._notices.forget(topic)

    async def close(self) -> None:
        """End all requests; messages that arrived and were not received are given back."""
        await self._notices.close()
        for pop in list(self._late):
            self._give_back(pop)
            pop.answer.cancel()
        self._late.clear()

    async def receive(
        self, max_messages: int, invisible_s: float, wait_s: float, *, renew_s: float
    ) -> list[Lease]:
        """See :meth:`SimpleConsumer.receive`; the leases of the messages are renewed for ``renew_s``."""
        self._life.check_here()
        if not (self._filters or self._patterns):
            raise ValidationError("subscribe to a topic before receiving")
        await self._checks.ended()
        deadline = self._clock.monotonic() + wait_s
        attempt = self._attempt()
        told = False
        while True:
            asked = self._clock.monotonic()
            places, failure = await self._places()
            found, failed = await self._take(places, max_messages, invisible_s, deadline, renew_s, attempt)
            failure = failed or failure
            if found:
                return found
            # without this check a client closed meanwhile would be asked in vain until the deadline
            self._life.check_here()
            told_before, told = told, False
            if len(places) > 1:
                silent = {pop.place: pop.answer for pop in self._late}
                others = [place for place in places if place not in silent]
                told = await self._notices.wait(others, deadline, attempt, beside=silent.values())
            now = self._clock.monotonic()
            if deadline - now <= PAUSE_S:
                if failure is not None:
                    raise failure
                if deadline - now < LEAST_WAIT_S:
                    return found
            # Pause before repeated requests when the places answered at once, or announced messages and then
            # had none for this member.
            idle = now - asked < PAUSE_S and (told_before or not told)
            if failure is not None or idle:
                await self._clock.sleep(min(PAUSE_S, max(0.0, deadline - now)))

    async def _take(
        self,
        places: Sequence[Place],
        max_messages: int,
        invisible_s: float,
        deadline: float,
        renew_s: float,
        attempt: str | None,
    ) -> tuple[list[Lease], OrbitError | None]:
        """The messages of late answers, else messages of each place in turn; a request to a single place
        waits there.
        """
        found, failure = self._come_late(max_messages)
        if found and attempt is not None:
            # The place would return the same messages again for this attempt id, with other receipts.
            return found, failure
        for topic, broker_name in places:
            if len(found) >= max_messages:
                break
            left_s = max(0.0, deadline - self._clock.monotonic())
            wait_s = left_s if len(places) == 1 else 0.0
            if wait_s < left_s >= LEAST_WAIT_S and (topic, broker_name) in self._notices:
                continue  # a waiting request shows when this place has messages
            wanted = self._filters.get(topic)
            if wanted is None or any(pop.place == (topic, broker_name) for pop in self._late):
                continue  # unsubscribed meanwhile, or an earlier pop of this place is not answered yet
            answer = self._pops.pop(
                self._options,
                topic,
                broker_name,
                wanted,
                max_messages=max_messages - len(found),
                invisible_ms=max(1, int(invisible_s * 1000)),
                wait_ms=int(wait_s * 1000),
                attempt_id=attempt,
            )
            now = self._clock.monotonic()
            pop = _Pop(
                (topic, broker_name),
                wanted,
                invisible_s,
                renew_s,
                now,
                wait_s > 0,
                asyncio.ensure_future(answer),
            )
            try:
                await asyncio.wait([pop.answer], timeout=None if len(places) == 1 else PATIENCE_S)
            except asyncio.CancelledError:
                give_back(found)
                # No caller waits for this pop's messages any more: give them to other members at once.
                pop.answer.add_done_callback(partial(self._give_back, pop))
                raise
            if not pop.answer.done():
                self._late[pop] = None
                continue
            leases, failed = self._result(pop)
            found += leases
            failure = failed or failure
        return found, failure

    def _come_late(self, most: int) -> tuple[list[Lease], OrbitError | None]:
        """The messages of late answers that have most of their invisible time left."""
        found: list[Lease] = []
        failure: OrbitError | None = None
        for pop in [one for one in self._late if one.answer.done()]:
            del self._late[pop]
            leases, failed = self._result(pop)
            failure = failed or failure
            in_time = self._clock.monotonic() < pop.sent_s + pop.invisible_s / 2
            room = most - len(found) if in_time and pop.place[0] in self._filters else 0
            found += leases[:room]
            give_back(leases[room:])
        return found, failure

    def _result(self, pop: _Pop) -> tuple[list[Lease], OrbitError | None]:
        error = None if pop.answer.cancelled() else pop.answer.exception()
        if isinstance(error, OrbitError):
            self._client.suspect(pop.place[0])
            return [], error
        if error is not None:
            raise error
        return self._opened(pop), None

    def _give_back(self, pop: _Pop, *_: object) -> None:
        give_back(self._opened(pop))

    def _opened(self, pop: _Pop) -> list[Lease]:
        """The messages of a pop; none if it failed or was cancelled.

        A message whose tag only shares its hash with a wanted tag is acknowledged: otherwise it would be
        delivered again without end.
        """
        # While the pop waited at the broker, the invisible time had not begun. For a pop that did not wait,
        # the time of its request is the safe, early bound.
        since_s = self._clock.monotonic() if pop.held else pop.sent_s
        found: list[Lease] = []
        for message, receipt in outcome(pop.answer) or ():
            lease = self._leases.open(message, receipt, pop.invisible_s, pop.renew_s)
            lease.expires = since_s + pop.invisible_s
            message.topic = self._namespace.short(message.topic)
            if pop.wanted.has_text_of(message):
                found.append(lease)
            else:
                settle(message, ACK)
        return found

    async def _places(self) -> tuple[list[Place], OrbitError | None]:
        """The topics and brokers to ask, in an order that rotates from call to call."""
        places: list[Place] = []
        failure: OrbitError | None = None
        for topic in list(self._filters):
            try:
                places += [(topic, name) for name in await self._pops.brokers(topic)]
            except OrbitError as error:
                failure = error
        self._turn += 1
        at = self._turn % len(places) if places else 0
        return places[at:] + places[:at], failure

    def _attempt(self) -> str | None:
        if not self._options.ordered:
            return None
        self._attempts += 1
        return f"{self._client.client_id}@{self._attempts}"
