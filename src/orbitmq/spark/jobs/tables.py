"""Tables over an archive's files: one commit for each batch, with query and batch as its key.

The workers have written the files; a commit only lists them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from orbitmq.runtime.worker import this_worker
from orbitmq.spark.errors import JobError
from orbitmq.spark.jobs.archive_files import WrittenFile
from orbitmq.spark.jobs.archive_names import OWN_FOLDER, parse_path
from orbitmq.spark.jobs.folder import Folder

FORMATS = ("parquet", "delta", "iceberg")
PARTITIONS = ("topic", "date")
_CLAIM = f"{OWN_FOLDER}/format"


class Table(Protocol):
    """A list of the archive's files."""

    def commit(self, query_id: str, batch_id: int, files: Sequence[WrittenFile]) -> None:
        """Add the files of a batch; a second call for the same batch does nothing."""


def open_table(table_format: str, folder: Folder, name: str) -> Table:
    """The table of an archive.

    Args:
        table_format: one of :data:`FORMATS`.
        name: the name of an Iceberg table, ``catalog.namespace.table``.

    Raises:
        JobError: the format is unknown, its package is not installed, or it needs a table name.
    """
    if table_format == "delta":
        return DeltaTables(folder, _package("deltalake", "delta"))
    if table_format == "iceberg":
        catalog = _package("pyiceberg.catalog", "iceberg")
        if name.count(".") < 2:
            raise JobError(
                f"format iceberg needs the table's name as catalog.namespace.table, got {name!r} (--table)"
            )
        return IcebergTable(folder, catalog, name)
    if table_format != "parquet":
        raise JobError(f"format {table_format!r} is not known; known: {', '.join(FORMATS)}")
    return Files()


def _package(module: str, table_format: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise JobError(f"format {table_format} needs the package {package}: pip install {package}") from error


def claimed(folder: Folder) -> str | None:
    """The recorded format of the archive in a folder; ``None`` if none is recorded."""
    return folder.read(_CLAIM).decode() if folder.exists(_CLAIM) else None


def claim(folder: Folder, table_format: str) -> None:
    """Record the format of an archive at its begin: it cannot change later, since a table has to contain each
    file.

    Raises:
        JobError: the archive has another format.
    """
    before = claimed(folder)
    if before is None:
        folder.write(_CLAIM, table_format.encode())
    elif before != table_format:
        raise JobError(f"{folder} is an archive of format {before}, not {table_format}")


class Files:
    """An archive without a table: readers list the files."""

    def commit(self, query_id: str, batch_id: int, files: Sequence[WrittenFile]) -> None:
        """Do nothing."""


class DeltaTables:
    """A Delta table in the archive's folder; its transactions in Delta's log are named by query and batch.

    Args:
        package: the module ``deltalake``.
    """

    def __init__(self, folder: Folder, package: Any) -> None:
        self._folder = folder
        self._package = package

    def commit(self, query_id: str, batch_id: int, files: Sequence[WrittenFile]) -> None:
        if not files:
            return
        package = self._package
        app = f"orbitmq-archive-{query_id}"
        there = package.DeltaTable.is_deltatable(self._folder.location)
        table = package.DeltaTable(self._folder.location) if there else None
        last = None if table is None else table.transaction_version(app)
        if last is not None and last >= batch_id:
            return
        transaction = import_module("deltalake.transaction")
        properties = package.CommitProperties(app_transactions=[package.Transaction(app, batch_id)])
        actions = [self._action(transaction, file) for file in files]
        schema = package.Schema.from_arrow(_with_partitions(_schema(self._folder, files[0])))
        if table is None:
            transaction.create_table_with_add_actions(
                self._folder.location,
                schema,
                actions,
                partition_by=list(PARTITIONS),
                commit_properties=properties,
            )
        else:
            table.create_write_transaction(
                actions, "append", schema, partition_by=list(PARTITIONS), commit_properties=properties
            )

    def _action(self, transaction: Any, file: WrittenFile) -> Any:
        named = parse_path(file.path)
        assert named is not None
        return transaction.AddAction(
            path=file.path,
            size=file.size_bytes,
            partition_values={"topic": named.topic, "date": named.date},
            modification_time=this_worker().clock.now_ms(),
            data_change=True,
            stats=json.dumps({"numRecords": file.rows}),
        )


class IcebergTable:
    """An Iceberg table of a catalog; its properties hold the last batch of each query.

    Args:
        catalog: the module ``pyiceberg.catalog``.
        name: ``catalog.namespace.table``.
    """

    def __init__(self, folder: Folder, catalog: Any, name: str) -> None:
        self._folder = folder
        catalog_name, _, self._name = name.partition(".")
        self._catalog = catalog.load_catalog(catalog_name)

    def commit(self, query_id: str, batch_id: int, files: Sequence[WrittenFile]) -> None:
        if not files:
            return
        self._catalog.create_namespace_if_not_exists(self._name.rpartition(".")[0])
        table = self._catalog.create_table_if_not_exists(self._name, schema=_schema(self._folder, files[0]))
        key = f"orbitmq.archive.{query_id}"
        if int(table.properties.get(key, -1)) >= batch_id:
            return
        with table.transaction() as change:
            change.add_files([self._folder.uri(file.path) for file in files])
            change.set_properties({key: str(batch_id)})


def _schema(folder: Folder, file: WrittenFile) -> pa.Schema:
    with folder.open(file.path) as source:
        return pq.read_schema(source).remove_metadata()


def _with_partitions(schema: pa.Schema) -> pa.Schema:
    names = [name for name in schema.names if name not in PARTITIONS]
    kept = [schema.field(name) for name in names]
    return pa.schema([*kept, pa.field("topic", pa.string()), pa.field("date", pa.date32())])
