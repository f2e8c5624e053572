"""Each warning and error of the servers has an event, and each event has advice."""

from __future__ import annotations

import ast
import importlib.util
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import orbitmq
from orbitmq.runtime.log_events import catalogue, event_of
from orbitmq.runtime.log_limiter import LogLimiter
from orbitmq.runtime.log_output import JsonFormatter, TextFormatter
from orbitmq.testing import SimulatedRuntime

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(orbitmq.__file__).parent
ROOMS = (
    "auth",
    "broker",
    "cluster",
    "gateway",
    "monitoring",
    "nameserver",
    "replication",
    "runtime",
    "store",
    "transport",
)
AT_ONCE = {"warning", "error", "exception", "critical"}
# Functions that write a line of a given level, and the index of its text among their arguments.
WITH_LEVEL = {"write": 2, "_note": 2}
# Methods that pass their text on to one of those, and its index among their arguments.
HANDED_ON = {"note": 1, "_say": 0}


def constants(module: ast.Module, node: ast.expr) -> list[str]:
    """The texts that an argument may be: a constant, or a variable to which constants are assigned."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if not isinstance(node, ast.Name):
        return []
    found = []
    for each in ast.walk(module):
        if isinstance(each, ast.Assign):
            for target, value in pairs(each):
                if target == node.id and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    found.append(value.value)
    return found


def pairs(assigned: ast.Assign) -> Iterator[tuple[str, ast.expr]]:
    for target in assigned.targets:
        if isinstance(target, ast.Name):
            yield target.id, assigned.value
        elif isinstance(target, ast.Tuple) and isinstance(assigned.value, ast.Tuple):
            for name, value in zip(target.elts, assigned.value.elts, strict=True):
                if isinstance(name, ast.Name):
                    yield name.id, value


def is_warning(node: ast.expr) -> bool:
    return ast.unparse(node) in ("logging.WARNING", "logging.ERROR", "logging.CRITICAL")


def text_of(call: ast.Call) -> ast.expr | None:
    """The argument that is the text of a warning or an error; ``None`` if the call writes neither."""
    if not isinstance(call.func, ast.Attribute):
        return None
    name, args = call.func.attr, call.args
    if name in AT_ONCE and ast.unparse(call.func.value) in ("log", "logger", "logging"):
        return args[0]
    if name in WITH_LEVEL and len(args) > WITH_LEVEL[name] and is_warning(args[0]):
        return args[WITH_LEVEL[name]]
    if name in HANDED_ON and len(args) > HANDED_ON[name] and isinstance(args[HANDED_ON[name]], ast.Constant):
        text = args[HANDED_ON[name]].value  # type: ignore[attr-defined]
        return args[HANDED_ON[name]] if isinstance(text, str) and "%" in text else None
    return None


def said() -> dict[str, list[str]]:
    """The texts of all warnings and errors, with their places; under "" the places of those that are no
    constants.
    """
    found: dict[str, list[str]] = {}
    for room in ROOMS:
        for path in sorted((SOURCE / room).rglob("*.py")):
            module = ast.parse(path.read_text(encoding="utf-8"))
            for node in ast.walk(module):
                if isinstance(node, ast.Call) and (text := text_of(node)) is not None:
                    place = f"{path.relative_to(SOURCE)}:{node.lineno}"
                    for each in constants(module, text) or [""]:
                        found.setdefault(each, []).append(place)
    return found


@pytest.mark.behaviour("MX-15")
def test_each_warning_and_error_has_an_event_and_each_event_is_said() -> None:
    texts = said()
    assert len(texts) > 150
    # These modules pass a text on; their callers are checked.
    handing_on = {"gateway/connection.py", "replication/link/ha_client.py", "runtime/log_limiter.py"}
    assert {place.partition(":")[0] for place in texts.pop("", [])} <= handing_on
    listed = [text for event in catalogue() for text in event.texts]
    assert len(set(listed)) == len(listed)
    # The line about missing lines is not written by a logger.
    own = {text for event in catalogue() if event.name == "log-lines-missing" for text in event.texts}
    assert {text: places for text, places in texts.items() if text not in listed} == {}
    assert set(listed) - set(texts) == own


@pytest.mark.behaviour("MX-15")
def test_entries_are_whole() -> None:
    names = [event.name for event in catalogue()]
    assert len(set(names)) == len(names)
    for event in catalogue():
        assert re.fullmatch(r"[a-z]+(-[a-z]+){0,4}", event.name)
        assert event.texts
        for text in (event.cause, event.cure):
            assert text.endswith(".")
            assert text == " ".join(text.split())
            assert "|" not in text


def record(level: int, text: str, *values: object) -> logging.LogRecord:
    return logging.LogRecord("orbitmq.store", level, "", 0, text, values, None)


@pytest.mark.behaviour("MX-15")
def test_lines_name_their_event() -> None:
    refused = record(logging.WARNING, "the store takes no messages: %s", "the disk is full")
    assert event_of(refused) == "store-refuses"
    assert (
        TextFormatter()
        .format(refused)
        .endswith(" WARNING orbitmq.store [store-refuses]: the store takes no messages: the disk is full")
    )
    assert json.loads(JsonFormatter().format(refused))["event"] == "store-refuses"
    news = record(logging.INFO, "the store takes no messages: %s", "x")
    assert event_of(news) == ""
    assert " INFO orbitmq.store: the store" in TextFormatter().format(news)
    assert "event" not in json.loads(JsonFormatter().format(news))
    assert event_of(record(logging.ERROR, "of another library")) == ""


@pytest.mark.behaviour("MX-15")
async def test_a_line_that_stands_for_several_names_their_event(
    orbitmq_runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = LogLimiter(logging.getLogger("orbitmq.test_log_events"))
    with caplog.at_level(logging.WARNING, "orbitmq.test_log_events"):
        for number in range(3):
            limiter.write(
                logging.WARNING,
                "connection refused",
                "refusing %s: %s",
                "x",
                f"all {number} connections are in use",
            )
        await orbitmq_runtime.clock.sleep(2)
    assert [event_of(each) for each in caplog.records] == ["connections-full", "connections-full"]
    assert "2 more within" in caplog.messages[1]


@pytest.mark.behaviour("MX-15")
def test_the_page_is_made_of_the_catalogue() -> None:
    spec = importlib.util.spec_from_file_location("log_events_page", ROOT / "scripts" / "log_events_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "run python scripts/log_events_page.py"
