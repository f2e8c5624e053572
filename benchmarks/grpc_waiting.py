"""Push consumers of one group that wait for messages: the server's memory and CPU for each.

The consumers are the same program for both systems: each has a Telemetry stream and a receive that waits for
20 s, and calls Heartbeat every 10 s and QueryAssignment every 5 s, like the official Java client. 250
consumers share a connection. In each turn both systems are started anew. First :data:`FIRST` consumers call a
hundred times as often, to warm up the server; the memory per consumer is the growth from then on. For OrbitMQ
the memory is the process's (RssAnon); for the JVM, whose heap is fully allocated at the start, it is the live
heap after a collection.
"""

from __future__ import annotations

import heapq
import re
import selectors
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.grpc_judging import line
from benchmarks.grpc_places import Place, apache, ours
from benchmarks.grpc_wire import Wire
from benchmarks.pages.records import number
from benchmarks.servers import Server, ServerError

from orbitmq.gateway import schema
from orbitmq.gateway.messages import duration, new, parse
from orbitmq.gateway.schema import ClientType, FilterType
from orbitmq.gateway.status import Code

TOPIC, GROUP = "grpc-waiting", "grpc-waiting"
FIRST = 100
POLL_MS = 20_000
BATCH = 32
# OrbitMQ accepts 1,000 concurrent calls per connection; a consumer has at most four.
A_CONNECTION = 250
# Number of consumers that begin together.
TOGETHER = 50
HURRY = 100
OPEN_WITHIN_S = 120.0


@dataclass(frozen=True)
class Sizes:
    """Numbers of waiting consumers: at both systems, and in the last crowd; duration and settling time in
    seconds.
    """

    both: int = 1_000
    crowd: int = 10_000
    # A whole cycle of receives.
    seconds: float = 20.0
    settle_s: float = 3.0
    turns: int = 2


SHORT = Sizes(both=300, crowd=1_500, seconds=5.0, settle_s=1.0, turns=1)


@dataclass
class _Consumer:
    wire: Wire
    name: str
    refused: bool = False


