"""Carries out the steps of :mod:`pre_online`: requests to the members, until this broker can serve."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from orbitmq.broker.config import BrokerConfig
from orbitmq.message.numbers import whole_number
from orbitmq.message.reserved import MASTER_ID
from orbitmq.replication.ha_handlers import LEADS, LOG_END
from orbitmq.replication.link.ha_client import MAX_RETRY_SECONDS, HaClient
from orbitmq.replication.link.inquiry import Inquiry
from orbitmq.replication.members.fence import Timing
from orbitmq.replication.members.links import Links
from orbitmq.replication.members.ports import ExchangeError, TableExchange
from orbitmq.replication.members.pre_online import Outcome, PreOnlinePlan, Step, Task
from orbitmq.runtime.seam import Clock
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import WireError
from orbitmq.wire.headers.broker import ExchangeBrokerHaInfoRequest

log = logging.getLogger(__name__)

ASK_TIMEOUT_MS = 1000
# A member that leads finishes the work it has begun before it answers.
ANNOUNCE_TIMEOUT_MS = 3000
# The tries of a step together make RocketMQ's limit of 10 s (PO-07).
LINK_LIMIT_S = 3.3
TAKE_LIMIT_S = 5.0
# A copy has no time limit while bytes arrive: a log can be of any size.
COPY_SILENCE_S = 5.0
LOOK_AGAIN_S = 0.02
# Without name servers it is unknown whether another broker leads. A slave that has this broker's address
# connects by itself: at its next try, or when its own right to lead has ended. The broker waits a moment
# longer than that.
LOOK_MORE_S = 1.0
RETRY_S = 1.0


class PreOnlineService:
    """Brings one broker into service, each time that it is isolated.

    Args:
        address: where clients reach this broker.
        ha_address: returns where followers reach this broker.
        members: returns the other living members, as far as they are known.
        known: returns whether all members are known.
        timing: the times of the right to lead; a member's consent holds as long as that right.
        log_end: returns the end of this broker's own log.

    Attributes:
        took_all: whether the tables of all others were taken the last time.
    """

    def __init__(
        self,
        clock: Clock,
        config: BrokerConfig,
        client: RemotingClient,
        address: str,
        ha_address: Callable[[], str],
        ha_client: HaClient,
        links: Links,
        tables: TableExchange,
        members: Callable[[], Mapping[int, str]],
        known: Callable[[], bool],
        log_end: Callable[[], int],
        timing: Timing,
    ) -> None:
        self._clock = clock
        self._config = config
        self._client = client
        self._address = address
        self._ha_address = ha_address
        self._ha_client = ha_client
        self._links = links
        self._tables = tables
        self._members = members
        self._known = known
        self._log_end = log_end
        self._timing = timing
        self.took_all = False

    async def run(self) -> dict[int, str] | None:
        """Return when the broker can serve, with the members that did not agree that it leads.

        ``None``: the members are not known.
        """
        plan = PreOnlinePlan(self._config.broker_id)
        patience_s = max(MAX_RETRY_SECONDS, self._timing.patience_s) + LOOK_MORE_S
        deadline = self._clock.monotonic() + patience_s
        while True:
            known = self._known()
            late = self._clock.monotonic() >= deadline
            task = plan.next(self._members() if known or late else None)
            if task.step is Step.SERVE:
                if plan.ask_again(self._clock.monotonic() - self._timing.lease_s):
                    continue
                break
            outcome = await self._do(task)
            if task.step is not Step.LOOK:
                plan.ended(task, outcome, self._log_end(), self._clock.monotonic())
                if not outcome.done:
                    await self._clock.sleep(RETRY_S)
        if self._config.broker_id == MASTER_ID:
            self._ha_client.follow(None, None)
        self.took_all = known and not plan.left_out
        for left_out in plan.left_out:
            log.warning("broker %s goes online without: %s", self._address, left_out)
        if not known:
            log.warning("broker %s goes online without knowing the other brokers of its name", self._address)
        return plan.silent if known else None

    async def _do(self, task: Task) -> Outcome:
        try:
            match task.step:
                case Step.COMPARE:
                    return Outcome(True, await self._end_at(task.address))
                case Step.COPY_BACK:
                    return await self._copy_back(task.address)
                case Step.ANNOUNCE:
                    return await self._announce(task.address)
                case Step.LINK:
                    host = await self._client.ip_of(task.address)
                    return Outcome(
                        await self._until(lambda: self._links.copies(task.broker_id, host), LINK_LIMIT_S)
                    )
                case Step.TAKE:
                    async with asyncio.timeout(TAKE_LIMIT_S):
                        await self._tables.take(task.broker_id, task.address)
                    return Outcome(True)
                case Step.FOLLOW:
                    self._ha_client.follow(self._config.ha_master_address or None, task.address)
                    return Outcome(await self._until(lambda: self._ha_client.transferring, LINK_LIMIT_S))
                case _:
                    await self._clock.sleep(LOOK_AGAIN_S)
                    return Outcome(True)
        except (TransportError, ExchangeError, WireError, TimeoutError) as error:
            log.info("pre-online, %s, %s: %r", task.step.value, task.address, error)
            return Outcome(False)

    async def _until(self, reached: Callable[[], bool], limit_s: float) -> bool:
        deadline = self._clock.monotonic() + limit_s
        while not reached():
            if self._clock.monotonic() >= deadline:
                return False
            await self._clock.sleep(LOOK_AGAIN_S)
        return True

    async def _end_at(self, address: str) -> int | None:
        """The end of a member's log, if the member sends it."""
        question = ExchangeBrokerHaInfoRequest().command()
        async with asyncio.timeout(ASK_TIMEOUT_MS / 1000):
            answer = await self._client.request(address, question, ASK_TIMEOUT_MS)
            if answer.code != ResponseCode.SUCCESS:
                raise ExchangeError(
                    f"{address} refuses to tell of its log: code {answer.code}, {answer.remark}"
                )
            end = whole_number(answer.ext.get(LOG_END, ""))
            if end is not None:
                return end
            # A slave of RocketMQ answers without any field; its runtime info has the end.
            there = await Inquiry(self._client, address).log_range()
            return None if there is None else there[1]

    async def _copy_back(self, address: str) -> Outcome:
        """Follow the member until its log is copied, as long as bytes arrive."""
        target = await self._end_at(address)
        if target is None:
            return Outcome(True)
        begin = self._log_end()
        if begin == 0:
            # This broker's table versions come from when it led alone, without a log.
            self._tables.outdate()
        self._ha_client.follow(None, address)
        try:
            have = begin
            while have < target:
                if not await self._grown(have):
                    if self._ha_client.own_end_counts:
                        return Outcome(True, target)
                    log.warning("%s has the log up to %d, it gives it up to %d", address, target, have)
                    return Outcome(False)
                have = self._copied_to()
        finally:
            self._ha_client.follow(None, None)
        end = self._log_end()
        log.warning("copied %d bytes that only %s had, the log ends at %d", end - begin, address, end)
        if end < target:
            log.warning("the log of %s ends at %d, within a record: that one is not copied", address, target)
        return Outcome(True, target)

    async def _grown(self, end: int) -> bool:
        await self._until(lambda: self._copied_to() > end or self._ha_client.own_end_counts, COPY_SILENCE_S)
        return self._copied_to() > end

    def _copied_to(self) -> int:
        """The end of this broker's copy in bytes: the log of RocketMQ's slave may end within a record."""
        return self._ha_client.received if self._ha_client.transferring else self._log_end()

    async def _announce(self, address: str) -> Outcome:
        header = ExchangeBrokerHaInfoRequest(
            master_ha_address=self._ha_address(),
            master_flush_offset=self._log_end(),
            master_address=self._address,
        )
        answer = await self._client.request(address, header.command(), ANNOUNCE_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise ExchangeError(
                f"{address} refuses the address of this broker: code {answer.code}, {answer.remark}"
            )
        return Outcome(True, consent=answer.ext.get(LEADS) == "false")
