"""The errors of Spark's source, sink and jobs."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from orbitmq.errors import NotPermittedError as NotPermittedError
from orbitmq.errors import OrbitError

P = ParamSpec("P")
T = TypeVar("T")


def plainly(method: Callable[P, T]) -> Callable[P, T]:
    """Decorator of a method that Spark calls on the driver: errors of this package get no Python traceback.

    Spark prints each line of a traceback, while the text of such an error is enough.
    """

    @wraps(method)
    def plain(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except OrbitError as error:
            raise error.with_traceback(None) from None

    return plain


class OptionError(OrbitError, ValueError):
    """An option of the data source is unknown or missing, or has an unusable value."""


class SchemaError(OrbitError, ValueError):
    """A column is unknown or has a type that messages do not carry."""


class OffsetError(OrbitError, ValueError):
    """An offset in a checkpoint or an option cannot be read."""


class DataLossError(OrbitError):
    """Promised messages do not exist any more, or do not exist after a fail-over."""


class UnreachableError(OrbitError):
    """A name server or broker did not answer before the deadline."""


class SinkStateError(OrbitError):
    """The state of a writer cannot be read or written, or contradicts the stored messages."""


class VersionError(OrbitError, ImportError):
    """The installed PySpark is too old, for the format or for the requested feature."""


class JobError(OrbitError):
    """A job cannot do its work; the text is one line that names the cause."""
