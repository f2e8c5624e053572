"""The pages of docs/jobs: every one is linked, has every option, and its examples print what it says."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from tests.docs.test_readme import ROOT, examples, name_server, printed_by

from orbitmq.cli.main import COMMANDS, main

__all__ = ["name_server"]

ENTRY = "docs/spark-jobs.md"
COMMANDS_OF = {
    "archive": ["spark archive", "archive verify"],
    "compact": ["archive compact"],
    "replay": ["spark replay"],
    "audit": ["spark audit"],
    "dead-letters": ["spark dlq", "spark redrive"],
}
COMMON = {"--name-servers", "-n", "--context", "--json", "--master"}


def pages() -> list[str]:
    """The pages in the order in which the first page names them; later ones use what earlier ones make."""
    linked = re.findall(r"\]\((jobs/[\w-]+\.md)\)", (ROOT / ENTRY).read_text(encoding="utf-8"))
    return list(dict.fromkeys(linked))


def options_of(command: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    """The options that the help of a command has."""
    assert main([*command.split(), "--help"]) == 0
    told = capsys.readouterr().out.partition("Examples:")[0]
    heads = re.findall(r"^│ (?:\* )? ?((?:-[-\w]+ ?)+)", told, re.MULTILINE)
    return {name for head in heads for name in head.split()}


def test_every_page_is_linked() -> None:
    there = {f"jobs/{path.name}" for path in (ROOT / "docs" / "jobs").glob("*.md")}
    assert there == set(pages()) == {f"jobs/{name}.md" for name in COMMANDS_OF}
    assert "spark" in COMMANDS


@pytest.mark.parametrize("name", COMMANDS_OF)
def test_a_page_has_every_option(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = set().union(*(options_of(command, capsys) for command in COMMANDS_OF[name]))
    assert ({"--json"} if name == "compact" else {"--name-servers", "--json"}) <= found
    text = (ROOT / "docs" / "jobs" / f"{name}.md").read_text(encoding="utf-8")
    told = set(re.findall(r"`(-[-\w]+)`", "\n".join(re.findall(r"^\| `-.*", text, re.MULTILINE))))
    assert told == found - COMMON
    assert set(re.findall(r"`(--?[\w-]+)`", (ROOT / ENTRY).read_text(encoding="utf-8"))) >= COMMON


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs Java")
def test_the_examples_print_what_their_pages_say(name_server: str, tmp_path: Path) -> None:
    pairs = [pair for page in pages() for pair in examples(f"docs/{page}")]
    assert len(pairs) == len(COMMANDS_OF)
    codes, expected = zip(*pairs, strict=True)
    assert printed_by(list(codes), name_server, tmp_path) == list(expected)
