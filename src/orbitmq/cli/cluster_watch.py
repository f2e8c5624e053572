"""``orbitmq cluster list --watch``: the brokers each second, on a terminal, in a file or as JSON."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from orbitmq.admin import Admin
from orbitmq.cli.output import print_json, table
from orbitmq.errors import OrbitError
from orbitmq.runtime.system import system_runtime

if TYPE_CHECKING:
    from rich.live import Live

    from orbitmq.admin.model import BrokerState
    from orbitmq.runtime.seam import Runtime

REFRESH_S = 1.0
# A frozen broker holds the picture of all others for no longer.
ANSWER_S = 1.5

Draw = Callable[["Sequence[BrokerState]", int | None], str]


async def watch(addresses: str, draw: Draw, as_json: Callable[[Sequence[BrokerState]], Any] | None) -> int:
    """Show the brokers again and again, until Ctrl-C; also while no name server answers.

    Args:
        draw: the table of some brokers for a terminal of so many columns; ``None``: as wide as it is.
        as_json: print JSON instead.

    Raises:
        OrbitError: the first look fails: nothing was ever there.
    """
    runtime = system_runtime()
    async with Admin(addresses, runtime=runtime, timeout=ANSWER_S) as admin:
        screen = _screen(draw, as_json)
        brokers = await admin.brokers.states()
        with screen:
            while True:
                screen.show(_now(runtime), brokers)
                await runtime.clock.sleep(REFRESH_S)
                brokers = await _look(admin, screen, runtime)


async def _look(admin: Admin, screen: _Screen, runtime: Runtime) -> Sequence[BrokerState]:
    """The brokers, as soon as a name server tells them."""
    while True:
        try:
            return await admin.brokers.states()
        except OrbitError as error:
            screen.fails(_now(runtime), str(error))
            await runtime.clock.sleep(REFRESH_S)


def _now(runtime: Runtime) -> str:
    return f"{runtime.clock.local_time(runtime.clock.now_ms()):%H:%M:%S}"


def _screen(draw: Draw, as_json: Callable[[Sequence[BrokerState]], Any] | None) -> _Screen:
    if as_json is not None:
        return _Lines(lambda brokers: print_json(as_json(brokers), one_line=True))
    return _Terminal(draw) if sys.stdout.isatty() else _Pages(draw)


class _Screen(ABC):
    """Where the brokers are shown."""

    @abstractmethod
    def __enter__(self) -> None: ...

    @abstractmethod
    def __exit__(self, *exc: object) -> None: ...

    @abstractmethod
    def show(self, now: str, brokers: Sequence[BrokerState]) -> None:
        """A look got these."""

    @abstractmethod
    def fails(self, now: str, why: str) -> None:
        """A look got no answer. Said once, however many follow."""


class _Lines(_Screen):
    """One line for each look; what fails goes to standard error, that a reader gets brokers only."""

    def __init__(self, put: Callable[[Sequence[BrokerState]], None]) -> None:
        self._put = put
        self._said = False

    def __enter__(self) -> None: ...

    def __exit__(self, *exc: object) -> None: ...

    def show(self, now: str, brokers: Sequence[BrokerState]) -> None:
        self._said = False
        self._put(brokers)

    def fails(self, now: str, why: str) -> None:
        if not self._said:
            self._said = True
            print(f"{now}  {why}: looking again", file=sys.stderr, flush=True)


class _Pages(_Lines):
    """A file or a pipe: one table below the other, each with its time, written at once."""

    def __init__(self, draw: Draw) -> None:
        super().__init__(lambda brokers: print(f"{draw(brokers, None)}\n", flush=True))

    def show(self, now: str, brokers: Sequence[BrokerState]) -> None:
        print(now)
        super().show(now, brokers)


class _Terminal(_Screen):
    """One picture that changes."""

    def __init__(self, draw: Draw) -> None:
        from rich.console import Console
        from rich.live import Live

        self._draw = draw
        self._console = Console(highlight=False)
        self._live: Live = Live(console=self._console, auto_refresh=False)

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(self, *exc: object) -> None:
        self._live.stop()

    def show(self, now: str, brokers: Sequence[BrokerState]) -> None:
        # The console is asked each time: a window changes its size.
        lines = self._draw(brokers, self._console.width).split("\n")
        broken = {number for number, broker in enumerate(brokers, 1) if broker.problem}
        self._put([now, *lines], {number + 1 for number in broken})

    def fails(self, now: str, why: str) -> None:
        self._put([now, f"{why}: looking again"], {1})

    def _put(self, lines: list[str], red: set[int]) -> None:
        from rich.text import Text

        picture = Text(overflow="fold")
        for number, line in enumerate(lines):
            picture.append(line + "\n" * (number < len(lines) - 1), "red" if number in red else None)
        self._live.update(picture, refresh=True)


def fitted(
    headings: Sequence[str], rows: Sequence[Sequence[object]], columns: int | None, spared: Sequence[str]
) -> str:
    """The table; a terminal of few columns goes without those of ``spared`` that do not fit, and is told.

    A line that is still longer is left to the terminal to break: half an address helps nobody.
    """
    left_out: list[str] = []
    drawn = table(headings, rows)
    for heading in spared:
        if columns is None or max(map(len, drawn.splitlines())) <= columns:
            break
        left_out.append(heading)
        kept = [number for number, each in enumerate(headings) if each not in left_out]
        drawn = table([headings[i] for i in kept], [[row[i] for i in kept] for row in rows])
    return f"{drawn}\n(no room for: {', '.join(left_out)})" if left_out else drawn
