"""A broker that no gRPC client has called, beside the same broker without the gateway: start and idle memory.

No setting removes the gateway. The broker without it runs the same program with an empty extension in the
gateway's place, so that no module of the gateway is imported.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.pages.records import number
from benchmarks.servers import Ours, Server

PAIRS, SHORT_PAIRS = 10, 3
# The largest allowed ratio of start times, and of memory.
MOST_TIMES = 1.05
IDLE_S = 1.0
_MAIN = "import sys; from orbitmq.cli.main import main; sys.exit(main())"
_NOTHING = """
import sys, types
def attach(host):
    from orbitmq.broker.extension import Attachment
    return Attachment([])
stub = types.ModuleType("orbitmq.gateway.attach")
stub.attach = attach
sys.modules[stub.__name__] = stub
"""


@dataclass(frozen=True)
class _Maker(Ours):
    """Starts brokers by another main program."""

    program: str = _MAIN

    def _command(self, what: str) -> list[str]:
        return [sys.executable, "-c", self.program, what]


MAKERS = {"with": _Maker(), "without": _Maker(program=_NOTHING + _MAIN)}


def measure(folder: Path, *, short: bool) -> dict[str, Any]:
    """Starts of both brokers in turn, each with an empty store."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in MAKERS}
    with ExitStack() as stack:
        name_server = Ours().name_server(folder / "names")
        stack.callback(name_server.kill)
        # An extra first pair, which is not counted, reads the files from the disk.
        for turn in range(-1, SHORT_PAIRS if short else PAIRS):
            for name in list(MAKERS)[:: 1 if turn % 2 == 0 else -1]:
                one = _once(MAKERS[name], folder / f"{name}-{turn}", name_server)
                if turn >= 0:
                    found[name].append(one)
    return found


def _once(maker: Ours, folder: Path, name_server: Server) -> dict[str, float]:
    broker = maker.broker(folder, name_server.address)
    try:
        time.sleep(IDLE_S)
        return {"ready_s": broker.ready_s, "idle_mb": broker.anonymous_mb()}
    finally:
        broker.stop()


def lines(found: Mapping[str, Any]) -> list[list[str]]:
    """The lines of the table; Apache has no broker without its proxy's part for comparison."""
    rows = []
    for title, name, unit in (("ready after start", "ready_s", "s"), ("idle memory", "idle_mb", "MB")):
        values = {which: [run[name] for run in runs] for which, runs in found.items()}
        ratio = statistics.median(
            one / other for one, other in zip(values["with"], values["without"], strict=True)
        )
        middle = {which: f"{number(statistics.median(each))} {unit}" for which, each in values.items()}
        rows.append(
            [
                f"a broker that no gRPC client has called: {title}, beside it without the gateway",
                f"{middle['with']}, {middle['without']}",
                "",
                f"{ratio:.2f} (ours to ours)",
                f"<= {MOST_TIMES:.2f}",
                "yes" if ratio <= MOST_TIMES else "**no**",
            ]
        )
    return rows
