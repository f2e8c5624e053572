"""Bodies as values of a schema: valueFormat=json."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Required, TypeAlias, TypedDict

import msgspec
import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from orbitmq.spark.errors import SchemaError
from orbitmq.spark.read.arrow_types import arrow_type

LONGEST_REASON = 500
NO_BODY = "there is no body"
_NOT_ARROW = (pa.ArrowException, ValueError, OverflowError)

_Decoded: TypeAlias = tuple[Any, str | None]  # a value, or why there is none


def _whole(bits: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=-(1 << bits - 1), le=(1 << bits - 1) - 1)]


_PLAIN: dict[type[DataType], Any] = {
    BinaryType: bytes,
    BooleanType: bool,
    ByteType: _whole(8),
    DateType: date,
    DecimalType: Decimal,
    DoubleType: float,
    FloatType: float,
    IntegerType: _whole(32),
    LongType: _whole(64),
    ShortType: _whole(16),
    StringType: str,
    TimestampNTZType: datetime,
    TimestampType: datetime,
}


class ValueReader:
    """Reads JSON objects as values of ``schema``; a field that is not named there is left out.

    Times and dates are ISO 8601, binary is base64.

    Raises:
        SchemaError: a type has no form in JSON.
    """

    def __init__(self, schema: StructType) -> None:
        self._type = arrow_type(schema)
        self._decoder = msgspec.json.Decoder(_expected(schema))

    def read(self, bodies: Iterable[bytes | None]) -> tuple[pa.Array, pa.Array]:
        """A value for each body that fits, and the reason for each that does not; the other is null."""
        decoded = [self._decoded(body) for body in bodies]
        try:
            values = pa.array([value for value, _ in decoded], self._type)
        except _NOT_ARROW:
            # Some limits are only Arrow's: the digits of a decimal, the years of a time.
            decoded = [entry if entry[1] is not None else self._in_limits(entry[0]) for entry in decoded]
            values = pa.array([value for value, _ in decoded], self._type)
        return values, pa.array([reason for _, reason in decoded], pa.string())

    def _decoded(self, body: bytes | None) -> _Decoded:
        if body is None:
            return None, NO_BODY
        try:
            return self._decoder.decode(body), None
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return None, str(error)[:LONGEST_REASON]

    def _in_limits(self, value: Any) -> _Decoded:
        try:
            pa.scalar(value, self._type)
        except _NOT_ARROW as error:
            return None, str(error)[:LONGEST_REASON]
        return value, None


def _expected(kind: DataType) -> Any:
    """What msgspec is to accept for a Spark type."""
    plain = _PLAIN.get(type(kind))
    if plain is not None:
        return plain
    if isinstance(kind, ArrayType):
        return list[_or_null(kind.elementType, kind.containsNull)]  # type: ignore[misc]
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return dict[str, _or_null(kind.valueType, kind.valueContainsNull)]  # type: ignore[misc]
    if isinstance(kind, StructType):
        fields = {
            field.name: _or_null(field.dataType, True)
            if field.nullable
            else Required[_expected(field.dataType)]
            for field in kind.fields
        }
        made: Any = TypedDict
        return made("Value", fields, total=False)
    raise SchemaError(f"option valueSchema: type {kind.simpleString()} has no form in JSON")


def _or_null(kind: DataType, nullable: bool) -> Any:
    return _expected(kind) | None if nullable else _expected(kind)
