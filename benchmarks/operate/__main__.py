"""The costs of operating a broker: metrics, keys, rules, TLS, strangers, the console, the command line.

    python -m benchmarks.operate [--short] [--row metrics --row tls]

Each figure has a goal. Sides take turns, and the one that begins changes from round to round; a ratio or a
difference is the median of the values within the rounds. A full record keeps the rows that are not measured
again. Apache's broker comes from Maven Central; without it the figures that need it are left out.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.measure import keep, machine, record, table
from benchmarks.operate.model import Place, Row
from benchmarks.operate.rows import ROWS
from benchmarks.operate.tables import tables
from benchmarks.pages.records import RESULTS
from benchmarks.servers import PeerUnavailableError, apache_classpath, left_out


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.operate", description=__doc__)
    parser.add_argument("--short", action="store_true", help="few short rounds")
    parser.add_argument("--row", action="append", choices=ROWS, help="only this one; may be repeated")
    parser.add_argument("--folder", type=Path, help="where brokers keep their data (default: /tmp)")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exit cleans up servers and folders
    apache = None
    try:
        apache = apache_classpath()
    except PeerUnavailableError as error:
        left_out(f"operate: figures beside Apache are left out: {error}")
    kept = RESULTS / "operate.json"
    content: dict[str, Any] = {
        "record": record(short=options.short, order="alternating"),
        "machine": machine(),
    }
    content["rows"] = {} if options.short or not kept.exists() else json.loads(kept.read_text())["rows"]
    failed = []
    for key in options.row or ROWS:
        try:
            content["rows"][key] = _taken(ROWS[key], options, apache)
        except Exception:  # the other rows are still measured
            traceback.print_exc()
            failed.append(key)
            continue
        kept = keep("operate", page(content), content)
    print(f"\n{page(content)}\n\nkept in {kept}")
    if failed:
        print(f"FAILED: {', '.join(failed)}")
    return 1 if failed else 0


def page(content: dict[str, Any]) -> str:
    """The record as a page, with a table for each of its rows."""
    about, kind = content["machine"], content["record"]["kind"]
    title = (
        f"# What operating costs, on {about['cpu']}, {about['cpus']} CPUs, {about['taken']}, {kind} record"
    )
    return "\n\n".join([title, *(table(*one) for one in tables(ROWS, content["rows"]))])


def _taken(row: Row, options: argparse.Namespace, apache: str | None) -> dict[str, Any]:
    """One row of the record."""
    print(f"measuring {row.key}: {row.title}", flush=True)
    about, begin = machine(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="orbitmq-operate-", dir=options.folder) as folder:
        found = row.take(Place(Path(folder), options.short, apache))
    seconds = round(time.monotonic() - begin)
    for line in row.lines:
        if line.key in found:
            met = {None: "", True: "met", False: "MISSED"}[line.met(found[line.key].value)]
            print(f"  {line.what}: {line.shown(found[line.key].value)}  {line.goal()}  {met}", flush=True)
    return {
        "taken": about["taken"], "load_before": about["load_before"], "seconds": seconds,
        "found": {key: asdict(one) for key, one in found.items()},
    }  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
