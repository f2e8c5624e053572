"""The costs of keys: a broker that checks each signature, or the first of a connection, beside one without
keys.

    python -m benchmarks.keys [--short]

All three brokers run; while one is measured the others are paused (SIGSTOP), and the order changes from round
to round. Goals apply to the ratios within a round: their medians are printed and recorded. The frames differ
only in the keys. They are signed once, since only their opaque changes, which is not signed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import struct
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.measure import QUEUES, Case, Generator, keep, machine, record, table
from benchmarks.pages.records import cost
from benchmarks.remoting import Client, RequestError
from benchmarks.servers import Ours, stop_paused

from orbitmq.wire.command import Command
from orbitmq.wire.frame import encode_frame
from orbitmq.wire.signing import Credentials, Signer

ROOT: Final = Credentials("root", "a long secret")
ON: Final = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": "root", "password": "a long secret"}),
}
STATEFUL: Final = "org.apache.rocketmq.auth.authentication.strategy.StatefulAuthenticationStrategy"
OFF: Final = "none: no keys"
ONCE: Final = "the first of a connection"
EACH: Final = "each"
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    OFF: {},
    ONCE: {**ON, "authenticationStrategy": STATEFUL},
    EACH: ON,
}
SENDS: Final = "sends, 16 x 16"
SINGLE: Final = "sends, 64 x 1"
PULLS: Final = "pulls, 16 x 4"
CASES: Final = {SENDS: Case(), SINGLE: Case(connections=64, window=1), PULLS: Case(mode="pull", window=4)}
# The least ratios of a rate to the rate without keys.
GOALS: Final = {
    (SENDS, ONCE): 0.95,
    (SINGLE, ONCE): 0.95,
    (PULLS, ONCE): 0.95,
    (SENDS, EACH): 0.45,
    (SINGLE, EACH): 0.80,
}
HEADINGS: Final = [
    "load", "signatures checked", "rate; CPU", "rate to that without", "CPU to that without",
    "goal of the rate", "met",
]  # fmt: skip
Runs = Mapping[str, list[dict[str, float]]]
"""For each side, the rounds: ``rate``, and ``cpu_us`` per request."""
TOPIC: Final = "bench"
OPAQUE: Final = 1_000_000
BATCHES: Final = 100
STARTED_WITHIN_S: Final = 60.0


def frames() -> dict[str, Command]:
    """The requests, by mode of the generator."""
    unique = "UNIQ_KEY\x017F000001000100000000000000000000\x02WAIT\x01true\x02"
    send = dict(zip("abcdefghijkmn", ("bench", TOPIC, "TBW102", "4", "0", "0", "1700000000000", "0", unique,
                                      "0", "false", "false", "broker-a"), strict=True))  # fmt: skip
    body = b"x" * 128
    item = struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + bytes(2)
    pull = {
        "bname": "broker-a", "commitOffset": "0", "consumerGroup": "bench", "expressionType": "TAG",
        "maxMsgNums": "32", "queueId": "0", "queueOffset": "0", "subVersion": "1700000000000",
        "subscription": "*", "suspendTimeoutMillis": "0", "sysFlag": "4", "topic": TOPIC,
    }  # fmt: skip
    return {
        "send": Command(310, send, body, OPAQUE),
        "batch": Command(320, {**send, "i": "WAIT\x01true\x02", "m": "true"}, item * 32, OPAQUE),
        "pull": Command(11, pull, b"", OPAQUE),
    }


class Side:
    """A broker with a name server, which is paused unless it is measured."""

    def __init__(self, name: str, folder: Path, generator: Generator, cpus: set[int] | None) -> None:
        maker = Ours()
        self._generator = generator
        self._signer = None if name == OFF else Signer(ROOT)
        self._name_server = maker.name_server(folder)
        settings = {"flushDiskType": "ASYNC_FLUSH", **SETTINGS[name]}
        self._broker = maker.broker(folder, self._name_server.address, cpus=cpus, wait=False, **settings)
        self._frames: dict[str, Path] = {}
        for mode, command in frames().items():
            self._sign(command)
            path = self._frames[mode] = folder / mode
            path.write_bytes(encode_frame(command))
        self._make_topic()
        self._run(Case("batch", 1, 4), ops=BATCHES, warmup=0, duration=60)
        self._broker.pause()

    def _sign(self, command: Command) -> None:
        if self._signer is not None:
            self._signer.sign(command, ROOT)

    def _make_topic(self) -> None:
        create = Command(17, {"topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": str(QUEUES),
                              "writeQueueNums": str(QUEUES), "perm": "6", "topicFilterType": "SINGLE_TAG",
                              "topicSysFlag": "0", "order": "false"})  # fmt: skip
        self._sign(create)
        deadline = time.monotonic() + STARTED_WITHIN_S
        while True:
            try:
                with Client(self._broker.port) as client:
                    client.request(create.code, dict(create.ext))
                return
            except (OSError, RequestError):
                if time.monotonic() > deadline or self._broker.process.poll() is not None:
                    print(self._broker.tail())
                    raise
                time.sleep(0.1)

    def _run(self, case: Case, **more: object) -> dict[str, Any]:
        return self._generator.run(
            case.mode, port=self._broker.port, pid=self._broker.pid, topic=TOPIC, queues=QUEUES,
            connections=case.connections, window=case.window, frame=self._frames[case.mode],
            max_offset=32, **more,
        )  # fmt: skip

    def once(self, case: Case, seconds: float) -> dict[str, Any]:
        """Run a load once."""
        self._broker.resume()
        run = self._run(case, warmup=0.1, duration=seconds)
        self._broker.pause()
        if run["errors"] or run["mismatched"]:
            raise RuntimeError(
                f"{case.title}: {run['errors']}, {run['mismatched']} without an answer to match"
            )
        return run

    def close(self) -> None:
        """Stop both servers."""
        stop_paused(self._broker, self._name_server)


def measure(sides: Mapping[str, Side], case: Case, rounds: int, seconds: float) -> Runs:
    """The runs of one load, on all sides in turn."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for number in range(rounds):
        names = list(sides)[:: 1 if number % 2 else -1]
        found = {name: sides[name].once(case, seconds) for name in names}
        # A round is left out if a run has no answers or no measured CPU.
        if all(run["ops_per_second"] and run["server_cpu_us"] for run in found.values()):
            for name, run in found.items():
                runs[name].append({"rate": run["ops_per_second"], "cpu_us": run["server_cpu_us"]})
    return runs


