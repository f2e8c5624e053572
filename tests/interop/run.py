"""`make interop`: OrbitMQ and Apache RocketMQ on opposite ends of every connection.

Fetches Apache's jars by their Maven coordinates, starts what it needs on free loopback ports with small
heaps, runs the cells of the matrix, prints a table, stops everything it started. Without Maven Central it
prints one line and succeeds; where ``ORBITMQ_CI`` is set, a cell that is skipped fails the run.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.measure import table
from benchmarks.servers import PEER_VERSION, PeerUnavailableError, ServerError, apache_classpath, left_out
from tests.interop import (
    access_cells,
    acting_cells,
    admin_cells,
    dashboard_cells,
    disk_cells,
    divergence_cells,
    java_cells,
    metrics_cells,
    own_admin_cells,
    plain_acl_cells,
    pop_cells,
    program_cells,
    proxy_cells,
    python_cells,
    python_consumer_cells,
    python_recall_cells,
    python_trace_cells,
    python_transaction_cells,
    quorum_cells,
    registration_cells,
    replica_cells,
    rights_cells,
    secured_cells,
    spark_cells,
    spark_job_cells,
    spark_sink_cells,
    sql_cells,
    timer_cells,
)
from tests.interop.baseline import load
from tests.interop.world import CellError, Place, World

PlaceCell = Callable[[World, Place], None]
FreeCell = Callable[[World], None]

# What Apache's own broker does with our Java programs: shows that a failure elsewhere is ours.
JAVA_BASIC: dict[str, PlaceCell] = {
    "java sync": java_cells.sync,
    "java async": java_cells.asynchronous,
    "java one-way": java_cells.oneway,
    "java batch": java_cells.batch,
    "java compressed": java_cells.compressed,
    "java push, 2 consumers": java_cells.push,
    "java tag filter": java_cells.tags,
    "java sql": sql_cells.java,
    "java lite pull": java_cells.lite,
    "java assigned pull": java_cells.assigned,
    "java orderly": java_cells.orderly,
    "java broadcast": java_cells.broadcast,
    "java delayed": java_cells.delayed,
    "java retry": java_cells.retry,
    "java dead letter": java_cells.dead_letter,
    "java transactions": java_cells.transactions,
    "java request-reply": java_cells.request_reply,
}


REPLICAS: dict[str, FreeCell] = {
    **replica_cells.CELLS,
    **divergence_cells.CELLS,
    **quorum_cells.CELLS,
    **acting_cells.CELLS,
    **spark_cells.SLAVE_CELLS,
    **proxy_cells.CELLS,
}


def with_old_clients(cell: PlaceCell) -> PlaceCell:
    """The same cell with the Java clients of 4.9."""

    def run(world: World, place: Place) -> None:
        with world.old_clients():
            cell(world, place)

    return run


JAVA_OLD: dict[str, PlaceCell] = {
    f"java 4.9 {name}": with_old_clients(cell)
    for name, cell in (
        ("sync", java_cells.sync),
        ("async", java_cells.asynchronous),
        ("one-way", java_cells.oneway),
        ("batch", java_cells.batch),
        ("compressed", java_cells.compressed),
        ("push, 2 consumers", java_cells.push),
        ("tag filter", java_cells.tags),
        ("sql", sql_cells.java),
        ("lite pull", java_cells.lite),
        ("orderly", java_cells.orderly),
        ("broadcast", java_cells.broadcast),
        ("delayed", java_cells.delayed),
        ("retry", java_cells.retry),
        ("dead letter", java_cells.dead_letter),
        ("transactions", java_cells.transactions),
        ("request-reply", java_cells.request_reply),
    )
}
JAVA_OLD_BRIEF = {
    name: JAVA_OLD[name] for name in ("java 4.9 sync", "java 4.9 batch", "java 4.9 push, 2 consumers")
}
TIMERS: dict[str, PlaceCell] = {
    "java timers and recall": timer_cells.java,
    "python recall": python_recall_cells.recall,
}
PYTHON: dict[str, PlaceCell] = {
    "python, 2 consumers": python_cells.two_consumers,
    "python batch": python_cells.batch,
    "python one-way": python_cells.oneway,
    "python compressed": python_cells.compressed,
    "python tag filter": python_cells.tags,
    "python retry": python_cells.retry,
    "python settling": python_consumer_cells.settling,
    "python polling": python_consumer_cells.polling,
    "python delayed": python_cells.delayed,
    "python orderly": python_cells.orderly,
    "python broadcast": python_cells.broadcast,
    "python trace": python_trace_cells.trace,
    "python transactions": python_transaction_cells.transactions,
    "python request-reply": python_transaction_cells.request_reply,
    "python to java": python_cells.to_java,
    "java to python": python_cells.from_java,
    "python sql": sql_cells.python,
    "sql values": sql_cells.values,
}
SPARK = spark_cells.PLACE_CELLS | spark_sink_cells.PLACE_CELLS | spark_job_cells.PLACE_CELLS
PYTHON_POP: dict[str, PlaceCell] = {
    "python simple": pop_cells.python_simple,
    "python pop push": pop_cells.python_push,
    "python pop orderly": pop_cells.python_orderly,
}
PYTHON_BRIEF = {name: PYTHON[name] for name in ("python, 2 consumers", "python to java", "java to python")}
ADMIN: dict[str, PlaceCell] = {
    "mqadmin basics": admin_cells.basics,
    "mqadmin more": admin_cells.more,
    "mqadmin by key": admin_cells.by_key,
    "mqadmin clients": admin_cells.clients,
    "mqadmin messages": admin_cells.messages,
    "mqadmin groups": admin_cells.groups,
}
JAVA_POP: dict[str, PlaceCell] = {
    "java pop push": pop_cells.java_push,
    "java pop retry": pop_cells.java_retry,
    "java pop orderly": pop_cells.java_orderly,
}
PROGRAMS = program_cells.PLACE_CELLS
REGISTRATION: dict[str, PlaceCell] = {"registration of changes": registration_cells.changes}
JAVA_BRIEF = {name: JAVA_BASIC[name] for name in ("java sync", "java batch", "java push, 2 consumers")}

PLACES: dict[str, dict[str, PlaceCell]] = {
    "apache/apache": {**ADMIN, **JAVA_BASIC, **JAVA_POP, **PROGRAMS, **PYTHON_BRIEF},
    "ours/ours": {
        **ADMIN,
        **JAVA_BASIC,
        **JAVA_POP,
        **JAVA_OLD,
        **PROGRAMS,
        **PYTHON,
        **PYTHON_POP,
        **TIMERS,
        **SPARK,
    },
    "apache/ours": {**REGISTRATION, **JAVA_BRIEF, **PYTHON_BRIEF},
    "ours/apache": {
        **JAVA_BRIEF,
        **PYTHON,
        **PYTHON_POP,
        **TIMERS,
        **SPARK,
        **own_admin_cells.CELLS,
    },
    "apache 4.9/ours": {**REGISTRATION, **JAVA_OLD_BRIEF, **PYTHON_BRIEF},
    # 4.9 cannot pop.
    "ours/apache 4.9": {**JAVA_OLD_BRIEF, **PYTHON, **SPARK},
}
DISK: dict[str, FreeCell] = {
    "apache, apache, apache": disk_cells.apache_only,
    "apache, ours, apache": disk_cells.apache_first,
    "ours, apache, ours": disk_cells.ours_first,
    "open transactions, apache to ours": python_transaction_cells.apache_to_ours,
    "open transactions, ours to apache": python_transaction_cells.ours_to_apache,
    "waiting timers, apache to ours": timer_cells.apache_to_ours,
    "waiting timers, ours to apache": timer_cells.ours_to_apache,
    "waiting timers, apache to ours with kill -9": timer_cells.apache_to_ours_killed,
    "waiting timers, ours to apache with kill -9": timer_cells.ours_to_apache_killed,
    "messages in flight, apache to ours": pop_cells.apache_to_ours,
    "messages in flight, ours to apache": pop_cells.ours_to_apache,
    "messages in flight, apache to ours with kill -9": pop_cells.apache_to_ours_killed,
    "messages in flight, ours to apache with kill -9": pop_cells.ours_to_apache_killed,
    "apache, ours, apache with kill -9": disk_cells.apache_first_killed,
    "ours, apache, ours with kill -9": disk_cells.ours_first_killed,
}
# What SHORT=1 runs: each kind of peer, path and file once, in less than 15 minutes on two cores.
SHORT_PLACES: dict[str, dict[str, PlaceCell]] = {
    "ours/ours": {
        **ADMIN,
        **{name: cell for name, cell in JAVA_BASIC.items() if name != "java retry"},
        **JAVA_POP,
        **JAVA_OLD_BRIEF,
    },
    "apache/ours": {**REGISTRATION, "java sync": JAVA_BASIC["java sync"], **PYTHON_BRIEF},
    "ours/apache": {
        **{name: cell for name, cell in PYTHON.items() if name not in ("python trace", "python one-way")},
        **own_admin_cells.CELLS,
    },
    "apache 4.9/ours": {**REGISTRATION, "java 4.9 sync": JAVA_OLD["java 4.9 sync"], **PYTHON_BRIEF},
    "ours/apache 4.9": {
        **PYTHON_BRIEF,
        "python retry": PYTHON["python retry"],
        "spark time": SPARK["spark time"],
        "spark progress": SPARK["spark progress"],
        "spark job dead letters": SPARK["spark job dead letters"],
    },
}
SHORT_DISK = (
    "apache, ours, apache with kill -9",
    "open transactions, ours to apache",
    "messages in flight, apache to ours with kill -9",
)
SHORT_REPLICAS = (
    "ours copies apache 5.5.0",
    "apache 5.5.0 copies ours",
    f"proxy {PEER_VERSION} with users in front of ours",
)
SHORT_SECURED = (
    "Java clients as users of certificates",
    "Java clients, ours with TLS",
    "java 5.5.0, ours with ACL 2.0",
    "java 4.9.7, ours with ACL 1.0, briefly",
    "our clients, 4.9.7 with ACL 1.0",
    "our clients, 5.5.0 with ACL 2.0",
)


@dataclass
class Outcome:
    """What became of one cell: passed, FAILED or skipped, and why."""

    place: str
    cell: str
    state: str
    seconds: float = 0.0
    why: str = ""


class Matrix:
    """Runs the chosen cells and collects their outcomes."""

    def __init__(self, world: World, wanted: list[str], *, trace: bool) -> None:
        self.world = world
        self.wanted = wanted
        self.trace = trace
        self.outcomes: list[Outcome] = []

    def chosen(self, place: str, cell: str) -> bool:
        return not self.wanted or any(word in f"{place} {cell}" for word in self.wanted)

    def run_place(self, kind: str, cells: dict[str, PlaceCell]) -> None:
        chosen = {name: cell for name, cell in cells.items() if self.chosen(kind, name)}
        if not chosen:
            return
        name_server, _, broker = kind.partition("/")
        try:
            self.world.maker(name_server), self.world.maker(broker)
        except PeerUnavailableError as error:
            self.note(Outcome(kind, "all cells", "skipped", why=str(error)))
            return
        try:
            with self.world.place(name_server, broker) as place:
                for name, cell in chosen.items():
                    self.attempt(kind, name, partial(cell, self.world, place))
        except (ServerError, CellError) as error:
            self.note(Outcome(kind, "start and stop", "FAILED", why=str(error)))

    def attempt(self, place: str, name: str, work: Callable[[], None]) -> None:
        started = time.monotonic()
        outcome = Outcome(place, name, "passed")
        try:
            work()
        except PeerUnavailableError as error:
            outcome.state, outcome.why = "skipped", str(error)
        except Exception as error:  # whatever it is, the other cells still run
            outcome.state, outcome.why = "FAILED", f"{type(error).__name__}: {error}"
            if self.trace:
                traceback.print_exc()
        remarks, self.world.remarks = self.world.remarks, []
        outcome.why = "; ".join(filter(None, [outcome.why, *remarks]))
        outcome.seconds = time.monotonic() - started
        self.note(outcome)

    def note(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        print(f"{outcome.state:7} {outcome.place:14} {outcome.cell} ({outcome.seconds:.1f} s)", flush=True)
        if outcome.why:
            print(f"        {outcome.why}", flush=True)

    def table(self) -> str:
        rows = [
            [f"{o.place} {o.cell}", o.state, f"{o.seconds:.1f} s", " ".join(o.why.split())[:100]]
            for o in self.outcomes
        ]
        return table(["name server/broker and cell", "outcome", "time", "why"], rows)


def _without_baseline() -> dict[str, dict[str, PlaceCell]]:
    """The cells that show what mqadmin prints at Apache's servers, where that is not kept."""
    kept = load().conversations
    return {
        "apache/apache": {
            name: cell for name, cell in ADMIN.items() if name.removeprefix("mqadmin ") not in kept
        }
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.interop.run", description=__doc__)
    parser.add_argument("words", nargs="*", help="only cells whose place and name contain one of these")
    parser.add_argument("--list", action="store_true", help="print the cells and exit")
    parser.add_argument(
        "--short",
        action="store_true",
        help="each kind of peer, path and file once, in less than 15 minutes; Apache's mqadmin output "
        "as it is kept",
    )
    parser.add_argument("--trace", action="store_true", help="print the traceback of a failing cell")
    options = parser.parse_args()
    places, disk, replicas = PLACES, DISK, REPLICAS
    secured = secured_cells.CELLS | access_cells.CELLS | program_cells.CELLS
    secured |= plain_acl_cells.CELLS | dashboard_cells.CELLS | rights_cells.CELLS
    if options.short:
        places = {**_without_baseline(), **SHORT_PLACES}
        disk = {name: DISK[name] for name in SHORT_DISK}
        replicas = {name: REPLICAS[name] for name in SHORT_REPLICAS}
        secured = {name: secured[name] for name in SHORT_SECURED}
    free = {"disk": disk, "replicas": replicas, "secured": secured, "metrics": metrics_cells.CELLS}
    if options.list:
        for kind, cells in [*places.items(), *free.items()]:
            for name in cells:
                print(f"{kind} {name}")
        return 0
    logging.getLogger("orbitmq.client").setLevel(logging.ERROR)  # listeners fail here on purpose
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with ExitStack() as stack:
        try:
            classpath = apache_classpath()
        except PeerUnavailableError as error:
            left_out(f"skipped: {error}")
            return 0
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="orbitmq-interop-"))
        matrix = Matrix(World(classpath, Path(folder)), options.words, trace=options.trace)
        for kind, cells in places.items():
            matrix.run_place(kind, cells)
        for kind, free_cells in free.items():
            for name, free_cell in free_cells.items():
                if matrix.chosen(kind, name):
                    matrix.attempt(kind, name, partial(free_cell, matrix.world))
    print("\n" + matrix.table())
    count = Counter(outcome.state for outcome in matrix.outcomes)
    print(f"\n{count['passed']} passed, {count['FAILED']} failed, {count['skipped']} skipped")
    for outcome in matrix.outcomes:  # once more at the end: CI shows the last lines of what failed
        if outcome.state == "FAILED":
            print(f"FAILED  {outcome.place} {outcome.cell}: {outcome.why}")
    if count["skipped"]:
        left_out("the cells above that were skipped show nothing")
    return 1 if count["FAILED"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
