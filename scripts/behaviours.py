"""Which numbered behaviours of docs/behaviours.md have a test, and which do not.

A test names the behaviours it shows with ``@pytest.mark.behaviour("RT-07")``. The numbers that may be without
a test stand in behaviours_without_test.txt: any other one that has none has lost it, and a number there that
has got one must leave that list. Both are errors.

    python scripts/behaviours.py            lists the behaviours without a test
    python scripts/behaviours.py --count    prints one line
    python scripts/behaviours.py --shorten  takes the numbers that have a test now out of the list
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WITHOUT_TEST = ROOT / "scripts" / "behaviours_without_test.txt"
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


def allowed(path: Path = WITHOUT_TEST) -> list[str]:
    """The numbers that may be without a test."""
    return path.read_text(encoding="utf-8").split()


def errors(statements: dict[str, str], with_test: dict[str, list[str]], without: list[str]) -> list[str]:
    """What does not agree between the document, the marks and the list of numbers without a test."""
    found = [
        f"{number} is not in docs/behaviours.md ({', '.join(with_test[number])})"
        for number in sorted(set(with_test) - set(statements))
    ]
    found += [
        f"{number} has lost its test: {statements[number]}"
        for number in statements
        if number not in with_test and number not in without
    ]
    found += [
        f"{number} of {WITHOUT_TEST.name} has a test (--shorten)" for number in without if number in with_test
    ]
    found += [
        f"{number} of {WITHOUT_TEST.name} is not in docs/behaviours.md"
        for number in without
        if number not in statements
    ]
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", action="store_true", help="print one line only")
    parser.add_argument("--shorten", action="store_true", help="take numbers with a test out of the list")
    options = parser.parse_args(arguments)
    statements, with_test = listed(), marked()
    if options.shorten:
        kept = [number for number in allowed() if number not in with_test]
        WITHOUT_TEST.write_text("".join(f"{number}\n" for number in kept), encoding="utf-8")
    missing = [number for number in statements if number not in with_test]
    if not options.count:
        for number in missing:
            print(f"{number}  {statements[number]}")
    print(f"behaviours: {len(statements) - len(missing)} of {len(statements)} have a test")
    wrong = errors(statements, with_test, allowed())
    for line in wrong:
        print(f"behaviours: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
