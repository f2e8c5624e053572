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
    numbers = [number for number, _, _ in behaviours.rows()]
    assert len(numbers) == len(set(numbers)) == len(behaviours.listed()) >= 262
    for section in {number[:2] for number in numbers}:
        every = sorted(int(number[3:]) for number in numbers if number.startswith(section))
        assert every == list(range(1, len(every) + 1)), section
    by_page: dict[tuple[Path, str], list[str]] = {}
    for number, _, page in behaviours.rows():
        by_page.setdefault((page, number[:2]), []).append(number)
    for (page, section), own in by_page.items():
        assert own == sorted(own), f"{page.name}: {section}"


def test_document_and_marks_agree() -> None:
    assert behaviours.errors(behaviours.listed(), behaviours.marked()) == []


def test_a_behaviour_without_a_test_is_an_error() -> None:
    statements = {"RT-01": "One.", "RT-02": "Two.", "RT-03": "Three."}
    with_test = {"RT-01": ["test_a.py"], "RT-03": ["test_a.py"]}
    assert behaviours.errors(statements, with_test) == ["RT-02 has no test: Two."]
    with_test = {**with_test, "RT-02": ["test_a.py"], "XX-01": ["test_b.py"]}
    assert behaviours.errors(statements, with_test) == [
        "XX-01 is in no table of docs/behaviours or docs/decisions (test_b.py)"
    ]


def test_a_row_of_more_than_200_characters_is_an_error() -> None:
    statements = {"RT-01": "x" * 200, "RT-02": "x" * 201}
    with_test = {"RT-01": ["test_a.py"], "RT-02": ["test_a.py"]}
    assert behaviours.errors(statements, with_test) == ["RT-02 has 201 characters, at most 200 are allowed"]


def test_no_page_of_behaviours_has_a_promise_of_orbitmq_alone() -> None:
    assert behaviours.misplaced() == []


def test_a_promise_of_orbitmq_alone_on_such_a_page_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "room.md").write_text("| XX-01 | (OrbitMQ) One. |\n| XX-02 | Two. |\n", encoding="utf-8")
    monkeypatch.setattr(behaviours, "FOLDER", tmp_path)
    assert behaviours.misplaced() == [
        "XX-01 is OrbitMQ's own: its row belongs to the decision that it follows from"
    ]


def test_a_number_of_two_rows_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "room.md").write_text("| XX-01 | One. |\n", encoding="utf-8")
    (tmp_path / "0001.md").write_text("| XX-01 | Another. |\n| XX-02 | Two. |\n", encoding="utf-8")
    monkeypatch.setattr(behaviours, "FOLDER", tmp_path)
    monkeypatch.setattr(behaviours, "DECISIONS", tmp_path / "none")
    assert behaviours.repeated() == ["XX-01 is in 0001.md and room.md"]


def test_a_number_is_shown_with_its_page_and_its_tests() -> None:
    statement, place = behaviours.shown("PO-36")
    assert statement.startswith("PO-36  Deliveries of delayed")
    assert place.strip().startswith("docs/decisions/0018-state-beside-the-log.md, tests: ")
    assert "none" not in place
    assert len(list(behaviours.shown("PO"))) > 80


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
    assert behaviours.main([]) == 0
    assert capsys.readouterr().out.startswith("behaviours: ")
