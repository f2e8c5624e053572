"""Leases of popped messages, and the requests that end or renew them.

A lease is one delivery of a popped message: until its invisible time is over, no other member gets the
message. Ends of leases are collected and sent together, so that a hundred handlers that finish at the same
time cost one request per broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from orbitmq.client.core.broker_calls import BrokerCalls
from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.core.pop_calls import PopCalls, Receipt
from orbitmq.client.ranges import RANGES
from orbitmq.errors import BrokerError, ClientStateError, OrbitError
from orbitmq.message.model import ReceivedMessage
from orbitmq.message.settling import LEVEL_SECONDS, Ending, Settled, Verdict, open_delivery, settle
from orbitmq.runtime.backoff import Backoff
from orbitmq.runtime.tasks import Background
from orbitmq.wire.codes import ResponseCode
from orbitmq.wording import counted

log = logging.getLogger("orbitmq.client")

# First delay of a redelivery for which the user names no delay: delay level 3.
FIRST_RETRY_LEVEL = 3
DEAD_LETTER_LEVEL = -1
RENEW_EVERY_S = 0.5
"""Seconds between two checks for leases that have to be renewed."""
MOST_PER_REQUEST = 256
"""The most acknowledgements in one request."""
AT_ONCE = Verdict(Ending.RETRY, delay_s=0.001)
"""Verdict on a message that is given back unhandled: one millisecond later any member may receive it."""


@dataclass(slots=True, eq=False)
class Lease:
    """One delivery of a message (see ``settling.DeliveryOwner``).

    Attributes:
        invisible_s: the invisible time of the delivery, and of each renewal.
        expires: the end of the invisible time, in monotonic seconds.
        renew_until: end of the renewals, in monotonic seconds.
        outcome: the broker's answer, for callers that wait for it.
    """

    leases: Leases
    message: ReceivedMessage
    receipt: Receipt
    invisible_s: float
    expires: float
    renew_until: float
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    outcome: asyncio.Future[Settled] | None = None

    @property
    def over(self) -> bool:
        """Whether the invisible time is over, so that the message is delivered again."""
        return self.leases.now() >= self.expires

    def settled(self, message: ReceivedMessage, verdict: Verdict) -> Settled:
        """End the delivery with the user's verdict, on any thread."""
        return self.leases.settled(self, verdict)


