"""What mqadmin prints at Apache's own place, kept for runs that do not start Apache's servers."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.servers import PEER_VERSION, ROOT

# A run with Apache's servers writes the first; the second comes with the checkout.
KEPT = ROOT / "build" / f"mqadmin-{PEER_VERSION}.json"
COMMITTED = ROOT / "tests" / "interop" / f"mqadmin-{PEER_VERSION}.json"


@dataclass
class Baseline:
    """Outputs of mqadmin by conversation and command, and the tables that some commands print."""

    conversations: dict[str, dict[str, str]] = field(default_factory=dict)
    tables: dict[str, dict[str, str]] = field(default_factory=dict)

    def of(self, conversation: str, commands: set[str]) -> dict[str, str] | None:
        """The conversation as Apache's place has it; None when it has none with these commands."""
        found = self.conversations.get(conversation)
        return found if found is not None and set(found) == commands else None

    def save(self, path: Path = KEPT) -> None:
        path.parent.mkdir(exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")
        fresh.rename(path)


def load(*paths: Path) -> Baseline:
    """The first baseline that can be read, by default what was kept last; an empty one when there is none."""
    for path in paths or (KEPT, COMMITTED):
        with contextlib.suppress(OSError, ValueError, TypeError):
            return Baseline(**json.loads(path.read_text(encoding="utf-8")))
    return Baseline()
