"""Faults of gRPC clients and their brokers: OrbitMQ and Apache's proxy with its broker, in one run.

    python -m benchmarks.grpc_faults [NAME ...] [--short] [--record]

The clients are the official Java client, on separate machines (network namespaces, which need root, ``ip``
and ``tc``). Apache's proxy and broker are one JVM (``-pm local``). Brokers flush before they answer
(SYNC_FLUSH). The first three faults of a side are played together, the others one after the other; OrbitMQ's
side ends before Apache's begins. Prints figures, ratios and goals. The exit code is 1 if OrbitMQ misses a
goal.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.grpc_faults import clusters, network, plays
from benchmarks.grpc_faults.goals import APACHE, HEADINGS, OURS, TITLES, Side, failures, reasons, rows
from benchmarks.grpc_faults.lab import FaultError, Lab
from benchmarks.grpc_faults.site import Site
from benchmarks.grpc_places import proxy_jars
from benchmarks.measure import keep, machine, record, table
from benchmarks.servers import Apache, Ours, PeerUnavailableError, ServerError
from tests.interop.grpc_clients import Client, java_client

from orbitmq.errors import OrbitError

CLIENT: Final = "5.2.0"
HEAP_MB: Final = 768
# These faults mostly wait, and are independent of each other.
TOGETHER: Final = {
    "killed": plays.consumer_killed,
    "slow": plays.slow_handler,
    "lost answer": plays.answer_lost,
}
ALONE: Final = {
    "broker killed": plays.broker_killed,
    "one dead": clusters.one_dead,
    "master lost": clusters.master_lost,
}


def play(play: plays.Play, name: str, lab: Lab) -> plays.Figures | str:
    """The figures of a fault, or the reason why there are none."""
    began = time.monotonic()
    try:
        found: plays.Figures | str = play(lab)
    except FaultError as error:
        found = str(error)
    except (ServerError, TimeoutError, OSError, OrbitError) as error:
        found = f"{type(error).__name__}: {error}"
    print(f"  {TITLES[name]}: {found}, took {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return found


def played(
    maker: Ours | Apache,
    java: Client,
    folder: Path,
    names: Collection[str],
    numbers: Iterator[int],
    *,
    short: bool,
) -> Side:
    """Play all faults on one side."""
    print(f"{maker.title}:", file=sys.stderr, flush=True)
    found: dict[str, plays.Figures | str] = {}
    with ExitStack() as stack:
        try:
            lab = Lab(Site(maker, folder, stack), java, stack, numbers, short=short)
        except (ServerError, TimeoutError) as error:
            return dict.fromkeys(names, str(error))
        together = [name for name in TOGETHER if name in names]
        # Processes started by a thread end with the thread.
        pool = stack.enter_context(ThreadPoolExecutor(max(1, len(together))))
        found |= zip(together, pool.map(lambda name: play(TOGETHER[name], name, lab), together), strict=True)
        found |= {name: play(ALONE[name], name, lab) for name in ALONE if name in names}
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    names = [*TOGETHER, *ALONE]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}; all by default")
    parser.add_argument("--short", action="store_true", help="handlers take 75 s, not 3 minutes")
    parser.add_argument("--record", action="store_true", help="put the tables into benchmarks/results")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.names if name not in names]:
        parser.error(f"no such fault: {', '.join(unknown)}")
    about = {"record": record(short=options.short, client=f"Java {CLIENT}"), "machine": machine()}
    with tempfile.TemporaryDirectory(prefix="orbitmq-grpc-faults-") as name:
        folder = Path(name)
        try:
            java = java_client(CLIENT, folder)
            makers: dict[str, Ours | Apache] = {OURS: Ours(), APACHE: Apache(proxy_jars(), heap_mb=HEAP_MB)}
            network.enter()
        except (PeerUnavailableError, network.NoNetworkError) as error:
            sys.exit(f"grpc_faults: left out: {error}")
        numbers = itertools.count(1)
        sides = {
            side: played(maker, java, folder / side, options.names or names, numbers, short=options.short)
            for side, maker in makers.items()
        }
    place = f"{about['machine']['cpu']}, {about['machine']['cpus']} CPUs, {about['machine']['taken']}"
    handler_s = plays.SHORT_HANDLER_S if options.short else plays.HANDLER_S
    why = "".join(f"\n- {reason}" for reason in reasons(sides))
    text = f"""# Faults of gRPC clients, here and at Apache's, on {place}, {about["record"]["kind"]} record

Written by `python -m benchmarks.grpc_faults --record`. Clients are Java {CLIENT}; Apache 5.5.0 is its proxy
with the broker in one JVM (`-pm local`); both flush before they answer. Slow handlers take {handler_s:.0f} s.
What is done: `benchmarks/grpc_faults/plays.py`.

{table(HEADINGS, rows(sides))}
{why}"""
    print(text.rstrip())
    if options.record:
        print(f"\nkept in {keep('grpc-faults', text.rstrip(), {**about, 'sides': sides})}")
    wrong = failures(sides)
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
