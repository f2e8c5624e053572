"""The catalogue of errors is complete, true and the source of its page."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest

import orbitmq
from orbitmq.client.producer import send
from orbitmq.client.producer.budget import RETRY_CODES
from orbitmq.errors import (
    BrokerError,
    NameServerError,
    OrbitError,
    ReplyTimeoutError,
    SendError,
    SendErrorKind,
    TopicNotFoundError,
    ValidationError,
    catalogue,
)
from orbitmq.wire.codes import ResponseCode

ROOT = Path(__file__).resolve().parents[2]
SOURCE = Path(orbitmq.__file__).parent


def answered_by_servers() -> set[str]:
    """The constants of ResponseCode that the sources of OrbitMQ's servers name."""
    found = set()
    for room in ("broker", "nameserver", "transport"):
        for path in (SOURCE / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "ResponseCode":
                    found.add(node.attr)
    return found - {"SUCCESS"}


def test_every_code_that_our_servers_answer_is_listed_under_its_name() -> None:
    assert len(answered_by_servers()) > 15
    assert answered_by_servers() <= {entry.constant for entry in catalogue().values()}
    for code, entry in catalogue().items():
        if code < 10_000:
            assert ResponseCode(code).name == entry.constant


def test_every_code_that_the_client_gives_or_retries_is_listed() -> None:
    own = {send.CONNECT_FAILED, send.ACCESS_TIMED_OUT, send.BROKER_NOT_EXIST, send.NO_QUEUE}
    own |= {NameServerError.code, TopicNotFoundError.code, ReplyTimeoutError.code, ValidationError("x").code}
    assert own | RETRY_CODES <= set(catalogue())


def test_entries_are_whole_and_in_order() -> None:
    assert list(catalogue()) == sorted(catalogue())
    for code, entry in catalogue().items():
        assert code == entry.code
        for text in (entry.text, entry.help):
            assert text.endswith(".")
            assert text == " ".join(text.split())


def test_an_error_says_what_to_do() -> None:
    assert "topic create" in BrokerError(17, "no", "h:1").help
    assert "name_servers" in NameServerError("none").help
    assert "timeout" in SendError(SendErrorKind.TIMEOUT, "t", "text", code=10002).help
    assert SendError(SendErrorKind.TOO_MANY_REQUESTS, "t", "text").help == ""
    assert BrokerError(31_999, None, "h:1").help == ""
    assert OrbitError("no code").help == ""


def test_the_page_is_made_of_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("errors_page", ROOT / "scripts" / "errors_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.PAGE.read_text(encoding="utf-8") == module.page(), "run python scripts/errors_page.py"
