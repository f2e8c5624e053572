"""``--watch`` of the commands that send: the brokers that a producer uses, and those that it avoids."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from orbitmq.cli.app import Faults
from orbitmq.cli.view import Columns, Screen, Table, View
from orbitmq.client.hooks import SendContext, SendHook
from orbitmq.client.producer.producer import Producer
from orbitmq.errors import OrbitError
from orbitmq.runtime.tasks import Background, every

if TYPE_CHECKING:
    from orbitmq.cli.where import Servers
    from orbitmq.client.producer.faults import FaultItem
    from orbitmq.runtime.seam import Runtime

WINDOW = 1000
"""The shares of brokers are computed from this many last sends."""
REFRESH_S = 0.25


@dataclass(frozen=True, slots=True)
class Row:
    """The table's row of one broker. Times are in seconds.

    Attributes:
        broker: the broker's name.
        last_sends: how many of the last successful sends went to it.
        share: ``last_sends`` as a part of all last sends, 0 to 1.
        latency: duration of the last try, failed or not; None before the first.
        available_in: how long the broker is still avoided; None without fault tolerance.
        reachable: whether the last try or probe reached the broker; None without fault tolerance.
        failed_tries: number of failed tries since the command began.
    """

    broker: str
    last_sends: int
    share: float
    latency: float | None
    available_in: float | None
    reachable: bool | None
    failed_tries: int


class BrokerWatch(SendHook):
    """Records the outcome of every try of one producer."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.rows: list[Row] = []
        self._recent: deque[str] = deque(maxlen=WINDOW)
        self._failed: Counter[str] = Counter()
        self._latency: dict[str, float] = {}
        self._brokers: set[str] = set()

    def after(self, context: SendContext) -> None:
        broker = context.queue.broker_name
        self._latency[broker] = context.took
        if context.result is not None:
            self._recent.append(broker)
        elif not isinstance(context.error, asyncio.CancelledError):
            self._failed[broker] += 1

    async def refresh(self, producer: Producer, topic: str) -> None:
        """Update :attr:`rows`."""
        with suppress(OrbitError):  # sends get the same error and report it
            self._brokers.update(queue.broker_name for queue in await producer.queues(topic))
        self.update(producer.fault_table())

    def update(self, items: Sequence[FaultItem]) -> None:
        """Update :attr:`rows` from the fault table ``items``."""
        shares = Counter(self._recent)
        total = max(1, len(self._recent))
        known = {item.broker_name: item for item in items}
        self.rows = []
        for broker in sorted({*self._brokers, *self._latency, *known}):
            avoided: float | None = None
            reachable: bool | None = None
            if self.mode != "off":
                item = known.get(broker)
                avoided = 0.0 if item is None else item.available_in
                reachable = item is None or item.reachable
            self.rows.append(
                Row(
                    broker,
                    shares[broker],
                    shares[broker] / total,
                    self._latency.get(broker),
                    avoided,
                    reachable,
                    self._failed[broker],
                )
            )

    def view(self) -> View:
        """The rows as a table."""
        return View({}, [self.table()])

    def table(self) -> Table:
        """The rows, with avoided brokers in red."""
        return Table(
            "brokers",
            self.rows,
            COLUMNS,
            red=lambda row: bool(row["available_in"]) or row["reachable"] is False,
        )


def _available(row: Mapping[str, Any]) -> str | None:
    left = row["available_in"]
    return None if left is None else f"in {left:.1f} s" if left > 0 else "now"


COLUMNS: Columns = {
    "broker": "broker",
    f"share of last {WINDOW}": lambda row: f"{row['share']:.1%}",
    "last latency ms": lambda row: None if row["latency"] is None else f"{row['latency'] * 1000:.1f}",
    "available": _available,
    "reachable": "reachable",
    "failed tries": "failed_tries",
}


def watch_of(faults: Faults) -> BrokerWatch | None:
    """The watch, if the user wants one."""
    return BrokerWatch(faults.fault_tolerance) if faults.watch else None


def producer_for(
    faults: Faults, watch: BrokerWatch | None, group: str, servers: Servers, timeout: float, runtime: Runtime
) -> Producer:
    """A producer with the requested fault tolerance, and ``watch`` as its hook."""
    mode = faults.fault_tolerance
    return Producer(
        group,
        **servers.options,
        timeout=timeout,
        send_latency_fault_enable=mode != "off",
        fault_profile="4.x" if mode == "off" else mode,
        start_detector_enable=mode == "5.x",
        hooks=() if watch is None else (watch,),
        runtime=runtime,
    )


@asynccontextmanager
async def watched(
    watch: BrokerWatch | None, producer: Producer, topic: str, runtime: Runtime
) -> AsyncIterator[None]:
    """Show the table while the block runs, if standard error is a terminal; its last state remains."""
    if watch is None:
        yield
        return
    background = Background("watch")
    with Screen(as_json=False, to_errors=True) as screen:

        async def show() -> None:
            await watch.refresh(producer, topic)
            screen.replace(replace(watch.view(), before=[f"fault tolerance: {watch.mode}"]))

        if sys.stderr.isatty():
            background.spawn(every(runtime.clock, REFRESH_S, show, first_s=0), "table")
        try:
            yield
        finally:
            await background.stop()
            await watch.refresh(producer, topic)
