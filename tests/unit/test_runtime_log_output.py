"""The form and the targets of a server's log lines, and a slow disk."""

from __future__ import annotations

import errno
import io
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.runtime.log_levels import LogLevels
from orbitmq.runtime.log_output import JsonFormatter, LogWriter, Output, TextFormatter, dropped_lines

FORGED = "bye\n2026-11-29 00:00:00,000 ERROR orbitmq.store: all is lost\r\x1b[2J\u202etxt"
NAME = "orbitmq.test_log_output"


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    logger = logging.getLogger(NAME)
    logger.propagate = False
    yield logger
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()


def until(condition: Callable[[], bool]) -> None:
    """Wait until the logging thread has made the condition true."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def fails() -> None:
    raise ValueError(FORGED)


def record_with_traceback() -> logging.LogRecord:
    try:
        fails()
    except ValueError as error:
        found = (type(error), error, error.__traceback__)
        return logging.LogRecord(NAME, logging.ERROR, "", 0, "it failed: %s", (FORGED,), found)
    raise AssertionError


@pytest.mark.behaviour("MX-14")
def test_a_peer_writes_no_line_of_its_own() -> None:
    first, *below = TextFormatter().format(record_with_traceback()).split("\n")
    assert first.endswith(
        r"ERROR orbitmq.test_log_output: it failed: bye\n2026-11-29 00:00:00,000 ERROR orbitmq.store: "
        r"all is lost\r\x1b[2J\u202etxt"
    )
    assert below[0] == "    Traceback (most recent call last):"
    assert len(below) >= 4
    assert all(line.startswith("    ") and line.isprintable() for line in below)


@pytest.mark.behaviour("MX-13")
def test_a_line_of_json_holds_all_of_an_event() -> None:
    line = JsonFormatter().format(record_with_traceback())
    assert line.isprintable()
    found = json.loads(line)
    assert found["message"] == f"it failed: {FORGED}"
    assert (found["level"], found["logger"]) == ("ERROR", NAME)
    assert found["traceback"].startswith("Traceback (most recent call last):")
    assert time.strptime(found["time"][:19], "%Y-%m-%dT%H:%M:%S")
    assert found["time"][19] == "."
    assert found["time"].endswith("Z")


@pytest.mark.behaviour("MX-13")
def test_a_file_that_was_renamed_is_opened_again(tmp_path: Path, log: logging.Logger) -> None:
    path, renamed = tmp_path / "broker.log", tmp_path / "broker.log.1"
    log.addHandler(Output(path=str(path)).open())
    log.warning("before %s", "é\udcff")
    until(lambda: "before" in path.read_text())
    path.rename(renamed)
    log.warning("behind")
    until(lambda: path.exists() and "behind" in path.read_text())
    assert renamed.read_text().endswith("before é\\udcff\n")
    assert "before" not in path.read_text()


@pytest.mark.behaviour("MX-13")
def test_a_file_is_renamed_when_it_is_large(tmp_path: Path, log: logging.Logger) -> None:
    path = tmp_path / "broker.log"
    writer = Output(format="json", path=str(path), max_bytes=1000, backups=2).open()
    log.addHandler(writer)
    for number in range(100):
        log.warning("line %d", number)
    writer.close()
    files = sorted(each.name for each in tmp_path.iterdir())
    assert files == ["broker.log", "broker.log.1", "broker.log.2"]
    lines = [line for name in reversed(files) for line in (tmp_path / name).read_text().splitlines()]
    numbers = [int(json.loads(line)["message"].split()[1]) for line in lines]
    assert numbers == list(range(numbers[0], 100))
    assert all((tmp_path / name).stat().st_size <= 1000 for name in files)


@pytest.mark.behaviour("MX-13")
def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        Output(path=str(tmp_path / "no folder" / "broker.log")).open()


class Slow(logging.StreamHandler[Any]):
    """A disk that hangs until the test releases it, or refuses."""

    def __init__(self) -> None:
        super().__init__(io.StringIO())
        self.goes = threading.Event()
        self.begun = threading.Event()
        self.refuses = False
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.begun.set()
        assert self.goes.wait(60)
        if self.refuses:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.lines.append(record.getMessage())


@pytest.mark.behaviour("MX-13")
def test_a_disk_that_hangs_stops_nobody_and_what_is_left_out_is_counted(log: logging.Logger) -> None:
    slow = Slow()
    writer = LogWriter(slow, limit=10)
    log.addHandler(writer)
    log.warning("first")
    assert slow.begun.wait(60)
    for number in range(30):
        log.warning("line %d", number)
    assert writer.dropped == 20
    slow.goes.set()
    until(lambda: len(slow.lines) == 12)
    assert slow.lines[:11] == ["first", *(f"line {number}" for number in range(10))]
    assert slow.lines[11].startswith("20 log lines are missing here")
    log.warning("last")
    until(lambda: len(slow.lines) == 13)
    assert slow.lines[12] == "last"


@pytest.mark.behaviour("MX-13")
def test_what_a_disk_refuses_is_counted_and_told_when_it_takes_lines_again(log: logging.Logger) -> None:
    slow = Slow()
    slow.refuses = True
    slow.goes.set()
    writer = LogWriter(slow)
    log.addHandler(writer)
    for number in range(3):
        log.warning("line %d", number)
        until(lambda: writer.dropped > number)  # noqa: B023 - called at once
    slow.refuses = False
    log.warning("it has room again")
    until(lambda: len(slow.lines) == 2)
    assert slow.lines[0] == "it has room again"
    assert "log lines are missing here" in slow.lines[1]


@pytest.mark.behaviour("MX-13")
def test_an_end_does_not_wait_for_a_disk_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.runtime.log_output.END_S", 0.01)
    slow = Slow()
    writer = LogWriter(slow, limit=1)
    for _ in range(3):
        writer.handle(logging.LogRecord(NAME, logging.ERROR, "", 0, "line", None, None))
    writer.close()
    assert slow.stream is None
    slow.goes.set()


@pytest.mark.behaviour("MX-13")
def test_the_count_is_that_of_the_process() -> None:
    slow = Slow()
    writer = LogWriter(slow, limit=1)
    before = dropped_lines()
    logging.getLogger().addHandler(writer)
    for _ in range(5):
        writer.handle(logging.LogRecord(NAME, logging.ERROR, "", 0, "line", None, None))
    try:
        assert writer.dropped >= 3
        assert dropped_lines() == before + writer.dropped
    finally:
        logging.getLogger().removeHandler(writer)
        slow.goes.set()
        writer.close()


@pytest.mark.behaviour("MX-14")
def test_levels_are_set_back_when_they_are_wanted_no_more() -> None:
    first, second = logging.getLogger(f"{NAME}.a"), logging.getLogger(f"{NAME}.b")
    first.setLevel(logging.ERROR)
    levels = LogLevels()
    levels.apply({first.name: "DEBUG", second.name: "INFO"})
    assert (first.level, second.level) == (logging.DEBUG, logging.INFO)
    levels.apply({first.name: "WARNING"})
    assert (first.level, second.level) == (logging.WARNING, logging.NOTSET)
    levels.apply({})
    assert first.level == logging.ERROR
