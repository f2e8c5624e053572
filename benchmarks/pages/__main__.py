"""The figures of README.md, docs/measured.md and docs/high-availability.md, written from the records.

    python -m benchmarks.pages          # write them into the pages
    python -m benchmarks.pages --check  # fail when a page has other ones

A block begins with ``<!-- figures: NAME -->`` and ends with ``<!-- end of figures -->``; the function of that
name writes its text. A test compares pages and records, so no page has a figure without a record.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.pages import broker, faults, operate, spark
from benchmarks.servers import ROOT

PAGES = ("README.md", "docs/measured.md", "docs/high-availability.md")
BLOCK = re.compile(
    r"(?P<begin><!-- figures: (?P<name>[a-z-]+) -->\n)(?P<text>.*?)(?P<end><!-- end of figures -->)",
    re.DOTALL,
)
BLOCKS = {**broker.BLOCKS, **operate.BLOCKS, **spark.BLOCKS, **faults.BLOCKS}


def written(text: str) -> str:
    """The text with its blocks replaced by the records' figures.

    Raises:
        KeyError: a block has an unknown name.
    """
    return BLOCK.sub(lambda match: f"{match['begin']}{BLOCKS[match['name']]()}\n{match['end']}", text)


def differing() -> Iterator[Path]:
    """The pages whose figures differ from the records."""
    for name in PAGES:
        path = ROOT / name
        if (text := path.read_text(encoding="utf-8")) != written(text):
            yield path


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.pages", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 when a page differs")
    options = parser.parse_args()
    found = list(differing())
    for path in found:
        print(f"{path.relative_to(ROOT)}: {'differs from its records' if options.check else 'written'}")
        if not options.check:
            path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
    return 1 if found and options.check else 0


if __name__ == "__main__":
    raise SystemExit(main())
