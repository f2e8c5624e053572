"""The list of numbered behaviours and the marks of the tests agree."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("behaviours", ROOT / "scripts" / "behaviours.py")
assert SPEC is not None
assert SPEC.loader is not None
behaviours = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(behaviours)


def test_every_number_is_listed_once_in_order() -> None:
    numbers = [number for number, _ in behaviours.rows()]
    assert len(numbers) == len(set(numbers)) == len(behaviours.listed()) >= 262
    for section in {number[:2] for number in numbers}:
        own = [int(number[3:]) for number in numbers if number.startswith(section)]
        assert own == list(range(1, len(own) + 1))


def test_document_and_marks_agree() -> None:
    assert behaviours.errors(behaviours.listed(), behaviours.marked()) == []


def test_a_behaviour_without_a_test_is_an_error() -> None:
    statements = {"RT-01": "One.", "RT-02": "Two.", "RT-03": "Three."}
    with_test = {"RT-01": ["test_a.py"], "RT-03": ["test_a.py"]}
    assert behaviours.errors(statements, with_test) == ["RT-02 has no test: Two."]
    with_test = {**with_test, "RT-02": ["test_a.py"], "XX-01": ["test_b.py"]}
    assert behaviours.errors(statements, with_test) == ["XX-01 is not in docs/behaviours (test_b.py)"]


def test_a_row_of_more_than_200_characters_is_an_error() -> None:
    statements = {"RT-01": "x" * 200, "RT-02": "x" * 201}
    with_test = {"RT-01": ["test_a.py"], "RT-02": ["test_a.py"]}
    assert behaviours.errors(statements, with_test) == ["RT-02 has 201 characters, at most 200 are allowed"]


def test_the_index_names_each_page_and_its_sections() -> None:
    index = (behaviours.FOLDER / "README.md").read_text(encoding="utf-8")
    pages = [page for page in behaviours.FOLDER.glob("*.md") if page.name != "README.md"]
    assert len(pages) > 5
    for page in pages:
        sections = re.findall(r"^## ([A-Z]{2}):", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert f"({page.name}) | {', '.join(sections)} |" in index


def test_marks_are_read_from_decorators_and_parameters() -> None:
    source = (
        'import pytest\n@pytest.mark.behaviour("RT-01")\ndef test_a(): ...\n'
        'P = [pytest.param(1, marks=pytest.mark.behaviour("RT-02", "RT-03"))]\n'
    )
    assert list(behaviours.marks(source)) == ["RT-01", "RT-02", "RT-03"]


def test_the_count_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert behaviours.main() == 0
    assert capsys.readouterr().out.startswith("behaviours: ")
