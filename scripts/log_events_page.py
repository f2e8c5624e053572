"""Make docs/log-events.md of the catalogue of log events.

python scripts/log_events_page.py           write the page
python scripts/log_events_page.py --check   exit code 1 when it is not up to date
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "log-events.md"
HEAD = """\
# Log events

What a name server or a broker warns of. Each line of its log that is a warning or an error has the name of
its event, in brackets behind the logger's or, in JSON, as `event`. Names stay when texts are worded anew.
How lines look and where they go: [logging](logging.md#servers).

This page is made of `src/orbitmq/log_events.toml` by `python scripts/log_events_page.py`.

| event | why | what to do |
|---|---|---|
"""


def page() -> str:
    """The page as it should be."""
    sys.path.insert(0, str(ROOT / "src"))
    from orbitmq.runtime.log_events import catalogue

    rows = (
        f"| {event.name} | {event.cause} | {event.cure} |\n"
        for event in sorted(catalogue(), key=lambda event: event.name)
    )
    return HEAD + "".join(rows)


def main() -> int:
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.read_text(encoding="utf-8") == page() else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
