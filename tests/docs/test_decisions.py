"""Each decision says whether it still holds, and the index lists all of them."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "decisions"
PAGES = sorted(FOLDER.glob("0*.md"))
STATUS = re.compile(
    r"^Status: (accepted|proposed|superseded by \[decision (\d+)\]\((\S+)\))\.$", re.MULTILINE
)


def test_the_numbers_have_no_gaps() -> None:
    assert [int(page.name[:4]) for page in PAGES] == list(range(1, len(PAGES) + 1))


def test_each_has_a_status_below_its_heading() -> None:
    for page in PAGES:
        heading, _, status, *_ = page.read_text(encoding="utf-8").splitlines()
        assert heading.startswith(f"# {int(page.name[:4])}. "), page.name
        found = STATUS.match(status)
        assert found, f"{page.name}: {status}"
        if found[2]:
            later = FOLDER / found[3]
            assert later.exists()
            assert int(found[2]) == int(later.name[:4]) > int(page.name[:4])


def test_the_index_lists_each_with_its_status() -> None:
    index = (FOLDER / "README.md").read_text(encoding="utf-8")
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        title = text.splitlines()[0].partition(". ")[2]
        found = STATUS.search(text)
        assert found
        state = f"superseded by {found[2]}" if found[2] else found[1]
        assert f"| {int(page.name[:4])} | [{title}]({page.name}) | {state} |" in index
