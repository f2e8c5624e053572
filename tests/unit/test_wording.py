"""Numbers with their nouns, and the texts of commands that use them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import orbitmq
from orbitmq.wording import counted


@pytest.mark.parametrize(
    ("number", "what", "text"),
    [
        (0, "message", "0 messages"),
        (1, "message", "1 message"),
        (2000, "file", "2,000 files"),
        (1, "delivery", "1 delivery"),
        (2, "delivery", "2 deliveries"),
        (3, "entry", "3 entries"),
    ],
)
def test_a_number_with_its_noun(number: int, what: str, text: str) -> None:
    assert counted(number, what) == text


def test_commands_count_with_one_function() -> None:
    """No text of the command line puts a number in front of a noun that is always plural."""
    fixed = re.compile(
        r"\{(?!counted)[^{}]+\} (messages|queues|topics|groups|members|brokers|runs|faults|seeds)\b"
    )
    folder = Path(orbitmq.__file__).parent / "cli"
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted(folder.glob("*.py"))
        for line in path.read_text().splitlines()
        if fixed.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("receive", ["13 digits"]),
        ("group reset", ["13 digits"]),
        ("dlq show", ["13 digits"]),
        ("message get", ["needs none; a unique id needs it"]),
    ],
)
def test_help_says_what_is_taken(command: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    from orbitmq.cli.main import main

    assert main([*command.split(), "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert [word for word in words if word not in shown] == []
