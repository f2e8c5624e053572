"""One-line texts for errors of Spark: the OrbitMQ error inside, else the first line of Spark's own text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from orbitmq.errors import OrbitError
from orbitmq.spark.errors import JobError

_OURS = re.compile(r"\borbitmq(?:\.\w+)+: ([^\n]+)")
_PYTHON = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): [^\n]+", re.MULTILINE)
_CAUSE = re.compile(r"^(?:Caused by)?: [\w.$]+: ([^\n]+)", re.MULTILINE)
_SQL_STATE = re.compile(r"\s*SQLSTATE: \w+")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_FROM_SPARK = ("pyspark", "py4j")


def reason(text: str) -> str:
    """The line with the cause, from the long text of a Spark error."""
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()
    if "Traceback (most recent call last)" in text:
        told = _PYTHON.findall(text.partition("Traceback (most recent call last)")[2])
        if told:
            return str(told[-1]).strip()
    causes = _CAUSE.findall(text)
    if causes:
        # The innermost cause with a Spark error class; causes inside it are about bytes and sockets.
        named = [cause for cause in causes if _CONDITION.match(cause)]
        return _plain((named or causes)[-1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return "Spark failed and does not say why"
    return _plain(lines[0])


def _plain(line: str) -> str:
    return _SQL_STATE.sub("", _CONDITION.sub("", line)).strip()


@contextmanager
def explained(what: str = "") -> Iterator[None]:
    """Turn errors of Spark into a :class:`JobError` of one line.

    Args:
        what: the option or place of the mistake, if there is only one.
    """
    try:
        yield
    except OrbitError:
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _FROM_SPARK:
            raise
        text = str(error)
        if "JAVA_GATEWAY_EXITED" in text or "Java gateway process" in text:
            raise JobError("Spark did not start: it needs Java 17 or newer (JAVA_HOME)") from error
        raise JobError(f"{what}: {reason(text)}" if what else reason(text)) from error
