"""Every ``orbitmq`` command line of the documentation and of the help texts is one that the command takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from orbitmq.cli.main import AS_ROCKETMQ, BROKERS, COMMANDS, OF_BROKERS

ROOT = Path(__file__).resolve().parents[2]
LINE = re.compile(r"^(?:\$ |  )?orbitmq (?P<words>[a-z]+ .*)$", re.MULTILINE)
FENCED = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def documented() -> Iterator[tuple[str, str]]:
    """Where a command line is, and the line."""
    docs = ROOT / "docs"
    for page in (ROOT / "README.md", *sorted(docs.glob("*.md")), *sorted(docs.glob("jobs/*.md"))):
        name = str(page.relative_to(docs)) if docs in page.parents else page.name
        for block in FENCED.findall(page.read_text(encoding="utf-8")):
            yield from ((name, match["words"]) for match in LINE.finditer(block))
    families = {name: module for name, (module, _) in COMMANDS.items() if name not in AS_ROCKETMQ}
    for name, module in {**families, "broker": BROKERS}.items():
        text = import_module(module).app.help_epilogue
        yield from ((f"{name} --help", match["words"]) for match in LINE.finditer(text))


def words_of(line: str) -> list[str]:
    """The words of one command, without what the page explains behind it or a shell does with it."""
    lexer = shlex.shlex(re.split(r"\s{2,}", line)[0], posix=True, punctuation_chars="|>&;")
    lexer.whitespace_split = True
    words = list(lexer)
    end = next((place for place, word in enumerate(words) if not word.strip("|>&;")), len(words))
    return words[:end]


def of_brokers(line: str) -> bool:
    """Whether it is a command about running brokers."""
    name, *words = words_of(line)
    return name == "broker" and bool(words) and words[0] in OF_BROKERS


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, id=f"{page}: {line}")
        for page, line in dict.fromkeys(documented())
        if line.split()[0] not in AS_ROCKETMQ or of_brokers(line)  # those have RocketMQ's flags
    ],
)
def test_a_documented_command_can_be_given(line: str) -> None:
    name, *words = words_of(line)
    module = BROKERS if of_brokers(line) else COMMANDS[name][0]
    import_module(module).app.parse_args(words, exit_on_error=False, print_error=False)
