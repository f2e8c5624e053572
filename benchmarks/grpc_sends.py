"""Sends over gRPC by nghttp2's ``h2load``, which repeats one request, in plaintext or over TLS.

The headers never change, which favours both sides. The topic's offsets show that each call stored its
message.
"""

from __future__ import annotations

import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.grpc_judging import cell, line
from benchmarks.grpc_places import LIMIT_S, TOPIC, Place
from benchmarks.grpc_wire import Run, prefixed, send_request
from benchmarks.measure import Effort
from benchmarks.servers import ServerError

BODY_BYTES = 128
PATH = "/apache.rocketmq.v2.MessagingService/SendMessage"
HEADERS = ("content-type: application/grpc", "te: trailers", "x-mq-client-id: h2load", "x-mq-language: JAVA")


@dataclass(frozen=True)
class Load:
    """A number of connections, and of calls in flight on each."""

    connections: int
    calls: int

    @property
    def title(self) -> str:
        return f"SendMessage {BODY_BYTES} B, {self.connections} x {self.calls}"


LOADS = (Load(1, 1), Load(64, 1), Load(16, 16))
# The loads compared over TLS and in plaintext.
COMPARED = (Load(64, 1), Load(16, 16))
FILLING = Load(16, 16)


def _command(load: Load, data: Path) -> list[str]:
    command = ["h2load", "-c", str(load.connections), "-m", str(load.calls), "-d", str(data)]
    return [*command, *(f"-H{header}" for header in HEADERS)]


def run_load(place: Place, load: Load, folder: Path, seconds: float, *, tls: bool = False) -> Run:
    """One run of a load.

    Raises:
        ServerError: h2load fails, or not every call stored its message.
    """
    data, log = folder / "request", folder / "calls.tsv"
    data.write_bytes(prefixed(send_request(TOPIC, BODY_BYTES)))
    log.unlink(missing_ok=True)
    command = [*_command(load, data), "-D", f"{seconds * 1000:.0f}ms", f"--log-file={log}"]
    place.server.resume()
    before, cpu_s = place.stored(), place.server.cpu_s()
    done = subprocess.run(
        [*command, f"{'https' if tls else 'http'}://{place.endpoint}{PATH}"],
        capture_output=True,
        text=True,
        timeout=seconds + LIMIT_S,
        check=False,
    )
    cpu_s = place.server.cpu_s() - cpu_s
    stored = place.stored() - before
    place.server.pause()
    lines = log.read_text().splitlines() if log.exists() else []
    took_us = sorted(int(line.split("\t")[2]) for line in lines)
    # Calls in flight at the end may be stored without being counted, some of them only when the server
    # resumes.
    under_way = load.connections * load.calls
    if done.returncode != 0 or not took_us or abs(stored - len(took_us)) > 2 * under_way:
        said = f"{len(took_us)} calls, {stored} messages stored: {done.stdout[-500:]}{done.stderr[-200:]}"
        raise ServerError(f"{place.title}, {load.title}: {said}")
    return Run(
        rate=len(took_us) / seconds,
        cpu_us=cpu_s / len(took_us) * 1e6,
        p50_us=took_us[len(took_us) // 2],
        p99_us=took_us[len(took_us) * 99 // 100],
    )


def fill(place: Place, topic: str, count: int, folder: Path) -> None:
    """Store this many messages in an empty topic.

    Raises:
        ServerError: the topic has another number of messages afterwards.
    """
    data = folder / "filling"
    data.write_bytes(prefixed(send_request(topic, BODY_BYTES)))
    command = [*_command(FILLING, data), "-n", str(count), f"http://{place.endpoint}{PATH}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if (stored := place.stored(topic)) != count:
        raise ServerError(f"{place.title}: {stored} of {count} messages are stored: {done.stdout[-500:]}")


# -- TLS beside plaintext ------------------------------------------------------------------------------


def compare_tls(places: Sequence[Place], folder: Path, effort: Effort) -> dict[str, Any]:
    """Each load in plaintext and over TLS, at both systems in turn."""
    found: dict[str, Any] = {}
    for load in COMPARED:
        for place in places:
            for tls in (False, True):
                run_load(place, load, folder, place.warmup_s, tls=tls)
        runs: dict[str, list[dict[str, Any]]] = {"ours": [], "apache": []}
        for turn in range(effort.repeats):
            order = 1 if turn % 2 == 0 else -1
            for side, place in list(zip(runs, places, strict=True))[::order]:
                pair = {
                    tls: run_load(place, load, folder, effort.duration_s / 2, tls=tls)
                    for tls in (False, True)[::order]
                }
                runs[side].append({"plaintext": asdict(pair[False]), "tls": asdict(pair[True])})
        found[load.title] = runs
    return found


def tls_lines(found: Mapping[str, Any]) -> list[list[str]]:
    """The share of the plaintext rate that remains over TLS."""
    lines = []
    for title, runs in found.items():
        shares = {
            side: [run["tls"]["rate"] / run["plaintext"]["rate"] for run in pairs]
            for side, pairs in runs.items()
        }
        cells = []
        for side, pairs in runs.items():
            middle = {
                name: statistics.median(run["tls"][name] for run in pairs) for name in ("rate", "cpu_us")
            }
            cells.append(f"{statistics.median(shares[side]):.2f}; {cell(middle)}")
        lines.append(
            line(f"{title} over TLS: share of the plaintext rate; rate, CPU", cells, shares, least=1)
        )
    return lines
