"""Tables over an archive's files: a batch that is committed again adds nothing. These tests need the tables'
packages.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa

from orbitmq.spark.jobs.archive_files import ArchiveWriter, WrittenFile
from orbitmq.spark.jobs.folder import Folder
from orbitmq.spark.jobs.tables import open_table

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("broker", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("store_timestamp", pa.timestamp("us", "UTC")),
        ("body", pa.binary()),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
)


def written(folder: Folder, first: int, count: int) -> list[WrittenFile]:
    rows = [
        {"topic": "orders", "broker": "b", "queue_id": 0, "queue_offset": n, "store_timestamp": n * 1000,
         "body": b"x", "properties": [("a", "b")]}
        for n in range(first, first + count)
    ]  # fmt: skip
    writer = ArchiveWriter(folder, "test")
    return [*writer.write(pa.RecordBatch.from_pylist(rows, schema=SCHEMA)), *writer.close()]


def test_a_delta_table_has_each_batch_once(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    folder = Folder(str(tmp_path / "archive"))
    table = open_table("delta", folder, "")
    first, second = written(folder, 0, 5), written(folder, 5, 3)
    for batch, files in ((0, first), (0, first), (1, []), (2, second), (2, second)):
        table.commit("query", batch, files)
    found = deltalake.DeltaTable(str(tmp_path / "archive"))
    assert found.version() == 1
    offsets = found.to_pyarrow_table(columns=["queue_offset", "date", "topic"])
    assert sorted(offsets.column("queue_offset").to_pylist()) == list(range(8))
    assert {str(day) for day in offsets.column("date").to_pylist()} == {"1970-01-01"}


def test_an_iceberg_table_has_each_batch_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__HERE__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__HERE__URI", f"sqlite:///{tmp_path}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__HERE__WAREHOUSE", f"file://{tmp_path}/warehouse")
    # pyiceberg.catalog reads these variables on import.
    monkeypatch.delitem(sys.modules, "pyiceberg.catalog", raising=False)
    catalogs = pytest.importorskip("pyiceberg.catalog")
    pytest.importorskip("sqlalchemy")
    folder = Folder(str(tmp_path / "archive"))
    table = open_table("iceberg", folder, "here.shop.orders")
    first, second = written(folder, 0, 5), written(folder, 5, 3)
    for batch, files in ((0, first), (0, first), (1, []), (2, second), (2, second)):
        table.commit("query", batch, files)
    found = catalogs.load_catalog("here").load_table("shop.orders").scan().to_arrow()
    assert sorted(found.column("queue_offset").to_pylist()) == list(range(8))
