"""No figure without its record: README.md, docs/measured.md and docs/high-availability.md."""

from __future__ import annotations

import re

import pytest
from benchmarks.faults.goals import goals_of
from benchmarks.faults.plans import BY_NAME
from benchmarks.pages.__main__ import BLOCK, BLOCKS, PAGES, written
from benchmarks.pages.records import number
from benchmarks.servers import ROOT

# Rates, processor time, memory, shares, ratios are measured. Seconds outside a block are periods and limits.
MEASURED = re.compile(
    r"\d[\d,.]*\s?(?:us\b|ms\b|%|(?:rows|messages|sends|MB|KB)?/s\b|core-s|times (?:the|as)|MB\b|a second\b)"
)
# Limits and settings of the program, and the load of a described run.
SETTINGS = ("100 messages a second",)
TEXTS = {page: (ROOT / page).read_text(encoding="utf-8") for page in PAGES}


@pytest.mark.parametrize("page", PAGES)
def test_each_figure_of_a_page_is_that_of_its_record(page: str) -> None:
    assert TEXTS[page] == written(TEXTS[page]), "python -m benchmarks.pages writes them"
    assert BLOCK.search(TEXTS[page])


def test_each_table_that_can_be_written_stands_on_one_page() -> None:
    names = [match["name"] for text in TEXTS.values() for match in BLOCK.finditer(text)]
    assert sorted(names) == sorted(BLOCKS)


@pytest.mark.parametrize("page", PAGES)
def test_no_figure_stands_beside_the_records(page: str) -> None:
    prose = re.sub(
        r"^(```|    ).*?$|```.*?```", "", BLOCK.sub("", TEXTS[page]), flags=re.MULTILINE | re.DOTALL
    )
    for setting in SETTINGS:
        prose = prose.replace(setting, "")
    assert MEASURED.findall(prose) == []


def test_another_figure_on_a_page_is_seen() -> None:
    text = TEXTS["README.md"]
    rate = re.search(r"\d{3},\d{3}/s", text)
    assert rate is not None
    assert written(text.replace(rate[0], "999,999/s", 1)) == text
    assert MEASURED.findall("sends 999,999/s at 2.7 us, 12 % less, 1.4 times the CPU") != []


def test_every_fault_has_goals_before_it_is_played() -> None:
    for fault in BY_NAME:
        names = [goal.what for goal in goals_of(fault)]
        assert len(names) == len(set(names)) >= 6
        assert {"acknowledged and not delivered", "out of order"} <= set(names)


def test_numbers_below_zero_have_three_digits_too() -> None:
    assert [number(value) for value in (-24.8813, -0.58012, -1234.5)] == ["-24.9", "-0.58", "-1,234"]
