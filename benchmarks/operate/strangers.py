"""Connections that cost a broker something beside sends: new TLS connections, and slow strangers."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from benchmarks.crowd import SPARE_DESCRIPTORS, allow_descriptors
from benchmarks.measure import Case
from benchmarks.operate.certificates import Pair, made
from benchmarks.operate.model import Found, Line, Place, Row
from benchmarks.operate.sides import Run, Side, beside, compared, give_way, in_turn

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import encode_frame

PACED: Final = Case(rate=20_000)
HANDSHAKES: Final = 200
"""New connections per second."""
WORKERS: Final = 8
STRANGERS: Final = 5_000
FEW_STRANGERS: Final = 1_000
ADDRESSES: Final = 10
"""Addresses of this machine for the strangers: a broker accepts at most 1,000 connections from one
address.
"""
FIRST_BYTES: Final = encode_frame(Command(RequestCode.GET_BROKER_RUNTIME_INFO, opaque=1))
GONE_S: Final = 12.0
"""A connection without a first frame is closed after 10 s."""
LINES = (
    Line("handshakes", "p99 of 20,000 sends/s, 200 new TLS connections/s beside / without", most=2),
    Line("handshakes_memory", "RssAnon more afterwards", "MB", most=8),
    Line("strangers", "p99 of 20,000 sends/s, 5,000 slow strangers beside / without", most=2),
    Line("strangers_memory", "RssAnon more when they are gone", "MB", most=8),
)


def take(place: Place) -> Mapping[str, Found]:
    """All figures of the row."""
    pair, count = made(place.folder), FEW_STRANGERS if place.short else STRANGERS
    allow_descriptors(count + SPARE_DESCRIPTORS)
    found: dict[str, Found] = {}
    with (
        Side(place.folder / "broker", place.apart(), pair.server, cpus=place.server_cpus) as side,
        side.working() as broker,
    ):
        side.load(PACED, 2.0)  # the broker's memory has to grow before it is measured
        handshakes, bytes_sent = Counter("handshakes"), Counter("bytes from strangers")
        works: dict[str, tuple[Counter, Callable[[], contextlib.AbstractContextManager[None]]]] = {
            "handshakes": (
                handshakes,
                partial(_handshaking, broker.port, pair, handshakes, place.other_cpus),
            ),
            "strangers": (bytes_sent, partial(_strangers, broker.port, count, bytes_sent, place.other_cpus)),
        }
        for key, (counter, work) in works.items():
            before = broker.anonymous_mb()
            runs = _runs(place, side, work)
            p99 = compared(runs, "p99", "beside", "without", "{:,.0f} us")
            # On a busy machine there are fewer than there should be: the record says how many there were.
            found[key] = replace(p99, made_of=f"{p99.made_of}, {counter.value:,} {counter.what}")
            time.sleep(GONE_S if key == "strangers" else 2.0)
            after = broker.anonymous_mb()
            found[f"{key}_memory"] = Found(after - before, made_of=f"{after:.1f} MB - {before:.1f} MB")
    return found


class Counter:
    """A number that several threads increment.

    Args:
        what: is counted.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.value = 0
        self._lock = threading.Lock()

    def add(self, number: int = 1) -> None:
        with self._lock:
            self.value += number


def _runs(
    place: Place, side: Side, work: Callable[[], contextlib.AbstractContextManager[None]]
) -> dict[str, list[Run]]:
    def once(*, more: bool) -> Run:
        with work() if more else contextlib.nullcontext():
            return side.load(PACED, place.seconds(3.0, 1.5))

    return in_turn(
        place.rounds(5), {name: partial(once, more=name == "beside") for name in ("beside", "without")}
    )


@contextlib.contextmanager
def _handshaking(port: int, pair: Pair, handshakes: Counter, cpus: set[int] | None) -> Iterator[None]:
    """Run workers, each of which opens a connection, sends a request, closes it, and waits until the next one
    is due.
    """
    context = ssl.create_default_context(cafile=str(pair.ca))

    def work(done: threading.Event) -> None:
        _work_apart(cpus)
        due = time.monotonic()
        while not done.wait(max(0.0, due - time.monotonic())):
            due += WORKERS / HANDSHAKES
            with (
                socket.create_connection(("127.0.0.1", port), timeout=30) as raw,
                context.wrap_socket(raw, server_hostname="127.0.0.1") as connection,
            ):
                connection.sendall(FIRST_BYTES)
                if not connection.recv(1):
                    raise ConnectionError("the broker closed a connection with TLS")
                handshakes.add()

    with contextlib.ExitStack() as stack:
        for _ in range(WORKERS):
            stack.enter_context(beside(work))
        yield


@contextlib.contextmanager
def _strangers(port: int, count: int, bytes_sent: Counter, cpus: set[int] | None) -> Iterator[None]:
    """Keep connections that send a byte of their first frame every second; closed ones are opened again."""
    ready = threading.Event()

    def connect(number: int) -> socket.socket:
        address = f"127.0.1.{1 + number % ADDRESSES}"
        one = socket.create_connection(("127.0.0.1", port), timeout=30, source_address=(address, 0))
        one.setblocking(False)
        return one

    def work(done: threading.Event) -> None:
        _work_apart(cpus)
        with contextlib.ExitStack() as stack:
            open_ones = [connect(number) for number in range(count)]
            stack.callback(_close, open_ones)
            sent = [0] * count
            ready.set()
            while not done.is_set():
                for number, one in enumerate(open_ones):
                    if number % (count // 100) == 0:
                        bytes_sent.add(count // 100)
                        if done.wait(0.01):
                            return
                    try:
                        one.send(FIRST_BYTES[sent[number] : sent[number] + 1])
                        sent[number] += 1
                    except OSError:
                        one.close()
                        open_ones[number] = connect(number)
                        sent[number] = 0

    with beside(work):
        ready.wait(60)
        yield


def _work_apart(cpus: set[int] | None) -> None:
    """Let the load generator go before the running thread, which stands for other machines."""
    if cpus:
        os.sched_setaffinity(0, cpus)
    give_way()


def _close(sockets: list[socket.socket]) -> None:
    for one in sockets:
        one.close()


ROW = Row("strangers", "strangers beside 20,000 sends/s", LINES, take)