def rows(title: str, runs: Runs) -> list[list[str]]:
    """A line for each side of a load: medians, medians of the ratios to the side without keys, and
    the goal.
    """
    lines = []
    for name in SETTINGS:
        middle = {key: statistics.median(run[key] for run in runs[name]) for key in ("rate", "cpu_us")}
        ratio = {
            key: statistics.median(
                ours[key] / off[key] for ours, off in zip(runs[name], runs[OFF], strict=True)
            )
            for key in middle
        }
        line = [title, name, cost(middle), *(f"{ratio[key]:.3f}" if name != OFF else "" for key in ratio)]
        least = GOALS.get((title, name))
        met = "" if least is None else "yes" if ratio["rate"] >= least else "**no**"
        lines.append([*line, "" if least is None else f">= {least:.2f}", met])
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.keys", description=__doc__)
    parser.add_argument("--short", action="store_true", help="few short rounds")
    options = parser.parse_args()
    rounds, seconds = (3, 0.2) if options.short else (15, 0.5)
    available = sorted(os.sched_getaffinity(0))
    server_cpus = set(available[:1]) if len(available) > 1 else None
    generator = Generator(set(available[1:]) or None)
    about = {
        "record": record(short=options.short, rounds=rounds, seconds=seconds, order="alternating"),
        "machine": machine(),
    }
    loads: dict[str, Runs] = {}
    with tempfile.TemporaryDirectory(prefix="orbitmq-keys-") as folder:
        sides: dict[str, Side] = {}
        try:
            for number, name in enumerate(SETTINGS):
                sides[name] = Side(name, Path(folder) / str(number), generator, server_cpus)
            for title, case in CASES.items():
                print(f"measuring {title}", flush=True)
                loads[title] = measure(sides, case, rounds, seconds)
        finally:
            for side in sides.values():
                side.close()
    place = f"{about['machine']['cpu']}, {about['machine']['cpus']} CPUs, {about['machine']['taken']}"
    text = f"""# What keys cost, on {place}, {about["record"]["kind"]} record

{rounds} rounds of {seconds:g} s of each side, which take turns; ASYNC_FLUSH, without TLS. The broker has a
core of its own, if there are two. Medians; ratios are medians of those within a round.

{table(HEADINGS, itertools.chain.from_iterable(rows(*load) for load in loads.items()))}"""
    print(text)
    print(f"\nkept in {keep('keys', text, {**about, 'loads': loads})}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
