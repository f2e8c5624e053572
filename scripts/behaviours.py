"""Whether each numbered behaviour of docs/behaviours.md has a test; prints what is wrong.

A test names the behaviours it shows with ``@pytest.mark.behaviour("RT-07")``. Each number of the document
needs a test, and each number that a test names must be in the document.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROW = re.compile(r"^\| ([A-Z]{2}-\d\d) \| (.+?) \|$")


def listed(path: Path = ROOT / "docs" / "behaviours.md") -> dict[str, str]:
    """Number to statement, in the order of the document."""
    rows = (ROW.match(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {row[1]: row[2] for row in rows if row}


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
    """What does not agree between the document and the marks."""
    found = [
        f"{number} is not in docs/behaviours.md ({', '.join(with_test[number])})"
        for number in sorted(set(with_test) - set(statements))
    ]
    return found + [
        f"{number} has no test: {statement}"
        for number, statement in statements.items()
        if number not in with_test
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
