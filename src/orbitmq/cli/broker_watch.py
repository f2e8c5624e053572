"""``--watch`` of the commands that send: which brokers a producer uses, and which it avoids."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from orbitmq.cli.app import Common, Faults
from orbitmq.cli.output import print_json, print_table
from orbitmq.client.hooks import SendContext, SendHook
from orbitmq.client.producer.producer import Producer
from orbitmq.errors import OrbitError
from orbitmq.runtime.tasks import Background, every

if TYPE_CHECKING:
    from rich.table import Table

    from orbitmq.client.producer.faults import FaultItem
    from orbitmq.runtime.seam import Runtime

WINDOW = 1000
"""Sends whose shares are shown."""
REFRESH_S = 0.25


@dataclass(frozen=True, slots=True)
class Row:
    """One broker, as shown.

    Attributes:
        broker: its name.
        last_sends: how many of the last successful sends it got.
        share: the same as a share of them, 0 to 1.
        latency_ms: how long the last try took, also when it failed; None before the first.
        available_in_ms: for how long it is still avoided; None when nothing is held against any broker.
        reachable: the last try or probe reached it; None likewise.
        failed_tries: since the beginning.
    """

    broker: str
    last_sends: int
    share: float
    latency_ms: float | None
    available_in_ms: float | None
    reachable: bool | None
    failed_tries: int


class BrokerWatch(SendHook):
    """Follows every try of one producer."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.rows: list[Row] = []
        self._recent: deque[str] = deque(maxlen=WINDOW)
        self._failed: Counter[str] = Counter()
        self._latency_ms: dict[str, float] = {}
        self._brokers: set[str] = set()

    def after(self, context: SendContext) -> None:
        broker = context.queue.broker_name
        self._latency_ms[broker] = context.took * 1000
        if context.result is not None:
            self._recent.append(broker)
        elif not isinstance(context.error, asyncio.CancelledError):
            self._failed[broker] += 1

    async def refresh(self, producer: Producer, topic: str) -> None:
        """Make :attr:`rows` say what is so now."""
        with suppress(OrbitError):  # the sends meet and report the same error
            self._brokers.update(queue.broker_name for queue in await producer.queues(topic))
        self.update(producer.fault_table())

    def update(self, items: Sequence[FaultItem]) -> None:
        """Make :attr:`rows` of what was seen and of the fault table ``items``."""
        shares = Counter(self._recent)
        total = max(1, len(self._recent))
        known = {item.broker_name: item for item in items}
        self.rows = []
        for broker in sorted({*self._brokers, *self._latency_ms, *known}):
            avoided: float | None = None
            reachable: bool | None = None
            if self.mode != "off":
                item = known.get(broker)
                avoided = 0.0 if item is None else item.available_in * 1000
                reachable = item is None or item.reachable
            self.rows.append(
                Row(
                    broker,
                    shares[broker],
                    shares[broker] / total,
                    self._latency_ms.get(broker),
                    avoided,
                    reachable,
                    self._failed[broker],
                )
            )

    def print(self, *, as_json: bool) -> None:
        """Print the rows to standard output."""
        if as_json:
            print_json(self.as_json())
        else:
            print_table(HEADINGS, [_cells(row) for row in self.rows])

    def as_json(self) -> dict[str, object]:
        return {"brokers": list(map(asdict, self.rows))}


HEADINGS = (
    "broker",
    f"share of last {WINDOW}",
    "last latency ms",
    "available",
    "reachable",
    "failed tries",
)


def _cells(row: Row) -> list[object]:
    available = "-"
    if row.available_in_ms is not None:
        available = f"in {row.available_in_ms / 1000:.1f} s" if row.available_in_ms > 0 else "now"
    latency = "-" if row.latency_ms is None else f"{row.latency_ms:.1f}"
    reachable = "-" if row.reachable is None else "yes" if row.reachable else "no"
    return [row.broker, f"{row.share:.1%}", latency, available, reachable, row.failed_tries]


def producer_for(
    faults: Faults, watch: BrokerWatch | None, group: str, common: Common, timeout: float, runtime: Runtime
) -> Producer:
    """A producer with the fault tolerance asked for, followed by ``watch``."""
    mode = faults.fault_tolerance
    return Producer(
        group,
        name_servers=common.addresses,
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
    """Show the table while the block runs, on standard error if that is a terminal; keep its last state."""
    if watch is None:
        yield
        return
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True)
    background = Background("watch")
    # Cleared at the end, when the lasting table goes to standard output.
    live = Live(console=console, auto_refresh=False, transient=True)

    async def show() -> None:
        await watch.refresh(producer, topic)
        live.update(_picture(watch), refresh=True)

    if not console.is_terminal:
        try:
            yield
        finally:
            await watch.refresh(producer, topic)
        return
    with live:
        background.spawn(every(runtime.clock, REFRESH_S, show, first_s=0), "table")
        try:
            yield
        finally:
            await background.stop()
            await watch.refresh(producer, topic)


def _picture(watch: BrokerWatch) -> Table:
    from rich.table import Table

    picture = Table(title=f"fault tolerance: {watch.mode}", title_justify="left")
    for number, heading in enumerate(HEADINGS):
        picture.add_column(heading, justify="left" if number == 0 else "right")
    for row in watch.rows:
        avoided = bool(row.available_in_ms) or row.reachable is False
        picture.add_row(*map(str, _cells(row)), style="red" if avoided else None)
    return picture
