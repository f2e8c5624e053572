"""What docs/architecture.md names is there, and every room of the code is named."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "orbitmq"
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
# A fenced block is a picture; its words are read as they stand.
WORDS = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", TEXT, flags=re.MULTILINE | re.DOTALL))
IS_PATH = re.compile(r"[\w./<>-]+(/|\.py|\.md|\.pxd|\.toml)")


TOP = {"src", "tests", "docs", "benchmarks", "scripts", "examples"}


def paths() -> set[str]:
    found = {word for word in WORDS if IS_PATH.fullmatch(word) or word.startswith("src/")}
    return {word for word in found if not word.startswith(".") and "<" not in word}


def test_every_file_and_folder_that_it_names_exists() -> None:
    assert len(paths()) > 20
    missing = []
    for path in sorted(paths()):
        # A bare name is of one of the rooms of the table that it stands in.
        there = (ROOT / path).exists() if path.count("/") and path.split("/")[0] in TOP else _in_a_room(path)
        if not there:
            missing.append(path)
    assert missing == []


def _in_a_room(path: str) -> bool:
    return any((folder / path).exists() for folder in (SOURCE, *SOURCE.rglob("*")) if folder.is_dir())


def test_every_room_is_named() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if len(list(path.rglob("*.py"))) > 1}
    assert {room for room in rooms if not re.search(rf"\b{room}\b", TEXT)} == set()
