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

The warnings and errors of name servers and brokers. Each such line of the log has the name of its event, in
brackets behind the name of the logger or, in JSON, as `event`. Names stay when texts are reworded.
[Logging](logging.md#servers) shows how lines look and where they are written.

This page is generated from `src/orbitmq/log_events.toml` by `python scripts/log_events_page.py`.

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
