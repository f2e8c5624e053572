"""The consumer that receives messages by single requests; the broker tracks messages in flight (pop)."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence

from orbitmq.client.consumer.admin_requests import PopMember
from orbitmq.client.consumer.filter_checks import Checked, FilterChecks
from orbitmq.client.consumer.handling import (
    Call,
    Handler,
    UserCode,
    calls_ended,
    handle_leased,
    runs_already,
)
from orbitmq.client.consumer.leases import RENEW_EVERY_S, Lease, Leases, give_back
from orbitmq.client.consumer.membership import Membership
from orbitmq.client.consumer.options import SimpleOptions
from orbitmq.client.consumer.receiving import PAUSE_S, Receiving
from orbitmq.client.consumer.shutdown import closing_on_signals
from orbitmq.client.consumer.topic_patterns import LOOK_EVERY_S, TopicPatterns
from orbitmq.client.core.broker_calls import Filter
from orbitmq.client.core.pop_calls import PopCalls, PopOptions
from orbitmq.client.keywords import takes
from orbitmq.client.life import AsyncContext, ClientState
from orbitmq.client.model import ConsumeFrom
from orbitmq.client.ranges import check_number
from orbitmq.client.validation import check_received
from orbitmq.durations import Duration, as_seconds
from orbitmq.errors import ClientStateError, OrbitError, ValidationError
from orbitmq.message.model import ReceivedMessage
from orbitmq.message.settling import ACK, Ending, Settled, Verdict, is_open, retry_verdict, settle
from orbitmq.parameters import refuses_unknown
from orbitmq.runtime.line import Line
from orbitmq.runtime.tasks import Background, every, failed_itself, outcome

log = logging.getLogger("orbitmq.client")

# How long a request waits at a broker for messages when the caller names no time.
WAIT_S = 15.0


@refuses_unknown
class SimpleConsumer(AsyncContext):
    """Receives messages by explicit requests. The broker divides the messages among the members, without a
    rebalance.

    A received message is invisible to the other members of the group for ``invisible_for``. If it is
    acknowledged in that time, it is done; otherwise it is delivered again, to any member, and after too many
    deliveries becomes a dead letter::

        async with SimpleConsumer("billing", name_servers="127.0.0.1:9876") as consumer:
            consumer.subscribe("orders", tags="new || paid")
            for message in await consumer.receive(16, invisible_for=30):
                ...
                await consumer.ack(message)

    or message by message; requesting the next message acknowledges the previous one, and the invisible time
    is renewed while the loop works on a message::

            async for message in consumer:
                ...

    A message can also be settled by itself, from any thread: ``message.ack()``, ``message.retry(delay=30)``,
    ``message.reject()``, ``async with message.process()``. Such a call returns at once; the request to the
    broker is sent together with those of other messages.

    Needs brokers of RocketMQ 5 or OrbitMQ.

    Args:
        group: the consumer group. Do not use the group of a :class:`Consumer` that pulls.
        name_servers: ``host:port;host:port``, an address server's URL (``http://host:8080/rocketmq/nsaddr``)
            or ``dns://name:port``. Default: the value of ``NAMESRV_ADDR``, else ``127.0.0.1:9876``.
        client_id: the name by which brokers know this client; each member of a group needs its own. Made
            of host, process and a random number by default.
        consume_from: LAST or FIRST: where a group that is new at a broker begins.
        invisible_for: seconds, or a timedelta: how long a received message is invisible to other members,
            0.001 s to 3 days.
        ordered: each queue in order: the broker gives out no message of a queue before the earlier ones are
            done.
        concurrency: handler calls at a time in :meth:`run`, and the threads that plain handlers have.
        batch_size: messages per request in :meth:`run` and iteration, 1 to 32.
        renew_for: how long the invisible time of one message is renewed in :meth:`run` and iteration.
        close_timeout: how long :meth:`close` waits for running handler calls, and then for acknowledgements
            that are on their way.
        namespace: topics and the group are meant inside this namespace.
        namespace_v2: sent along with every request, for servers that tell tenants apart by it.
        credentials: ``Credentials(access_key, secret_key)`` that every request is signed with, or a function
            that is called for each request and returns them.
        tls: ``Tls(ca=, cert=, key=)`` for servers that speak TLS; without it connections are plain TCP.
        client: share the connections of another client instance.
        runtime: the machine; the real one by default.
    """

    @takes(SimpleOptions)
    def __init__(self, settings: SimpleOptions) -> None:
        self._settings = settings
        self._membership = membership = Membership(settings.group, settings)
        self.group = group = membership.group
        self._client = membership.client
        self._clock = self._client.runtime.clock
        self._filters: dict[str, Filter] = {}
        self._filter_checks = FilterChecks(membership)
        self._patterns = TopicPatterns(
            membership, self._filters.keys(), lambda topic, tags, sql: self.subscribe(topic, tags, sql=sql)
        )
        self._background = Background(f"consumer {group}")
        self._life = ClientState(f"consumer {group!r}")
        pops = PopCalls(self._client, membership.calls)
        self._leases = Leases(self._client, membership.calls, pops, group, self._background)
        asked = PopOptions(group, settings.consume_from is ConsumeFrom.LAST, settings.ordered)
        self._asking = Receiving(
            membership,
            pops,
            asked,
            self._leases,
            self._life,
            self._filters,
            self._patterns,
            self._filter_checks,
        )
        self._user_code = UserCode(self._client.runtime.threads, settings.concurrency)
        # Whether `run` is in progress.
        self._serving = False
        # Tasks of `run` and of the user's loops: those that wait for messages, and those that handle them.
        self._receiving: dict[asyncio.Task[list[Lease]], None] = {}
        self._handling: dict[asyncio.Task[None], None] = {}

    # -- life ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Register the consumer at the brokers. Subscriptions may be made before or after.

        Raises:
            ClientStateError: the consumer was started before or was closed meanwhile, or the client has a
                consumer of the group already.
            BrokerError: a broker cannot filter by the SQL92 expression of a subscription.
        """
        with self._life.starting():
            self._client.register_consumer(self.group, PopMember(self._membership, self._filters))
        self._leases.begin()
        await self._client.start()
        try:
            await self._filter_checks.check_all(self._filters)
            self._life.check_here()  # raises if the consumer was closed meanwhile
        except BaseException:
            await self.close()
            raise
        self._background.spawn(every(self._clock, RENEW_EVERY_S, self._leases.renew), "renewal")
        self._background.spawn(every(self._clock, LOOK_EVERY_S, self._patterns.look, first_s=0), "topics")

    async def close(self) -> None:
        """Let running handler calls end and acknowledgements reach their brokers, then leave the group.

        Unsettled messages are delivered again. A cancelled call closes the consumer all the same; a second
        call waits until it is closed.
        """
        await self._life.end(self._leave, self._handling)

    async def _leave(self) -> None:
        for receiving in self._receiving:
            receiving.cancel()
        limit_s = as_seconds(self._settings.close_timeout)
        await calls_ended(self._handling, self._life.closer, limit_s, self.group)
        self._user_code.close()
        await self._asking.close()
        await self._leases.close(limit_s)
        self._filter_checks.close()
        await self._background.stop()
        await self._client.unregister_consumer(self.group)
        await self._client.close()

    # -- subscriptions ---------------------------------------------------------------------------------

    def subscribe(
        self, topic: str | re.Pattern[str], tags: str = "*", *, sql: str | None = None
    ) -> Awaitable[None]:
        """Receive the messages of ``topic``; replaces an earlier subscription to it.

        Args:
            topic: a name, or ``re.compile(...)`` for all topics whose whole name matches, also topics created
                later: the search is repeated every 30 s. System topics never match.
            tags: ``*`` for all, else ``a || b``.
            sql: an SQL92 expression over properties instead of tags. The topic's brokers are asked whether
                they can filter by it: await this call's result to get a refusal here; otherwise :meth:`start`
                or :meth:`receive` raises it.

        Raises:
            ValidationError: the topic or the expression is invalid.
            BrokerError: when awaited: a broker does not filter by SQL92 expressions (code 1), or the
                expression is invalid (code 23, with the place of the mistake).
        """
        if isinstance(topic, re.Pattern):
            self._patterns.add(topic, tags, sql)
            if self._life.running:
                self._background.spawn(self._patterns.look(), "topics")
            return Checked()
        topic = self._membership.full_topic(topic)
        self._filters[topic] = wanted = self._membership.wanted(tags, sql)
        self._asking.forget(topic)
        self._client.watch(topic)
        return self._filter_checks.begin(topic, wanted) if self._life.running else Checked()

    def unsubscribe(self, topic: str | re.Pattern[str]) -> None:
        """Stop receiving the messages of ``topic``, or of the topics that a pattern has found."""
        if isinstance(topic, re.Pattern):
            for found in self._patterns.remove(topic):
                self.unsubscribe(found)
            return
        topic = self._membership.full_topic(topic)
        self._filter_checks.forget(topic)
        self._asking.forget(topic)
        self._filters.pop(topic, None)

    # -- receiving -------------------------------------------------------------------------------------

    async def receive(
        self, max_messages: int = 16, invisible_for: Duration | None = None, *, wait: Duration = WAIT_S
    ) -> list[ReceivedMessage]:
        """Up to ``max_messages`` messages of the subscribed topics; an empty list if none arrived in time.

        Args:
            max_messages: 1 to 32.
            invisible_for: how long the messages are invisible to other members; by default the consumer's
                ``invisible_for``. This time is not renewed automatically, see :meth:`change_invisible`.
            wait: seconds, or a timedelta: how long to wait if there are no messages, or no topic matches yet.

        Raises:
            ValidationError: a number is out of its limits, or nothing is subscribed to.
            ClientStateError: not running, or closed meanwhile.
            OrbitError: no broker returned messages, and at least one failed; the last failure.
        """
        check_number("receive max_messages", max_messages, called="max_messages")
        invisible = self._settings.invisible_for if invisible_for is None else invisible_for
        check_number("invisible_for", invisible)
        check_number("wait", wait)
        leases = await self._asking.receive(
            max_messages, as_seconds(invisible), as_seconds(wait), renew_s=0.0
        )
        return [lease.message for lease in leases]

    # -- settling --------------------------------------------------------------------------------------

    async def ack(self, message: ReceivedMessage) -> Settled:
        """Acknowledge this message; returns when its broker has answered.

        Returns:
            DONE; ALREADY when it was settled before; GONE when its invisible time is over, so that it is
                delivered again.

        Raises:
            OrbitError: the broker did not answer until its invisible time was over.
            ClientStateError: no consumer holds a lease of the message, or this consumer was closed before the
                broker answered.
        """
        return await self._settle(message, ACK)

    async def ack_all(self, messages: Sequence[ReceivedMessage]) -> list[Settled]:
        """Acknowledge these messages as :meth:`ack` does, with one request per broker."""
        return list(await asyncio.gather(*(self._settle(message, ACK) for message in messages)))

    async def retry(
        self,
        message: ReceivedMessage,
        *,
        delay_level: int = 0,
        delay: Duration | None = None,
        reason: str = "",
    ) -> Settled:
        """Have this message delivered again, as :meth:`message.retry()
        <orbitmq.message.model.ReceivedMessage.retry>`; returns as :meth:`ack`.
        """
        if delay is not None:
            check_number("invisible_for", delay, called="delay")
        return await self._settle(message, retry_verdict(delay_level, delay, reason))

    async def reject(self, message: ReceivedMessage, reason: str = "") -> Settled:
        """Make this message a dead letter (``%DLQ%group``); returns as :meth:`ack`."""
        return await self._settle(message, Verdict(Ending.REJECT, -1, reason=reason))

    async def _settle(self, message: ReceivedMessage, verdict: Verdict) -> Settled:
        lease = self._lease(message)
        if lease is None:
            return settle(message, verdict)
        outcome = self._leases.expect(lease)
        settled = settle(message, verdict)
        return await outcome if settled is Settled.DONE else settled

    async def change_invisible(self, message: ReceivedMessage, invisible_for: Duration) -> Settled:
        """Keep this message invisible for this time from now on.

        Returns:
            DONE, ALREADY or GONE, as :meth:`ack`.

        Raises:
            ValidationError: not 0.001 s to 3 days.
            OrbitError: the broker refused or did not answer.
        """
        check_number("invisible_for", invisible_for)
        lease = self._lease(message)
        if lease is None:
            return Settled.ALREADY
        return await self._leases.change(lease, as_seconds(invisible_for))

    def _lease(self, message: ReceivedMessage) -> Lease | None:
        """The lease of a message, ``None`` if the message is already settled."""
        self._life.check_here()
        check_received(message)
        owner = getattr(message, "owner", None)
        return owner if isinstance(owner, Lease) else None

    # -- handlers --------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        return self.messages()

    async def messages(self, *, auto_ack: bool = True) -> AsyncGenerator[ReceivedMessage, None]:
        """The messages one by one, until the consumer closes; their invisible time is renewed meanwhile.

        Args:
            auto_ack: requesting the next message acknowledges the previous one, unless it was settled. When
                the loop is left, the message in flight may still be settled, or is delivered again when its
                invisible time is over; without ``auto_ack`` its lease is renewed like those of earlier
                messages. Messages that the loop has not reached are given back.

        Raises:
            ClientStateError: the consumer is not running.
        """
        self._life.check_here()
        while self._life.running:
            leases = await self._receive_again()
            try:
                while leases:
                    lease = leases.pop(0)
                    try:
                        yield lease.message
                    except GeneratorExit:
                        if auto_ack:
                            lease.renew_until = 0.0  # the user's loop was left at this message
                        raise
                    if auto_ack and is_open(lease.message):
                        settle(lease.message, ACK)
                    # The user's loop may contain no await: this one lets acknowledgements and renewals be
                    # sent.
                    await asyncio.sleep(0)
            finally:
                give_back(leases)

    async def run(self, handler: Handler, *, stop_on_signals: bool = False) -> None:
        """Give every message to ``handler``, ``concurrency`` at a time, until the consumer closes.

        When the handler returns, the message is acknowledged, unless the handler settled it; when it raises,
        the message is delivered again, with a delay that grows. The invisible time is renewed while a message
        waits or is handled, ``renew_for`` at most.

        Args:
            handler: async or plain; a plain one runs in a thread.
            stop_on_signals: close the consumer on Ctrl-C and SIGTERM, and return when it is closed; a second
                signal cancels the handlers. Only in the main thread.

        Raises:
            ClientStateError: the consumer is not running, or another call of this method is under way.
        """
        self._life.check_here()
        if self._serving:
            raise ClientStateError(runs_already(self.group))
        self._serving = True
        try:
            async with (
                closing_on_signals(self.close, wanted=stop_on_signals),
                asyncio.TaskGroup() as handling,
            ):
                await self._serve(self._user_code.as_async(handler), handling)
        finally:
            self._serving = False

    async def _serve(self, call: Call, handling: asyncio.TaskGroup) -> None:
        free = Line(self._settings.concurrency)
        while self._life.running:
            leases = await self._receive_again()
            try:
                while leases:
                    await free.enter()
                    self._begin(handling, leases.pop(0), call, free)
            finally:
                # After a cancellation no handler has these messages, so their leases must not be renewed.
                give_back(leases)

    def _begin(self, handling: asyncio.TaskGroup, lease: Lease, call: Call, free: Line) -> None:
        if self._life.running:
            task = handling.create_task(handle_leased(lease, call, free))
            self._handling[task] = None
            task.add_done_callback(self._handling.pop)
        else:
            free.leave()
            give_back([lease])

    async def _receive_again(self) -> list[Lease]:
        """Messages for :meth:`run` and iteration; failures are logged, and the request is repeated."""
        settings = self._settings
        while self._life.running:
            receiving = asyncio.ensure_future(
                self._asking.receive(
                    settings.batch_size,
                    as_seconds(settings.invisible_for),
                    WAIT_S,
                    renew_s=as_seconds(settings.renew_for),
                )
            )
            self._receiving[receiving] = None
            try:
                found = await receiving
            except ValidationError:
                await self._clock.sleep(PAUSE_S)  # without a subscription there is nothing to request yet
            except ClientStateError:
                break
            except OrbitError as error:
                log.warning("group %s receives nothing for now: %s", self.group, error)
                await self._clock.sleep(PAUSE_S)
            except asyncio.CancelledError as error:
                if not failed_itself(error):
                    # these messages arrived together with the cancellation
                    give_back(outcome(receiving) or ())
                    raise
                break  # close() cancelled the request
            else:
                if found:
                    return found
            finally:
                del self._receiving[receiving]
        return []
