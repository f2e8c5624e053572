"""One send: choose a queue, try, try other brokers, and report every attempt when all fail."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.core.routes import FEWER_QUEUES_CODES, STALE_CODES
from orbitmq.client.core.routing import TopicRoute
from orbitmq.client.hooks import Hooks, SendContext
from orbitmq.client.model import SendResult, SendStatus
from orbitmq.client.producer.budget import RetryBudget, retryable_code
from orbitmq.client.producer.faults import FaultTable
from orbitmq.client.producer.queue_choice import QueueChooser
from orbitmq.client.producer.request import Outgoing
from orbitmq.durations import instant
from orbitmq.errors import Attempt, NameServerError, SendError, SendErrorKind, TopicNotFoundError
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.backoff import Backoff
from orbitmq.transport.errors import (
    CredentialsError,
    RequestTimeoutError,
    TooManyRequestsError,
    TransportError,
)
from orbitmq.wire.command import Command
from orbitmq.wire.refusals import error_of, refuses_user
from orbitmq.wording import counted

CONNECT_FAILED = 10001
ACCESS_TIMED_OUT = 10002
BROKER_NOT_EXIST = 10003
NO_QUEUE = 10005

# Pause before another try on the broker that has just failed, doubled each time: a new route may arrive in
# it.
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 5.0
_STATUSES = {int(status): status for status in SendStatus}


@dataclass(frozen=True, slots=True)
class RetryOptions:
    """The time and the tries of a send; see :class:`~orbitmq.client.producer.producer.Producer`."""

    timeout_ms: int = 3000
    attempt_timeout_ms: int | None = None
    retries: int = 2
    async_retries: int = 2
    retry_codes: Collection[int] = ()
    retry_not_stored_ok: bool = False


class SendKernel:
    """Sends prepared requests of one producer.

    Args:
        faults: the table that records every attempt; None if latency fault tolerance is off.
        restores_reachable: whether a detector probes failed brokers; only then an unreachable broker is
            marked as such until a probe succeeds (FT-11).
    """

    def __init__(
        self,
        client: ClientInstance,
        options: RetryOptions,
        faults: FaultTable | None,
        *,
        restores_reachable: bool = False,
        hooks: Hooks | None = None,
        group: str = "",
    ) -> None:
        self._hooks = hooks
        self._group = group
        self._client = client
        self._options = options
        self._faults = faults
        self._restores_reachable = restores_reachable
        self._backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S, client.runtime.random)

    async def route(self, topic: str, started: float) -> TopicRoute:
        """The route for a send.

        Raises:
            SendError: no name server answers, or the topic is unknown and no broker would create it.
        """
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

    async def send(
        self,
        chooser: QueueChooser,
        out: Outgoing,
        fixed: MessageQueue | None,
        timeout_ms: int | None,
        *,
        submitted: bool = False,
    ) -> SendResult:
        """Send and wait for the answer, on another broker after a failure (SK rows).

        Args:
            fixed: the one queue to use. An awaited send then has one try, while a submitted send retries on
                this queue.
            submitted: ``async_retries`` counts in place of ``retries`` (AS-12).

        Raises:
            SendError: all tries failed; the error names every broker tried, and why it failed.
            NotPermittedError: a broker refuses this client; no other broker is tried.
            CredentialsError: the function that returns the credentials failed.
        """
        client = self._client
        options = self._options
        started = now = client.now_ms()
        route = client.route(out.topic) or await self.route(out.topic, started)
        most = 1 + (options.async_retries if submitted else options.retries if fixed is None else 0)
        timeout_ms = options.timeout_ms if timeout_ms is None else timeout_ms
        budget = RetryBudget(started + timeout_ms, most, options.attempt_timeout_ms)
        attempts: list[Attempt] = []
        tried: list[str] = []
        stored: SendResult | None = None
        while True:
            queue = fixed or chooser.choose(route, tried, now)
            if queue is None:
                if not attempts:
                    route = await self._fresh_route(route)
                    queue = chooser.choose(route, tried, now)
                if queue is None:
                    if stored is not None:
                        break
                    raise self.no_writable_queue(route, started, attempts)
            limit = budget.begin_attempt(now, alternatives=fixed is None and len(route.write_queues) > 1)
            if limit is None:
                break
            address = route.master(queue.broker_name)
            if address is not None and self._hooks is None:
                outcome = await self._exchange(out, queue, address, limit, now)
            else:
                outcome = await self._attempt(out, queue, route, limit, now)
            if isinstance(outcome, SendResult):
                if outcome.status is SendStatus.SEND_OK or not options.retry_not_stored_ok:
                    return outcome
                stored = outcome
            else:
                attempts.append(outcome.attempt)
                if not outcome.retry:
                    break
            tried.append(queue.broker_name)
            now = client.now_ms()
            if not budget.may_retry(now):
                break
            fewer = bool(attempts) and attempts[-1].code in FEWER_QUEUES_CODES
            route = await self._next_route(route, tried, budget, fixed is None and not fewer)
            now = client.now_ms()
        if stored is not None:
            return stored  # the message is stored, however later tries ended
        raise self._failed(out.topic, attempts, None, started, most=most)

    async def oneway(
        self, chooser: QueueChooser, out: Outgoing, fixed: MessageQueue | None, timeout_ms: int | None
    ) -> None:
        """Hand the request to a connection: one try, no answer (AS-10).

        Raises:
            SendError: the request could not be handed to a connection.
        """
        started = self._client.now_ms()
        route = await self.route(out.topic, started)
        target = fixed or chooser.choose(route, (), started)
        if target is None:
            raise self.no_writable_queue(route, started)
        address = route.master(target.broker_name)
        if address is None:
            attempt = _no_such_broker(target)
            raise self._failed(out.topic, [attempt], SendErrorKind.BROKER_UNREACHABLE, started)
        limit_ms = self._options.timeout_ms if timeout_ms is None else timeout_ms
        if self._hooks is None:
            await self._hand_over(out, target, address, limit_ms, started)
            return
        context = self._seen_by_hooks(self._hooks, out, target, address)
        failure: BaseException | None = None
        try:
            await self._hand_over(out, target, address, limit_ms, started)
        except BaseException as error:
            failure = error
            raise
        finally:
            context.took = (self._client.now_ms() - started) / 1000
            self._hooks.end(context, failure)

    async def _hand_over(
        self, out: Outgoing, queue: MessageQueue, address: str, limit_ms: float, started: float
    ) -> None:
        command = Command(code=out.code, ext=out.header(queue), body=out.body)
        try:
            await self._client.remoting.oneway(address, command, int(limit_ms))
        except CredentialsError:
            raise
        except TransportError as error:
            if not isinstance(error, TooManyRequestsError):
                self._client.suspect(out.topic)
            kind, code = _transport_kind(error)
            took = (self._client.now_ms() - started) / 1000
            attempt = Attempt(queue.broker_name, address, queue.queue_id, took, code, str(error))
            raise self._failed(out.topic, [attempt], kind, started) from error

    def _seen_by_hooks(self, hooks: Hooks, out: Outgoing, queue: MessageQueue, address: str) -> SendContext:
        """The context of a try for the hooks; runs their checks, which may forbid the send, and their
        ``before`` calls.
        """
        context = SendContext(
            self._group,
            queue,
            address,
            out.message_id,
            len(out.body),
            out.properties_text,
            instant(self._client.runtime.clock.now_ms()),
        )
        hooks.begin(context)
        return context

    async def _attempt(
        self, out: Outgoing, queue: MessageQueue, route: TopicRoute, limit_ms: float, begun: float
    ) -> SendResult | _Failure:
        address = route.master(queue.broker_name)
        if address is None:
            # SK-08: a fresh route may name a master; it is requested once.
            address = (await self._fresh_route(route)).master(queue.broker_name)
        if address is None:
            # FT-10, FT-11: in Java's client this is an error of its own, which isolated the broker only up to
            # 5.1.3.
            isolates = self._faults is not None and self._faults.profile.missing_master_isolates
            self._note(queue.broker_name, begun, isolation=isolates, reachable=True)
            return _Failure(_no_such_broker(queue), SendErrorKind.BROKER_UNREACHABLE, retry=True)
        if self._hooks is None:
            return await self._exchange(out, queue, address, limit_ms, begun)
        context = self._seen_by_hooks(self._hooks, out, queue, address)
        try:
            outcome = await self._exchange(out, queue, address, limit_ms, begun)
        except BaseException as error:
            # After a cancellation or an unexpected error the ``after`` hooks run, too (SK-16).
            context.took = (self._client.now_ms() - begun) / 1000
            self._hooks.end(context, error)
            raise
        context.took = (self._client.now_ms() - begun) / 1000
        if isinstance(outcome, SendResult):
            self._hooks.end(context, outcome)
        else:
            attempt = outcome.attempt
            self._hooks.end(
                context,
                SendError(outcome.kind, out.topic, str(attempt), attempts=[attempt], code=attempt.code),
            )
        return outcome

    async def _exchange(
        self, out: Outgoing, queue: MessageQueue, address: str, limit_ms: float, begun: float
    ) -> SendResult | _Failure:
        client = self._client
        command = Command(code=out.code, ext=out.header(queue), body=out.body)
        try:
            answer = await client.remoting.request(address, command, int(limit_ms) or 1)
        except asyncio.CancelledError:
            # FT-10: a cancellation does not isolate the broker; the elapsed time counts as its latency.
            self._note(queue.broker_name, begun, isolation=False, reachable=True)
            raise
        except CredentialsError:
            raise
        except TransportError as error:
            cost = client.now_ms() - begun
            kind, code = _transport_kind(error)
            ours = isinstance(error, TooManyRequestsError)
            if not ours:
                self._note(queue.broker_name, begun, isolation=True, reachable=not self._restores_reachable)
                client.suspect(out.topic)
            attempt = Attempt(queue.broker_name, address, queue.queue_id, cost / 1000, code, str(error))
            return _Failure(attempt, kind, retry=not ours)
        status = _STATUSES.get(answer.code)
        if status is not None:
            if self._faults is not None:
                self._note(queue.broker_name, begun, isolation=False, reachable=True)
            return out.result(status, queue, answer)
        if refuses_user(answer.code, answer.remark):
            # The broker is not at fault, and another broker would refuse this client, too.
            raise error_of(command, answer, address)
        cost = client.now_ms() - begun
        self._note(queue.broker_name, begun, isolation=True, reachable=False)
        if answer.code in STALE_CODES:
            client.suspect(out.topic)
        remark = answer.remark or "no remark"
        attempt = Attempt(queue.broker_name, address, queue.queue_id, cost / 1000, answer.code, remark)
        retry = retryable_code(answer.code, self._options.retry_codes) or answer.code in FEWER_QUEUES_CODES
        return _Failure(attempt, SendErrorKind.REFUSED, retry)

    def _note(self, broker_name: str, begun: float, *, isolation: bool, reachable: bool) -> None:
        """Record in the fault table an attempt that began at ``begun`` and has just ended."""
        if self._faults is not None:
            now = self._client.now_ms()
            self._faults.update(broker_name, now - begun, now, isolation=isolation, reachable=reachable)

    async def _next_route(
        self, route: TopicRoute, tried: list[str], budget: RetryBudget, others: bool
    ) -> TopicRoute:
        """The route for the next try. If every broker has failed, first wait a little for a new route.

        Args:
            others: whether the present route has a broker that was not tried yet.
        """
        if others and any(name not in tried for name in route.write_queues):
            return self._client.route(route.topic) or route
        spare = budget.remaining_ms(self._client.now_ms()) / (budget.attempts_left + 1) / 1000
        await self._client.runtime.clock.sleep(max(0.0, min(self._backoff.pause_s(len(tried)), spare)))
        return await self._fresh_route(route)

    async def _fresh_route(self, route: TopicRoute) -> TopicRoute:
        """Refresh the route, unless that was just done; keep the known one if no name server answers."""
        self._client.suspect(route.topic)
        try:
            await self._client.settled(route.topic)
        except NameServerError:
            return route
        return self._client.route(route.topic) or route

    def too_much_under_way(self, topic: str, started: float) -> SendError:
        """The error for a send whose time ended before it was admitted (AS-08)."""
        text = "too much is under way (max_in_flight, max_in_flight_bytes), nothing was sent"
        return self._failed(topic, [], SendErrorKind.TOO_MANY_REQUESTS, started, reason=text)

    # -- errors ----------------------------------------------------------------------------------------

    def no_writable_queue(
        self, route: TopicRoute, started: float, attempts: Sequence[Attempt] = ()
    ) -> SendError:
        """The error for an existing topic without a writable queue, with each broker's share of the topic."""
        self._client.suspect(route.topic)
        shares = ", ".join(
            f"{broker.broker_name}: {counted(broker.write_queues, 'queue')}, perm {broker.perm}"
            f"{'' if route.master(broker.broker_name) else ', no master'}"
            for broker in route.brokers
        )
        return self._failed(
            route.topic,
            attempts,
            SendErrorKind.NO_WRITABLE_QUEUE,
            started,
            NO_QUEUE,
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
        *,
        most: int | None = None,
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
            f"{most or 1 + self._options.retries} tries in {cost:.0f} ms: {reason or 'no time left'}"
        )
        return SendError(
            kind or SendErrorKind.TIMEOUT,
            topic,
            text,
            attempts=attempts,
            code=code,
            remark=remark,
            took=cost / 1000,
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
