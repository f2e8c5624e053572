"""The reader of a stream with invalid options or an invalid schema, which raises their error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from typing_extensions import override

from orbitmq.errors import OrbitError


class RefusedStream(DataSourceStreamReader):  # type: ignore[misc]
    """Raises an error in every method that Spark calls.

    If ``streamReader`` itself raised, PySpark would fail with an UnboundLocalError of its own, as the last
    line that the user sees.
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
        """Raise the error; the arguments depend on the version of Spark."""
        self._refuse()

    @override
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self._refuse()

    @override
    def read(self, partition: InputPartition) -> Iterator[Any]:
        self._refuse()