class Crowd:
    """The consumers, which wait while :meth:`run` runs.

    Attributes:
        hurry: the factor by which Heartbeat and QueryAssignment are called more often.
    """

    def __init__(self, port: int, stack: ExitStack) -> None:
        self._port = port
        self._stack = stack
        self._selector = stack.enter_context(selectors.DefaultSelector())
        self._consumers: list[_Consumer] = []
        # The calls in flight, each with its consumer and method.
        self._calls: dict[tuple[Wire, int], tuple[_Consumer, str]] = {}
        self._due: list[tuple[float, int, str, _Consumer]] = []
        self._numbers = 0
        self.hurry = 1.0
        group, topic = new(schema.Resource, name=GROUP), new(schema.Resource, name=TOPIC)
        expression = new(schema.FilterExpression, type=FilterType.TAG, expression="*")
        entry = new(schema.SubscriptionEntry, topic=topic, expression=expression)
        subscription = new(schema.Subscription, group=group, subscriptions=[entry])
        settings = new(schema.Settings, client_type=ClientType.PUSH_CONSUMER, subscription=subscription)
        self._settings = new(schema.TelemetryCommand, settings=settings).SerializeToString()
        endpoints = new(
            schema.Endpoints, scheme=1, addresses=[new(schema.Address, host="127.0.0.1", port=port)]
        )
        requests = {
            "Heartbeat": new(schema.HeartbeatRequest, group=group, client_type=ClientType.PUSH_CONSUMER),
            "QueryAssignment": new(
                schema.QueryAssignmentRequest, topic=topic, group=group, endpoints=endpoints
            ),
            "ReceiveMessage": new(
                schema.ReceiveMessageRequest,
                group=group,
                message_queue=new(schema.MessageQueue, topic=topic),
                filter_expression=expression,
                batch_size=BATCH,
                auto_renew=True,
                long_polling_timeout=duration(POLL_MS),
            ),
        }
        self._data = {method: request.SerializeToString() for method, request in requests.items()}
        self._periods = {"Heartbeat": 10.0, "QueryAssignment": 5.0}

    @property
    def refused(self) -> int:
        """Number of consumers that the broker has refused, which do not wait."""
        return sum(consumer.refused for consumer in self._consumers)

    def grow(self, count: int) -> None:
        """Add consumers until this number is waiting."""
        until = time.monotonic() + OPEN_WITHIN_S
        while len(self._consumers) < count:
            some = [self._new() for _ in range(min(TOGETHER, count - len(self._consumers)))]
            streams = [self._begin(consumer, "Telemetry", self._settings) for consumer in some]
            self._flush()
            for consumer, stream in zip(some, streams, strict=True):
                consumer.wire.first(stream)
                self._begin(consumer, "ReceiveMessage", self._data["ReceiveMessage"])
                for method, period in self._periods.items():
                    # The first calls are spread over the period.
                    first = len(self._due) * 0.6180339 % 1 * period / self.hurry
                    self._later(consumer, method, first)
            self._flush()
            self.run(0)
            if time.monotonic() > until:
                raise ServerError(f"{len(self._consumers)} of {count} consumers within {OPEN_WITHIN_S} s")

    def _new(self) -> _Consumer:
        number = len(self._consumers)
        if number % A_CONNECTION == 0:
            wire = self._stack.enter_context(Wire(self._port, "unused"))
            self._selector.register(wire, selectors.EVENT_READ, wire)
        else:
            wire = self._consumers[-1].wire
        self._consumers.append(_Consumer(wire, f"waiting-{number}"))
        return self._consumers[-1]

    def _begin(self, consumer: _Consumer, method: str, data: bytes) -> int:
        stream = consumer.wire.begin(method, data, end=method != "Telemetry", client_id=consumer.name)
        self._calls[consumer.wire, stream] = consumer, method
        return stream

    def _later(self, consumer: _Consumer, method: str, seconds: float) -> None:
        self._numbers += 1
        heapq.heappush(self._due, (time.monotonic() + seconds, self._numbers, method, consumer))

    def _flush(self) -> None:
        for key in self._selector.get_map().values():
            key.data.flush()

    def run(self, seconds: float) -> None:
        """Let the consumers wait for this long.

        Raises:
            ServerError: a call fails for another reason than too many waiting consumers.
        """
        until = time.monotonic() + seconds
        while True:
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                _, _, method, consumer = heapq.heappop(self._due)
                self._begin(consumer, method, self._data[method])
            self._flush()
            wait = min(until, self._due[0][0]) - now if self._due else until - now
            for key, _ in self._selector.select(max(0.0, wait)):
                key.data.receive()
                for stream, found in key.data.done():
                    self._ended(*self._calls.pop((key.data, stream)), found)
            if time.monotonic() >= until:
                return

    def _ended(self, consumer: _Consumer, method: str, found: list[bytes]) -> None:
        if method == "Telemetry" or not found:
            raise ServerError(f"{method} of {consumer.name} has ended: {found}")
        if method == "ReceiveMessage":
            code = parse(schema.ReceiveMessageResponse, found[0]).status.code
            if code == Code.TOO_MANY_REQUESTS:
                consumer.refused = True
            elif code == Code.MESSAGE_NOT_FOUND:
                self._begin(consumer, method, self._data[method])
            else:
                raise ServerError(f"a receive of {consumer.name} is answered with {code}")
            return
        answer: type[Any] = getattr(schema, f"{method}Response")
        status = parse(answer, found[0]).status
        if status.code != Code.OK:
            raise ServerError(f"{method} of {consumer.name} is answered with {status}")
        self._later(consumer, method, self._periods[method] / self.hurry)


def live_heap_kb(server: Server) -> float:
    """The used heap of a JVM after a collection, in KiB."""
    for command in ("GC.run", "GC.heap_info"):
        done = subprocess.run(
            ["jcmd", str(server.pid), command], capture_output=True, text=True, timeout=60, check=True
        )
    found = re.search(r"used (\d+)K", done.stdout)
    if found is None:
        raise ServerError(f"jcmd says: {done.stdout}")
    return float(found[1])


def resident_kb(server: Server) -> float:
    """The anonymous memory of a process, in KiB."""
    return float(server.status("RssAnon"))


