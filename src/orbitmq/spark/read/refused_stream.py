"""The reader of a stream whose options or schema are wrong: it raises their error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from typing_extensions import override

from orbitmq.errors import OrbitError


class RefusedStream(DataSourceStreamReader):  # type: ignore[misc]
    """Raises an error when Spark asks it for anything.

    When ``streamReader`` itself raises, PySpark fails with an UnboundLocalError of its own, and the user sees
    that as the last line.
    """

    def __init__(self, error: OrbitError) -> None:
        self._error = error

    def _refuse(self) -> NoReturn:
        raise self._error

    @override
    def initialOffset(self) -> dict[str, Any]:
        self._refuse()

    @override
    def latestOffset(self, *_: Any) -> dict[str, Any]:
        """Raise the error, whatever this version of Spark passes."""
        self._refuse()

    @override
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._refuse()

    @override
    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._refuse()
