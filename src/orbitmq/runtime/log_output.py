"""The output of a server's log lines: they are formatted at once and written by a thread.

A disk that is full or hangs does not stop the server: the queue to the thread has a limit, and lines that
find no place there are left out and counted.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import queue
import re
import sys
import threading
import time
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler, WatchedFileHandler
from typing import Any, TextIO, cast

from orbitmq.runtime import log_events
from orbitmq.runtime.log_events import event_of

MAX_LINES = 10_000
# How long the end of a process waits for the lines that are not written yet.
END_S = 2.0
# Line ends, and characters that move a terminal's cursor or change the direction of writing.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True, slots=True)
class Output:
    """The target and the form of log lines.

    Attributes:
        format: ``text`` or ``json``.
        path: the file; empty: standard error.
        max_bytes: from which size on the file is renamed and another begun; 0: another program renames it.
        backups: how many renamed files are kept.
    """

    format: str = "text"
    path: str = ""
    max_bytes: int = 0
    backups: int = 5

    def open(self) -> LogWriter:
        """Open the file and start the thread.

        Raises:
            OSError: the file cannot be opened.
        """
        target: logging.StreamHandler[Any]
        if not self.path:
            target = _Stream(_own_stderr())
        elif self.max_bytes:
            target = _RotatedFile(
                self.path,
                maxBytes=self.max_bytes,
                backupCount=self.backups,
                encoding="utf-8",
                errors="backslashreplace",
            )
        else:
            target = _File(self.path, encoding="utf-8", errors="backslashreplace")
        writer = LogWriter(target)
        writer.setFormatter(JsonFormatter() if self.format == "json" else TextFormatter())
        return writer


class LogWriter(logging.Handler):
    """Formats lines on the thread that logs them, and lets another thread write them.

    Args:
        target: writes a line that is formatted.

    """

    def __init__(self, target: logging.StreamHandler[Any], limit: int = MAX_LINES) -> None:
        super().__init__()
        self._target = target
        self._target.setFormatter(logging.Formatter("%(message)s"))
        self._lines: queue.Queue[logging.LogRecord | None] = queue.Queue(limit)
        # Each counter has one writer: emit() under the handler's lock, or the thread.
        self._crowded = 0
        self._refused = 0
        self._told = 0
        self._ended = False
        self._thread = threading.Thread(target=self._write, name="orbitmq-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one line."""
        try:
            self._lines.put_nowait(_line(record, self.format(record)))
        except queue.Full:
            self._crowded += 1
        except Exception:
            self.handleError(record)

    @property
    def dropped(self) -> int:
        """How many lines were left out, because too many waited or the disk refused them."""
        return self._crowded + self._refused

    def _write(self) -> None:
        # The catalogue is loaded here, not with the first warning: that would block an event loop for some
        # milliseconds.
        log_events.load()
        while (line := self._lines.get()) is not None:
            if not self._put(line):
                self._refused += 1
            if self.dropped > self._told and self._lines.empty():
                self._write_missing()

    def _put(self, line: logging.LogRecord) -> bool:
        try:
            self._target.emit(line)
        except Exception:  # whatever a disk or a stream does: the thread goes on with the next line
            return False
        return True

    def _write_missing(self) -> None:
        """Write how many lines are missing; if the disk refuses that line too, it is written later."""
        dropped = self.dropped
        text = "%d log lines are missing here: the disk was too slow for them, or refused them"
        record = logging.LogRecord(
            "orbitmq.runtime", logging.WARNING, __file__, 0, text, (dropped - self._told,), None
        )
        if self._put(_line(record, self.format(record))):
            self._told = dropped

    def flush(self) -> None:
        """Do nothing: the thread writes the waiting lines."""

    def close(self) -> None:
        """Write the waiting lines, as far as there is time."""
        if self._ended:
            return
        self._ended = True
        try:
            self._lines.put(None, timeout=END_S)
            self._thread.join(END_S)
        except queue.Full:
            pass
        if self._thread.is_alive():
            # The thread hangs with the disk: the end of the process must not wait for the same stream.
            self._target.stream = None
        else:
            self._target.close()
        super().close()


def dropped_lines() -> int:
    """How many lines of this process were left out."""
    return sum(each.dropped for each in logging.getLogger().handlers if isinstance(each, LogWriter))


def _line(record: logging.LogRecord, text: str) -> logging.LogRecord:
    """The record with its final text: its arguments may change before the thread writes it."""
    line = copy.copy(record)
    line.msg, line.args, line.exc_info, line.exc_text, line.stack_info = text, None, None, None, None
    return line


class _NoLock:
    """Does nothing, as only one thread writes, without a lock, and the end of the process must not wait."""

    def acquire(self) -> None:
        """Do nothing: there is no lock to wait for."""

    def release(self) -> None:
        """Do nothing: no lock was taken."""

    def __enter__(self) -> None:
        """Do nothing: there is no lock to wait for."""

    def __exit__(self, *_: object) -> None:
        """Do nothing: no lock was taken."""


class _Raises(logging.Handler):
    """A handler that raises errors of writing: its caller counts them."""

    def createLock(self) -> None:  # noqa: N802 - logging's name
        self.lock = cast("threading.RLock", _NoLock())

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        raise  # this method is called in an except block


class _Stream(_Raises, logging.StreamHandler[Any]):
    """Standard error."""


def _own_stderr() -> TextIO:
    """A second stream to standard error: when its reader does not read, only the thread waits for it."""
    try:
        descriptor = os.dup(sys.stderr.fileno())
    except (OSError, ValueError):
        return sys.stderr  # standard error is a stream in memory
    return open(descriptor, "w", encoding=sys.stderr.encoding, errors="backslashreplace")


class _File(_Raises, WatchedFileHandler):
    """A file that is opened again when it was renamed or removed, as logrotate does."""


class _RotatedFile(_Raises, RotatingFileHandler):
    """A file that is renamed when it is full."""


class TextFormatter(logging.Formatter):
    """One line a message; a traceback below it is indented, so nothing in it looks like another message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s%(event)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        record.message = escaped(record.getMessage())
        record.asctime = self.formatTime(record)
        event = event_of(record)
        record.event = f" [{event}]" if event else ""
        below = _below(self, record)
        return "\n".join([self.formatMessage(record), *(f"    {escaped(line)}" for line in below)])


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The text of a record."""
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        found = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if event := event_of(record):
            found["event"] = event
        if below := _below(self, record):
            found["traceback"] = "\n".join(below)
        return json.dumps(found)


def _below(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    """The lines of the traceback."""
    return formatter.formatException(record.exc_info).splitlines() if record.exc_info else []


def escaped(text: str) -> str:
    """The text without control characters: a peer must not write lines of its own, or move the cursor."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
