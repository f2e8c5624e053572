"""Make docs/errors.md of the catalogue of errors.

python scripts/errors_page.py           write the page
python scripts/errors_page.py --check   exit code 1 when it is not up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "errors.md"
HEAD = """\
# Errors by their codes

The `code` of an error that a client raises, what it means and what to do: also as `error.help` in a program.
`SendError` carries the code of its last attempt, and every attempt in `attempts`. Codes from 10001 on are
given by the client itself, with the names of Java's `ClientErrorCode`.

This page is made of `src/orbitmq/errors.toml` by `python scripts/errors_page.py`.

| code | name | meaning | what to do |
|---|---|---|---|
"""


def page() -> str:
    """The page as it should be."""
    sys.path.insert(0, str(ROOT / "src"))
    from orbitmq.errors import catalogue

    rows = (
        f"| {entry.code} | {entry.constant} | {entry.text} | {entry.help} |\n"
        for entry in catalogue().values()
    )
    return HEAD + "".join(row.replace("'a || b'", "'a \\|\\| b'") for row in rows)


def main() -> int:
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text(encoding="utf-8") == page() else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
