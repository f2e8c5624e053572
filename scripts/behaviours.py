"""Whether each numbered behaviour of docs/behaviours has a test; prints what is wrong.

A test names the behaviours it shows with ``@pytest.mark.behaviour("RT-07")``. Each number of the pages
needs a test, each number that a test names must be on a page, and a row has at most 200 characters.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "behaviours"
ROW = re.compile(r"^\| ([A-Z]{2}-\d\d) \| (.+?) \|$")
LONGEST = 200


def rows(folder: Path = FOLDER) -> Iterator[tuple[str, str]]:
    """Number and statement of each row, page by page, in the order of the pages."""
    for page in sorted(folder.glob("*.md")):
        for line in page.read_text(encoding="utf-8").splitlines():
            if row := ROW.match(line):
                yield row[1], row[2]


def listed(folder: Path = FOLDER) -> dict[str, str]:
    """Number to statement."""
    return dict(rows(folder))


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


def marked(folder: Path = ROOT / "tests") -> dict[str, list[str]]:
    """Number to the files that name it."""
    found: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        for number in sorted(set(marks(path.read_text(encoding="utf-8")))):
            found.setdefault(number, []).append(str(path.relative_to(folder)))
    return found


def errors(statements: dict[str, str], with_test: dict[str, list[str]]) -> list[str]:
    """What does not agree between the pages and the marks, and rows that are too long."""
    found = [
        f"{number} is not in docs/behaviours ({', '.join(with_test[number])})"
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


def main() -> int:
    statements, with_test = listed(), marked()
    print(f"behaviours: {len(statements.keys() & with_test)} of {len(statements)} have a test")
    wrong = errors(statements, with_test)
    for line in wrong:
        print(f"behaviours: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
