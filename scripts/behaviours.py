"""Whether each numbered statement has a test; prints what is wrong.

RocketMQ's behaviours are rows of docs/behaviours, OrbitMQ's own promises are rows of the decisions. A test
names those that it shows with ``@pytest.mark.behaviour("RT-07")``. Each number needs a row and a test, and a
row has at most 200 characters. With a number or the letters of a section the script says where they stand.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "behaviours"
DECISIONS = ROOT / "docs" / "decisions"
ROW = re.compile(r"^\| ([A-Z]{2}-\d\d) \| (.+?) \|$")
LONGEST = 200


def rows() -> Iterator[tuple[str, str, Path]]:
    """Number, statement and page of each row, page by page."""
    for page in (*sorted(FOLDER.glob("*.md")), *sorted(DECISIONS.glob("*.md"))):
        for line in page.read_text(encoding="utf-8").splitlines():
            if row := ROW.match(line):
                yield row[1], row[2], page


def listed() -> dict[str, str]:
    """Number to statement."""
    return {number: statement for number, statement, _ in rows()}


def marks(source: str) -> Iterator[str]:
    """The numbers named by ``pytest.mark.behaviour(...)`` anywhere in a test file."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr != "behaviour":
            continue
        for argument in node.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                yield argument.value


@functools.cache
def marked(folder: Path = ROOT / "tests") -> dict[str, list[str]]:
    """Number to the files that name it."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        for number in sorted(set(marks(path.read_text(encoding="utf-8")))):
            found.setdefault(number, []).append(str(path.relative_to(folder)))
    return found


def errors(statements: dict[str, str], with_test: dict[str, list[str]]) -> list[str]:
    """Numbers without a row or without a test, and rows that are too long."""
    found = [
        f"{number} is in no table of docs/behaviours or docs/decisions ({', '.join(with_test[number])})"
        for number in sorted(set(with_test) - set(statements))
    ]
    found += [
        f"{number} has no test: {statement}"
        for number, statement in statements.items()
        if number not in with_test
    ]
    return found + [
        f"{number} has {len(statement)} characters, at most {LONGEST} are allowed"
        for number, statement in statements.items()
        if len(statement) > LONGEST
    ]


def repeated() -> list[str]:
    """Numbers that two rows have."""
    pages: dict[str, list[str]] = {}
    for number, _, page in rows():
        pages.setdefault(number, []).append(page.name)
    return [f"{number} is in {' and '.join(names)}" for number, names in pages.items() if len(names) > 1]


def misplaced() -> list[str]:
    """Rows of OrbitMQ's own promises on a page of RocketMQ's behaviours."""
    return [
        f"{number} is OrbitMQ's own: its row belongs to the decision that it follows from"
        for number, statement, page in rows()
        if page.parent == FOLDER and statement.startswith("(OrbitMQ)")
    ]


def shown(prefix: str) -> Iterator[str]:
    """Each row whose number begins so, with its page and the files that test it."""
    with_test = marked()
    for number, statement, page in sorted(rows()):
        if number.startswith(prefix):
            yield f"{number}  {statement}"
            yield f"       {page.relative_to(ROOT)}, tests: {', '.join(with_test.get(number, ['none']))}"


def main(arguments: list[str]) -> int:
    if arguments:
        print("\n".join(line for prefix in arguments for line in shown(prefix)))
        return 0
    statements, with_test = listed(), marked()
    print(f"behaviours: {len(statements.keys() & with_test)} of {len(statements)} have a test")
    wrong = errors(statements, with_test) + repeated() + misplaced()
    for line in wrong:
        print(f"behaviours: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
