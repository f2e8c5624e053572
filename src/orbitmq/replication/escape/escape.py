"""Sends messages to the masters of other groups, and retries until one has stored them (EscapeBridge)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence

from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.name_servers import NameServers, NoRouteError
from orbitmq.broker.own_requests import client_of
from orbitmq.message import property_names, reserved
from orbitmq.message.numbers import INT32, whole_number
from orbitmq.replication.escape import forms
from orbitmq.replication.escape.forms import Target
from orbitmq.runtime.backoff import Backoff
from orbitmq.runtime.seam import Runtime
from orbitmq.runtime.tasks import Background
from orbitmq.store import NewMessage, PutStatus
from orbitmq.transport.errors import TransportError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError
from orbitmq.wording import counted

log = logging.getLogger(__name__)

# Added to slaveTimeout as the limit of a send: the other master answers only when its replicas have the
# message or slaveTimeout has passed.
ANSWER_MARGIN_MS = 1000
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
# If no master took a message for this long and one does now, a master has come back: retry resting messages
# at once.
AWAY_S = 1.0
COMPLAIN_EVERY_S = 60.0
# Limits of the bytes and messages being sent at a time; further messages wait in their own log.
MAX_MESSAGES = 1024
MAX_BYTES = 64 * 1024 * 1024
# How long a route to another master is kept.
ROUTE_SECONDS = 30.0
# A route that is not kept is requested at most once in this time, however many messages wait for it.
ASK_AGAIN_S = 1.0
# How long to wait for messages being sent when this broker stops delivering.
SETTLE_SECONDS = 3.0


class Escaping:
    """A message that is being sent to another broker, as a ``PendingDelivery``.

    Attributes:
        size_bytes: its share of the limit of bytes being sent.
        resting: whether it was refused and waits for its next try.
    """

    end = 0
    resting = False

    def __init__(self, message: NewMessage, properties: Mapping[str, str], sent: Callable[[], None]) -> None:
        self.message = message
        self.size_bytes = 0
        self.properties = properties
        self._sent = sent
        self.status: asyncio.Future[PutStatus] = asyncio.get_running_loop().create_future()

    @property
    def stored(self) -> bool:
        return self.status.done() and not self.status.cancelled()

    async def settled(self) -> PutStatus:
        try:
            return await asyncio.shield(self.status)
        except asyncio.CancelledError:
            if self.status.cancelled():
                raise RemotingError(
                    ResponseCode.SERVICE_NOT_AVAILABLE, "this broker no longer delivers for its master"
                ) from None
            raise

    def arrived(self, status: PutStatus) -> None:
        """Note that another master has stored the message."""
        if not self.status.done():
            self.status.set_result(status)
            self._sent()

    def called_back(self) -> None:
        """Note that the task that sends the message has ended."""
        self.status.cancel()


class Escape(Component):
    """Sends messages to other masters. No message is skipped or given up (behaviours ES-10, TX-05).

    The pause after a failed try doubles up to :data:`LONGEST_PAUSE_S`; each try takes another master than the
    one before, if there is one. When a master comes back all pauses end. Messages stored out of order may be
    delivered again when this broker stops delivering.
    """

    name = "escape"

    def __init__(
        self, runtime: Runtime, config: BrokerConfig, groups: SubscriptionGroups, name_servers: NameServers
    ) -> None:
        self._runtime = runtime
        self._clock = runtime.clock
        self._config = config
        self._groups = groups
        self._name_servers = name_servers
        self._client = client_of(runtime, config, for_clients=True)
        self._backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, runtime.random)
        self._tasks = self._background_of_messages()
        self._on_the_way: dict[Escaping, None] = {}
        self._bytes = 0
        self._settling = 0
        self._stored_at: float | None = None
        self._back = asyncio.Event()
        self._complained_at: float | None = None
        self._producer_group = f"InnerProducerGroup_{config.broker_name}_{config.broker_id}"

    def __len__(self) -> int:
        """How many messages are being sent."""
        return len(self._on_the_way)

    async def stop(self) -> None:
        await self._call_back()
        await self._client.close()
        await super().stop()

    async def end_work(self) -> None:
        # Replaced before the wait: a message handed over meanwhile belongs to the next period of work.
        tasks, self._tasks = self._tasks, self._background_of_messages()
        await tasks.stop()
        await super().end_work()

    def _background_of_messages(self) -> Background:
        # A task that has ended is counted a moment longer than its message.
        return Background(self.name, max_tasks=2 * MAX_MESSAGES)

    # -- Elsewhere ---------------------------------------------------------------------------------------

    def hand(
        self, message: NewMessage, properties: Mapping[str, str], on_stored: Callable[[], None]
    ) -> Escaping:
        """Start the task that sends the message to another master."""
        if not self._config.enable_remote_escape:
            raise RemotingError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "messages wait for the master of this group: enableRemoteEscape is false",
            )
        size = len(message.body) + len(message.properties)
        if len(self._on_the_way) >= MAX_MESSAGES or (self._on_the_way and self._bytes + size > MAX_BYTES):
            raise RemotingError(
                ResponseCode.SYSTEM_BUSY,
                f"{len(self._on_the_way)} messages of {self._bytes} bytes are on the way to other masters",
            )
        sent = forms.outward(message, properties)
        escaping = Escaping(*sent, on_stored)
        escaping.size_bytes = size
        self._on_the_way[escaping] = None
        self._bytes += size
        self._tasks.spawn(self._bring(escaping), f"message of {escaping.message.topic}")
        return escaping

    async def settle(self) -> None:
        """Return when the sends under way have ended; after :data:`SETTLE_SECONDS` the rest is cancelled.

        Messages that every master refused so far are cancelled at once: a returning master must not wait for
        them.
        """
        self._settling += 1
        try:
            for escaping in [escaping for escaping in self._on_the_way if escaping.resting]:
                self._give_back(escaping)
            sending = [escaping.status for escaping in self._on_the_way]
            if sending:
                await asyncio.wait(sending, timeout=SETTLE_SECONDS)
                await self._call_back()
        finally:
            self._settling -= 1

    async def _call_back(self) -> None:
        left = list(self._on_the_way)
        if left:
            log.warning("%s on the way to other masters called back", counted(len(left), "message"))
        await self.end_work()
        for escaping in left:
            self._give_back(escaping)

    def _give_back(self, escaping: Escaping) -> None:
        self._leaves(escaping)
        escaping.called_back()

    def _leaves(self, escaping: Escaping) -> None:
        # Services that stop at the same time cancel the same messages; each message is removed once.
        if escaping in self._on_the_way:
            del self._on_the_way[escaping]
            self._bytes -= escaping.size_bytes

    # -- one message -------------------------------------------------------------------------------------

    async def _bring(self, escaping: Escaping) -> None:
        failures, tried = 0, ""
        while True:
            status, tried, problem = await self._try(escaping, tried, helped=not failures)
            if status is not None:
                break
            failures += 1
            self._complain(problem)
            if self._settling:
                self._give_back(escaping)
                return
            escaping.resting = True
            await self._rest(self._backoff.pause_s(failures))
            escaping.resting = False
            if escaping not in self._on_the_way:
                return
        self._leaves(escaping)
        escaping.arrived(status)
        self._note_stored()

    async def _rest(self, seconds: float) -> None:
        """Wait until the time has passed or a master is back."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._back.wait()

    def _note_stored(self) -> None:
        now, before = self._clock.monotonic(), self._stored_at
        self._stored_at = now
        if before is None or now - before >= AWAY_S:
            self._back.set()
            self._back = asyncio.Event()

    async def _try(
        self, escaping: Escaping, tried: str, *, helped: bool
    ) -> tuple[PutStatus | None, str, str]:
        """Try one master; returns the status if that master has the message, which master was tried, and what
        failed."""
        message = escaping.message
        found, problem = await self._targets(message.topic, helped=helped)
        if not found:
            return None, tried, problem
        target = forms.choose(found, tried, self._runtime.random)
        header = forms.request(
            message,
            escaping.properties,
            target,
            self._producer_group,
            self._limit(message.topic, escaping.properties),
            self._runtime.random.randrange(1 << 30),
        )
        try:
            timeout_ms = self._config.slave_timeout_ms + ANSWER_MARGIN_MS
            answer = await self._client.request(target.address, header.command(message.body), timeout_ms)
        except TransportError as error:
            return None, target.broker_name, str(error)
        problem = f"{target.address}: code {answer.code}, {answer.remark}"
        return forms.STORED.get(answer.code), target.broker_name, problem

    async def _targets(self, topic: str, *, helped: bool) -> tuple[Sequence[Target], str]:
        """Masters of other groups that take the topic's messages, or the reason why there are none (ES-07).

        Args:
            helped: whether a kept route may be used: no send of this message has failed.
        """
        problem = f"no other master takes messages of topic {topic}"
        for age_s in (ROUTE_SECONDS, ASK_AGAIN_S) if helped else (ASK_AGAIN_S,):
            try:
                route = await self._name_servers.route(topic, age_s, failed_s=ASK_AGAIN_S)
            except NoRouteError as error:
                return (), str(error)
            if found := forms.targets(route, self._config.broker_name):
                return found, ""
        return (), problem

    def _limit(self, topic: str, properties: Mapping[str, str]) -> int | None:
        """The most deliveries of a retry message, sent along because the other master may not have its
        group."""
        if not topic.startswith(reserved.RETRY_PREFIX):
            return None
        own = whole_number(properties.get(property_names.MAX_RECONSUME_TIMES, ""), INT32)
        if own is not None:
            return own
        group = self._groups.get(topic.removeprefix(reserved.RETRY_PREFIX))
        return None if group is None else group.retry_max_times

    def _complain(self, problem: str) -> None:
        """Log one line a minute, however many messages wait."""
        now = self._clock.monotonic()
        if self._complained_at is None or now - self._complained_at >= COMPLAIN_EVERY_S:
            self._complained_at = now
            log.warning(
                "%s waiting for another master: %s", counted(len(self._on_the_way), "message"), problem
            )