class Leases:
    """The open deliveries of one consumer, and the ended deliveries whose end is still on the way to a
    broker.
    """

    def __init__(
        self, client: ClientInstance, calls: BrokerCalls, pops: PopCalls, group: str, background: Background
    ) -> None:
        self._client = client
        self._clock = client.runtime.clock
        self._calls = calls
        self._pops = pops
        self._group = group
        self._background = background
        self._open: dict[Lease, None] = {}
        self._ended: list[tuple[Lease, Verdict]] = []
        self._sending = 0
        self._renewing: set[str] = set()
        self._idle = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> None:
        """Set the event loop that sends the requests."""
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return len(self._open)

    def now(self) -> float:
        """Monotonic seconds."""
        return self._clock.monotonic()

    def open(self, message: ReceivedMessage, receipt: Receipt, invisible_s: float, renew_s: float) -> Lease:
        """Open the delivery of a popped message.

        Args:
            renew_s: how long the open delivery is renewed; 0: no renewal.
        """
        now = self._clock.monotonic()
        lease = Lease(self, message, receipt, invisible_s, now + invisible_s, now + renew_s)
        self._open[lease] = None
        open_delivery(message, lease)
        return lease

    def drop(self, lease: Lease) -> None:
        """Forget a delivery: its message is delivered again when the invisible time is over."""
        self._open.pop(lease, None)

    # -- ending ----------------------------------------------------------------------------------------

    def settled(self, lease: Lease, verdict: Verdict) -> Settled:
        """Record the end of a delivery, on any thread; it is sent from the event loop."""
        if self._loop is None or lease.over:
            self._open.pop(lease, None)
            return Settled.GONE
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._loop:
            self._note(lease, verdict)
            return Settled.DONE
        try:
            self._loop.call_soon_threadsafe(self._note, lease, verdict)
        except RuntimeError:
            return Settled.GONE  # the event loop is closed
        return Settled.DONE

    def expect(self, lease: Lease) -> asyncio.Future[Settled]:
        """A future for the broker's answer to the end of this delivery; the caller ends the delivery next."""
        lease.outcome = asyncio.get_running_loop().create_future()
        return lease.outcome

    def _note(self, lease: Lease, verdict: Verdict) -> None:
        self._open.pop(lease, None)
        self._ended.append((lease, verdict))
        self._idle.clear()
        if len(self._ended) == 1:
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        """Send the ends recorded since the last iteration of the event loop."""
        ended, self._ended = self._ended, []
        if self._loop is None:
            _tell([lease for lease, _ in ended], Settled.GONE)
            return
        by_broker: dict[str, list[Lease]] = {}
        for lease, verdict in ended:
            if verdict.ending is Ending.ACK:
                by_broker.setdefault(lease.receipt.info.broker_name, []).append(lease)
            else:
                self._carry_out(partial(self._again_or_dead, lease, verdict), [lease])
        for broker_name, leases in by_broker.items():
            for at in range(0, len(leases), MOST_PER_REQUEST):
                part = leases[at : at + MOST_PER_REQUEST]
                self._carry_out(partial(self._done, broker_name, part), part)

    def _carry_out(self, work: Callable[[], Awaitable[None]], leases: Sequence[Lease]) -> None:
        try:
            self._background.spawn(self._counted(work, leases), "settling")
        except RuntimeError as error:
            log.warning("%s not settled: %s", counted(len(leases), "message"), error)
            _fail(leases, ClientStateError(str(error)))
        else:
            self._sending += 1

    async def _counted(self, work: Callable[[], Awaitable[None]], leases: Sequence[Lease]) -> None:
        try:
            await work()
        except asyncio.CancelledError:
            _fail(
                leases,
                ClientStateError(f"consumer {self._group!r} was closed before a broker answered"),
            )
            raise
        finally:
            self._sending -= 1
            if not self._sending and not self._ended:
                self._idle.set()

    async def close(self, limit_s: float) -> None:
        """Return when every end has reached its broker, or after ``limit_s``; messages still open are
        delivered again.
        """
        try:
            if self._sending or self._ended:
                async with asyncio.timeout(limit_s):
                    await self._idle.wait()
        except TimeoutError:
            log.warning("acknowledgements of group %s were still on their way at close", self._group)
        finally:
            self._loop = None

    async def _done(self, broker_name: str, leases: Sequence[Lease]) -> None:
        """Acknowledge leases; retry until the broker answers or the invisible time of every lease is over."""
        backoff = Backoff(0.1, 2.0, self._client.runtime.random)
        failures = 0
        last = max(lease.expires for lease in leases)
        while True:
            try:
                await self._acknowledge(broker_name, leases)
                return
            except BrokerError as error:
                if error.code == ResponseCode.NO_MESSAGE:
                    _tell(leases, Settled.GONE)
                    log.warning("acknowledged too late: %s", error.remark)
                    return
                failure: OrbitError = error
            except OrbitError as error:
                failure = error
            # The master may be frozen or fenced; a fresh route may name a slave in its place.
            for topic in {lease.receipt.asked_topic for lease in leases}:
                self._client.suspect(topic)
            failures += 1
            pause_s = backoff.pause_s(failures)
            if self._clock.monotonic() + pause_s >= last:
                _fail(leases, failure)
                log.warning("%s not acknowledged: %s", counted(len(leases), "message"), failure)
                return
            await self._clock.sleep(pause_s)

    async def _acknowledge(self, broker_name: str, leases: Sequence[Lease]) -> None:
        # A renewal under way would change the receipt.
        for lease in leases:
            if lease.changing.locked():
                async with lease.changing:
                    pass
        if len(leases) > 1:
            try:
                missed = await self._pops.acknowledge_many(
                    self._group, broker_name, [lease.receipt for lease in leases]
                )
            except BrokerError as error:
                if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    raise
            else:
                if missed:
                    log.warning("%s acknowledged too late", counted(len(missed), "message"))
                for lease in leases:
                    _tell([lease], Settled.GONE if lease.receipt in missed else Settled.DONE)
                return
        for lease in leases:
            await self._pops.acknowledge(self._group, lease.receipt)
            _tell([lease], Settled.DONE)

    async def _again_or_dead(self, lease: Lease, verdict: Verdict) -> None:
        try:
            async with lease.changing:
                if verdict.ending is Ending.REJECT or verdict.delay_level < 0:
                    await self._reject(lease, verdict.why)
                else:
                    delay_ms = int(delay_s(verdict, lease.message.reconsume_times) * 1000)
                    await self._pops.change(self._group, lease.receipt, delay_ms)
        except OrbitError as error:
            gone = isinstance(error, BrokerError) and error.code == ResponseCode.NO_MESSAGE
            # An unsettled message is delivered again when its invisible time is over.
            log.warning("%s comes again by itself: %s", lease.message.message_id, error)
            if gone:
                _tell([lease], Settled.GONE)
            else:
                _fail([lease], error)
        else:
            _tell([lease], Settled.DONE)

    async def _reject(self, lease: Lease, reason: str) -> None:
        """Have the broker keep a copy as a dead letter, then acknowledge the message."""
        message = lease.message
        topic = lease.receipt.asked_topic
        await self._calls.send_back(self._group, message, topic, DEAD_LETTER_LEVEL, 0, reason=reason)
        await self._pops.acknowledge(self._group, lease.receipt)

    # -- longer ----------------------------------------------------------------------------------------

    async def change(self, lease: Lease, invisible_s: float) -> Settled:
        """Keep a message invisible for this time from now on.

        Raises:
            BrokerError, TransportError: the broker may or may not have changed the time.
        """
        async with lease.changing:
            if lease not in self._open:
                return Settled.ALREADY
            asked = self._clock.monotonic()
            try:
                lease.receipt = await self._pops.change(
                    self._group, lease.receipt, max(1, int(invisible_s * 1000))
                )
            except BrokerError as error:
                if error.code != ResponseCode.NO_MESSAGE:
                    raise
                self._open.pop(lease, None)
                lease.expires = asked
                return Settled.GONE
            lease.invisible_s = invisible_s
            lease.expires = asked + invisible_s
            return Settled.DONE

    def renew(self) -> None:
        """Renew every open delivery that has used up half of its invisible time.

        Each broker gets requests of its own, so that a broker that does not answer delays only its own
        renewals.
        """
        now = self._clock.monotonic()
        due: dict[str, list[Lease]] = {}
        for lease in list(self._open):
            if now >= lease.expires:
                self._open.pop(lease, None)
            elif lease.renew_until > now and lease.expires - now <= lease.invisible_s / 2:
                due.setdefault(lease.receipt.info.broker_name, []).append(lease)
        for broker_name, leases in due.items():
            if broker_name not in self._renewing:
                self._renewing.add(broker_name)
                self._background.spawn(self._renew(broker_name, leases), "renewal")

    async def _renew(self, broker_name: str, leases: Sequence[Lease]) -> None:
        try:
            results = await asyncio.gather(
                *(self.change(lease, lease.invisible_s) for lease in leases), return_exceptions=True
            )
        finally:
            self._renewing.discard(broker_name)
        for lease, result in zip(leases, results, strict=True):
            if isinstance(result, OrbitError):
                log.warning(
                    "could not extend the invisible time of message %s: %s", lease.message.message_id, result
                )
            elif isinstance(result, BaseException):
                raise result


def give_back(leases: Iterable[Lease]) -> None:
    """Give messages back, so that other members can receive them at once."""
    for lease in leases:
        settle(lease.message, AT_ONCE)


def delay_s(verdict: Verdict, reconsume_times: int) -> float:
    """Seconds until a message is delivered again: the user's delay, or a delay that grows with each
    delivery.
    """
    if verdict.delay_s is not None:
        return RANGES["invisible_for"].nearest(verdict.delay_s)
    level = verdict.delay_level or FIRST_RETRY_LEVEL + max(0, reconsume_times)
    return LEVEL_SECONDS[min(level, len(LEVEL_SECONDS)) - 1]


def _tell(leases: Sequence[Lease], outcome: Settled) -> None:
    for lease in leases:
        if lease.outcome is not None and not lease.outcome.done():
            lease.outcome.set_result(outcome)


def _fail(leases: Sequence[Lease], error: OrbitError) -> None:
    for lease in leases:
        if lease.outcome is not None and not lease.outcome.done():
            lease.outcome.set_exception(error)