MEMORY: dict[str, Callable[[Server], float]] = {"ours": resident_kb, "apache": live_heap_kb}


def compare(folder: Path, *, short: bool) -> dict[str, Any]:
    """Both systems in turn; the larger crowd runs in the last turn."""
    sizes = SHORT if short else Sizes()
    found: dict[str, list[dict[str, Any]]] = {"ours": [], "apache": []}
    for turn in range(sizes.turns):
        for side in list(found)[:: 1 if turn % 2 == 0 else -1]:
            with (ours if side == "ours" else apache)(folder / f"{side}-{turn}") as place:
                found[side].append(_turn(place, side, sizes, last=turn == sizes.turns - 1))
    return found


def _turn(place: Place, side: str, sizes: Sizes, *, last: bool) -> dict[str, Any]:
    place.prepare(TOPIC, GROUP)
    memory = MEMORY[side]
    with ExitStack() as stack:
        crowd = Crowd(place.port, stack)
        crowd.hurry = HURRY
        crowd.grow(FIRST)
        crowd.run(place.warmup_s)
        crowd.hurry = 1.0
        before = memory(place.server), resident_kb(place.server)
        found: dict[str, Any] = _wait(place.server, crowd, sizes, sizes.both, before, memory)
        if last:
            found["crowd"] = _wait(place.server, crowd, sizes, sizes.crowd, before, memory)
    return found


def _wait(
    server: Server,
    crowd: Crowd,
    sizes: Sizes,
    count: int,
    before_kb: tuple[float, float],
    memory: Callable[[Server], float],
) -> dict[str, Any]:
    """Let this many consumers wait; returns the costs of each. If some are refused, only their number is
    returned.
    """
    crowd.grow(count)
    crowd.run(sizes.settle_s)
    if crowd.refused:
        return {"count": count, "refused": crowd.refused}
    cpu_s = server.cpu_s()
    crowd.run(sizes.seconds)
    cpu_s = server.cpu_s() - cpu_s
    cpu_us = cpu_s / sizes.seconds / count * 1e6
    grown_kb = (
        now - before for now, before in zip((memory(server), resident_kb(server)), before_kb, strict=True)
    )
    each_kb, process_kb = (each / (count - FIRST) for each in grown_kb)
    found = {"each_kb": each_kb, "process_kb": process_kb, "cpu_us": cpu_us}
    return {"count": count, "refused": crowd.refused, **found}


def lines(found: Mapping[str, Any]) -> list[list[str]]:
    """Memory and CPU per consumer, and the number of refused ones."""
    count, crowds = found["ours"][0]["count"], {side: runs[-1]["crowd"] for side, runs in found.items()}
    rows = []
    for what, name, unit in (("memory", "each_kb", "KB"), ("CPU in a second", "cpu_us", "us")):
        values = {side: [run[name] for run in runs] for side, runs in found.items()}
        middle = {side: statistics.median(each) for side, each in values.items()}
        title = f"waiting push consumers of one group: {what} of each"
        cells = [f"{number(each)} {unit}" for each in middle.values()]
        if name == "each_kb":
            process_kb = statistics.median(run["process_kb"] for run in found["apache"])
            cells[1] += f" of heap (process: {number(process_kb)} KB)"
        rows.append(line(f"{count:,} {title}", cells, values, most=1 / 3))
        mine, theirs = crowds["ours"], crowds["apache"]
        if name in mine:
            beside = f"{cells[1]} (of {count:,})" if name not in theirs else f"{number(theirs[name])} {unit}"
            pair = {"ours": [mine[name]], "apache": [theirs.get(name, middle["apache"])]}
            shown = [f"{number(mine[name])} {unit}", beside]
            rows.append(line(f"{mine['count']:,} {title}", shown, pair, most=1 / 3))
    mine, theirs = crowds["ours"], crowds["apache"]
    refused = [f"{one['refused']:,}" for one in (mine, theirs)]
    met = "**no**" if mine["refused"] else "yes"
    rows.append([f"refused of {mine['count']:,} that wait", *refused, "", "0", met])
    return rows
