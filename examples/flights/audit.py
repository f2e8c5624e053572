"""Is everything there, once? Compares what was sent, consumed and archived, and the statistics."""

from __future__ import annotations

import json
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from examples.flights.data import FLIGHTS, Table
from examples.flights.pipeline import raw_folder, statistics_file
from examples.flights.sender import Ledger

from orbitmq.spark.jobs import verify

Run = tuple[int, int]


@dataclass
class Audit:
    """The checks, in order: what, what was found, whether it is right."""

    checks: list[tuple[str, str, bool]] = field(default_factory=list)

    def check(self, what: str, found: object, wanted: object) -> None:
        """Add one check."""
        good = found == wanted
        self.checks.append((what, f"{found}" if good else f"{found}, wanted {wanted}", good))

    @property
    def is_good(self) -> bool:
        return all(good for _, _, good in self.checks)


def audit(out: Path, ledger: Ledger, consumers: Sequence[Mapping[str, Any]], times: int = 1) -> Audit:
    """All checks of the demo.

    Args:
        out: the demo's folder, with the Parquet files and the statistics.
        ledger: what the sender knows.
        consumers: the last report of each consumer.
        times: how often each flight was sent.
    """
    result = Audit()
    result.check("flights sent and stored", ledger.sent - ledger.not_ok, FLIGHTS * times)
    result.check("offsets acknowledged", sum(ledger.ends.values()), FLIGHTS * times)
    result.check("messages consumed", sum(report["count"] for report in consumers), ledger.sent)
    result.check(
        "bodies consumed as sent", sum(report["digest"] for report in consumers) == ledger.digest, True
    )
    runs: defaultdict[str, list[Run]] = defaultdict(list)
    for report in consumers:
        for queue, found in report["ranges"].items():
            runs[queue] += [(first, last) for first, last in found]
    result.check("consumed offsets not seen exactly once", sum(_faults(runs, ledger.ends)), 0)
    _check_archive(result, out, ledger)
    found = Table.from_json(json.loads(statistics_file(out).read_text()))
    wanted = ledger.expected
    different = [
        key
        for key in found.cells.keys() | wanted.cells.keys()
        if found.cells.get(key) != wanted.cells.get(key)
    ]
    result.check(f"statistics different from the file's, of {len(wanted.cells)}", len(different), 0)
    return result


def _check_archive(result: Audit, out: Path, ledger: Ledger) -> None:
    """Names, count, ids, offsets, bodies and tags of the Parquet files."""
    good = verify(str(raw_folder(out)), footers=True).ok
    result.check("archive complete by its names and footers", good, True)
    archive = ds.dataset(raw_folder(out), format="parquet")
    columns = ["broker", "queue_id", "queue_offset", "message_id", "keys", "body", "tags"]
    count = digest = keyless = misplaced = 0
    ids: set[str] = set()
    offsets: defaultdict[str, list[int]] = defaultdict(list)
    for batch in archive.to_batches(columns=columns):
        values = batch.to_pydict()
        count += batch.num_rows
        ids.update(values["message_id"])
        keyless += values["keys"].count(None)
        for broker, queue_id, offset in zip(
            values["broker"], values["queue_id"], values["queue_offset"], strict=True
        ):
            offsets[f"{broker}/{queue_id}"].append(offset)
        for body, carrier in zip(values["body"], values["tags"], strict=True):
            digest += zlib.crc32(body)
            misplaced += f'"carrier":"{carrier}"'.encode() not in body
    result.check("messages in Parquet", count, ledger.sent)
    result.check("different message ids in Parquet", len(ids), ledger.sent)
    result.check("bodies in Parquet as sent", digest == ledger.digest, True)
    result.check("flights without tail number have no key", keyless, ledger.without_key)
    result.check("messages with another carrier's tag", misplaced, 0)
    single = {queue: [(offset, offset) for offset in found] for queue, found in offsets.items()}
    result.check("archived offsets not seen exactly once", sum(_faults(single, ledger.ends)), 0)


def _faults(runs: Mapping[str, Iterable[Run]], ends: Mapping[str, int]) -> Iterable[int]:
    """For each queue, how many offsets are missing, repeated or beyond the end."""
    for queue in runs.keys() | ends.keys():
        seen: Counter[int] = Counter()
        for first, last in runs.get(queue, ()):
            seen.update(range(first, last + 1))
        end = ends.get(queue, 0)
        repeated = sum(seen.values()) - len(seen)
        inside = sum(1 for offset in seen if 0 <= offset < end)
        yield repeated + (end - inside) + (len(seen) - inside)
