"""The pure parts of the Spark jobs: names of files and their evidence, plans, rules, records; files."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from orbitmq.client.observe.trace import FIELD, RECORD
from orbitmq.client.observe.trace_records import TraceRecord, records
from orbitmq.message.model import MessageQueue
from orbitmq.spark.errors import JobError
from orbitmq.spark.jobs.archive_files import ArchiveWriter, check_footer, merge
from orbitmq.spark.jobs.archive_names import (
    ArchiveFile,
    contents,
    parse_path,
    plan_merges,
    redundant,
    resume_at,
)
from orbitmq.spark.jobs.archiving import verify
from orbitmq.spark.jobs.auditing import Side, reference, verdict
from orbitmq.spark.jobs.compacting import compact
from orbitmq.spark.jobs.dead_letter_tables import ranges
from orbitmq.spark.jobs.failures import reason
from orbitmq.spark.jobs.folder import Folder
from orbitmq.spark.jobs.frames import Span, files_of, is_archive
from orbitmq.spark.jobs.tables import claim, open_table

DAY = "2026-11-22"
DAY_MS = 1_795_305_600_000


def file(first: int, last: int, queue: int = 0, date: str = DAY, topic: str = "orders") -> ArchiveFile:
    return ArchiveFile(topic, "broker-a", queue, first, last, date)


# -- names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", ["orders", "%DLQ%billing", "a=b-c_d"])
@pytest.mark.parametrize("broker", ["broker-a", "b/1", "x-1-2-3"])
def test_a_name_says_what_a_file_holds(topic: str, broker: str) -> None:
    one = ArchiveFile(topic, broker, 3, 10, 12, DAY)
    assert parse_path(one.path) == one
    assert one.path.count("/") == 2
    assert one.rows == 3


@pytest.mark.parametrize(
    "path", ["", "topic=a/date=b/c.parquet", "topic=a/date=b/x-0-5-4.parquet", "_orbitmq/tmp/1-2.parquet"]
)
def test_other_files_are_passed_over(path: str) -> None:
    assert parse_path(path) is None


def test_what_names_prove() -> None:
    found = contents([file(0, 9), file(10, 19), file(30, 39), file(35, 44), file(0, 4, queue=1)])
    assert [one.queue.queue_id for one in found] == [0, 1]
    first, second = found
    assert (first.first, first.last, first.rows, first.files) == (0, 44, 35, 4)
    assert first.gaps == [(20, 29)]
    assert first.missing == 10
    assert first.doubled == [file(35, 44)]
    assert not first.complete
    assert second.complete
    assert resume_at([file(0, 9), file(5, 6), file(0, 4, queue=1)]) == {
        MessageQueue("orders", "broker-a", 0): 10,
        MessageQueue("orders", "broker-a", 1): 5,
    }


@pytest.mark.parametrize("seed", range(30))
def test_names_agree_with_the_offsets_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    files = list({file(low, low + rng.randrange(6)) for low in (rng.randrange(40) for _ in range(8))})
    seen = [offset for one in files for offset in range(one.first, one.last + 1)]
    (content,) = contents(files)
    assert content.rows == len(set(seen))
    assert content.missing == len(set(range(min(seen), max(seen) + 1)) - set(seen))
    assert bool(content.doubled) == (len(seen) > len(set(seen)))
    left_over = redundant(files)
    kept = [one for one in files if one not in left_over]
    assert {o for one in kept for o in range(one.first, one.last + 1)} == set(seen)
    for one in left_over:
        assert any(k.first <= one.first and one.last <= k.last for k in kept)


def test_small_neighbours_are_merged_up_to_the_target() -> None:
    sizes = {file(0, 9): 40, file(10, 19): 40, file(20, 29): 40, file(30, 39): 200, file(40, 49): 1,
             file(50, 59, date="2026-11-23"): 1, file(70, 79, date="2026-11-23"): 1,
             file(12, 13): 1}  # fmt: skip
    assert [one.parts for one in plan_merges(sizes, 100)] == [(file(0, 9), file(10, 19))]
    assert [one.target for one in plan_merges(sizes, 1000)] == [file(0, 49)]


def test_files_of_a_time_are_chosen_by_their_day() -> None:
    files = [file(n, n, date=f"2026-11-{20 + n}") for n in range(5)]
    assert files_of(files, Span()) == files
    assert files_of(files, Span(DAY_MS, DAY_MS + 1)) == [files[2]]
    assert files_of(files, Span(DAY_MS - 1, DAY_MS + 86_400_000)) == files[1:3]
    assert files_of(files, Span(DAY_MS + 10 * 86_400_000)) == []
    with pytest.raises(JobError, match="ends before it begins"):
        Span(5, 5)


@pytest.mark.parametrize(
    ("place", "archive"),
    [("orders", False), ("%DLQ%x", False), ("./a", True), ("s3://b/c", True), ("/data", True), ("~", True)],
)
def test_folders_and_topics_are_told_apart(place: str, archive: bool) -> None:
    assert is_archive(place) is archive


# -- files ---------------------------------------------------------------------------------------------------

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("broker", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("store_timestamp", pa.timestamp("us", "UTC")),
        ("tags", pa.string()),
        ("body", pa.binary()),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
)


def batch(rows: list[tuple[int, int, int]]) -> pa.RecordBatch:
    """Rows of (queue, offset, store time in ms)."""
    made = [
        {"topic": "orders", "broker": "broker-a", "queue_id": queue, "queue_offset": offset,
         "store_timestamp": at * 1000, "tags": "red", "body": b"x%d" % offset, "properties": [("a", "b")]}
        for queue, offset, at in rows
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(made, schema=SCHEMA)


def write(folder: Folder, *batches: list[tuple[int, int, int]]) -> list[str]:
    writer = ArchiveWriter(folder, "test")
    done = [one.path for rows in batches for one in writer.write(batch(rows))]
    return done + [one.path for one in writer.close()]


def test_a_file_ends_with_its_queue_its_day_or_at_a_gap(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "archive"))
    late = DAY_MS + 86_400_000
    paths = write(
        folder,
        [(0, 5, DAY_MS), (0, 6, DAY_MS + 1), (1, 7, DAY_MS)],
        [(1, 8, DAY_MS), (1, 9, late - 1), (1, 10, late), (1, 12, late)],
        [],
        [(1, 13, late)],
    )
    found = [parse_path(path) for path in paths]
    assert found == [file(5, 6), file(7, 9, 1), file(10, 10, 1, "2026-11-23"), file(12, 13, 1, "2026-11-23")]
    assert set(folder.archive_files()) == set(found)
    assert [check_footer(folder, one) for one in found if one] == [2, 3, 1, 2]
    assert not [path for path in folder.files() if "/tmp/" in path]
    with folder.open(paths[1]) as source:
        meta = pq.ParquetFile(source)
        assert meta.read().column("body").to_pylist() == [b"x7", b"x8", b"x9"]
        row_group = meta.metadata.row_group(0)
        encodings = {
            row_group.column(i).path_in_schema: row_group.column(i) for i in range(row_group.num_columns)
        }
    assert encodings["topic"].has_dictionary_page
    assert encodings["properties.key_value.key"].has_dictionary_page
    assert not encodings["body"].has_dictionary_page
    assert encodings["body"].compression == "ZSTD"
    # A repeated attempt replaces the files of the earlier one.
    write(folder, [(0, 5, DAY_MS), (0, 6, DAY_MS + 1)])
    assert len(folder.archive_files()) == 4


def test_an_archive_is_verified_by_names_and_footers(tmp_path: Path) -> None:
    place = str(tmp_path / "archive")
    folder = Folder(place)
    with pytest.raises(JobError, match="holds no archive"):
        verify(place)
    write(folder, [(0, n, DAY_MS) for n in range(10)])
    write(folder, [(0, n, DAY_MS) for n in range(10, 15)])
    report = verify(place, footers=True)
    assert report.ok
    assert "is complete: 15 messages in 2 files" in report.summary
    with pytest.raises(JobError, match="no archive of topic payments"):
        verify(place, ["payments"])
    write(folder, [(0, n, DAY_MS) for n in range(20, 22)])
    report = verify(place)
    assert not report.ok
    assert report.facts["missing"] == 5
    assert "first ones 15 to 19 of" in report.summary
    damaged = tmp_path / "archive" / file(20, 21).path
    damaged.write_bytes(b"PAR1 but not really")
    with pytest.raises(JobError, match=r"broker-a-0-20-21.parquet is damaged"):
        verify(place, footers=True)
    damaged.write_bytes((tmp_path / "archive" / file(0, 9).path).read_bytes())
    with pytest.raises(JobError, match="is not what its name says"):
        verify(place, footers=True)


def test_compacting_keeps_every_message_also_when_it_is_interrupted(tmp_path: Path) -> None:
    place = str(tmp_path / "archive")
    folder = Folder(place)
    for low in range(0, 50, 5):
        write(folder, [(0, n, DAY_MS) for n in range(low, low + 5)])
    assert "10 files would become 1" in compact(place, dry_run=True).summary
    # The state of a job that was killed after the merged file was written and before its parts were deleted.
    merge(folder, [file(0, 4), file(5, 9)], "compact")
    assert not verify(place).ok
    report = compact(place)
    assert (report.facts["files_before"], report.facts["files_after"]) == (11, 1)
    assert verify(place, footers=True).ok
    assert list(folder.archive_files()) == [file(0, 49)]
    with folder.open(file(0, 49).path) as source:
        assert pq.read_table(source).column("queue_offset").to_pylist() == list(range(50))
    assert compact(place).facts["files_after"] == 1


def test_a_damaged_file_ends_compacting_before_anything_is_removed(tmp_path: Path) -> None:
    place = str(tmp_path / "archive")
    for low in (0, 5):
        write(Folder(place), [(0, n, DAY_MS) for n in range(low, low + 5)])
    (tmp_path / "archive" / file(5, 9).path).write_bytes(b"no")
    with pytest.raises(JobError, match=r"5-9.parquet is damaged"):
        compact(place)
    assert set(Folder(place).archive_files()) == {file(0, 4), file(5, 9)}


def test_folders_that_cannot_be_used_are_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(JobError, match="taken cannot be written to"):
        Folder(str(tmp_path / "taken")).prepare()
    with pytest.raises(JobError, match="cannot be opened as a folder"):
        Folder("nosuch://place")


def test_a_full_disk_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = fs.LocalFileSystem()
    monkeypatch.setattr(Folder, "create", lambda *_: full.open_output_stream("/dev/full"))
    with pytest.raises(JobError, match=rf"^{tmp_path} cannot be written to: .*: No space left on device$"):
        write(Folder(str(tmp_path)), [(0, 5, DAY_MS)])


def test_formats_that_cannot_be_are_refused(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    with pytest.raises(JobError, match="known: parquet, delta, iceberg"):
        open_table("orc", folder, "")
    claim(folder, "delta")
    claim(folder, "delta")
    with pytest.raises(JobError, match="archive of format delta, not parquet"):
        claim(folder, "parquet")
    with pytest.raises(JobError, match="merges its files itself"):
        compact(str(tmp_path))


@pytest.mark.parametrize(("table_format", "package"), [("delta", "deltalake"), ("iceberg", "pyiceberg")])
def test_a_missing_package_is_named(
    table_format: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.catalog", None)
    with pytest.raises(JobError, match=f"pip install {package}"):
        open_table(table_format, Folder(str(tmp_path)), "c.n.t")


# -- rules ---------------------------------------------------------------------------------------------------


def test_audit_says_what_is_wrong_and_what_only_waits() -> None:
    assert reference(["stored", "archived"]) == "stored"
    assert reference(["archived", "stored", "sent"]) == "sent"
    sent, stored = Side("sent", 10, 10, 0, 0, 0), Side("stored", 10, 10, 0, 0, 0)
    assert verdict([sent, stored], 0, waits=None) == (True, "each message is there once")
    behind = Side("consumed", 8, 8, 2, 0, 0)
    assert verdict([sent, behind], 0, waits="consumed") == (
        True, "each message is there once; 2 wait to be consumed",
    )  # fmt: skip
    good, line = verdict([sent, Side("stored", 12, 9, 1, 2, 3), behind], 4, waits=None)
    assert not good
    assert line == (
        "1 lost (stored); 2 doubled (stored); 3 unknown (stored); 2 lost (consumed); "
        "4 offsets missing (stored)"
    )


def test_offsets_become_ranges() -> None:
    assert ranges([5, 3, 4, 4, 9]) == [(3, 6), (9, 10)]
    assert ranges([]) == []


def test_trace_records_of_each_release() -> None:
    def text(*fields: object) -> str:
        return FIELD.join(map(str, fields)) + RECORD

    new = text(
        "Pub", 100, "R", "g", "t", "ID", "tag", "k1 k2", "1.2.3.4:10911", 7, 3, 0, "OFF", "true", "host"
    )
    old = text("Pub", 100, "R", "g", "t", "ID", "null", "", "1.2.3.4:10911", 7, 3, 3, "false")
    before = text("SubBefore", 110, "R", "c", "REQ", "ID", 2, "k1")
    after = text("SubAfter", "REQ", "ID", 12, "true", "k1", 0, 122, "c")
    java = text("SubAfter", "REQ", "ID", 12, "true", "", 0, 122)
    older = text("SubAfter", "REQ", "ID", 12, "false", "null")
    found = list(records((new + old + before + after + java + older + "Pub\x01x\x02What\x01\x02").encode()))
    assert found == [
        TraceRecord("Pub", 100, "g", "t", "ID", "tag", "k1 k2", "1.2.3.4:10911", 7, 3, "normal", True),
        TraceRecord("Pub", 100, "g", "t", "ID", None, None, "1.2.3.4:10911", 7, 3, "delay", False),
        TraceRecord("SubBefore", 110, "c", None, "ID", keys="k1", retries=2, request_id="REQ"),
        TraceRecord("SubAfter", 122, "c", None, "ID", keys="k1", cost_ms=12, success=True, request_id="REQ"),
        TraceRecord("SubAfter", 122, message_id="ID", cost_ms=12, success=True, request_id="REQ"),
        TraceRecord("SubAfter", message_id="ID", cost_ms=12, success=False, request_id="REQ"),
        TraceRecord("unreadable"),
        TraceRecord("unreadable"),
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[STREAM_FAILED] Query [id = 1] terminated with exception: Traceback (most recent call last):\n"
            '  File "x.py", line 1\n'
            "orbitmq.spark.errors.DataLossError: offsets 1 to 2 are gone\n\n at java.X",
            "offsets 1 to 2 are gone",
        ),
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column `x` cannot be resolved. SQLSTATE: 42703; line 1",
            "A column `x` cannot be resolved.; line 1",
        ),
        (
            "\nTraceback (most recent call last):\n  File\nValueError: no such thing\n",
            "ValueError: no such thing",
        ),
        (
            "An error occurred while calling o467.save.\n: org.apache.spark.SparkException: [NO] "
            "Writing job aborted\n\tat org.apache.x\nCaused by: org.apache.spark.SparkException: "
            "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file /a.parquet.  SQLSTATE: KD001\n"
            "\tat java\nCaused by: java.lang.RuntimeException: /a.parquet is not a Parquet file. Expected",
            "Encountered error while reading file /a.parquet.",
        ),
        ("", "Spark failed and does not say why"),
    ],
)
def test_errors_of_spark_become_a_line(text: str, line: str) -> None:
    assert reason(text) == line
