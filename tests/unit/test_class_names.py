"""A public class of a server has a unique name: a search for the name finds one class."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import orbitmq

# The packages that run in a broker or a name server.
ROOMS = (
    *("auth", "broker", "gateway", "message", "monitoring", "nameserver"),
    *("replication", "runtime", "settings", "store", "transport", "wire"),
)
# The messages of the gRPC protocol have the protocol's names.
PROTOCOL = "gateway/schema.py"


def classes_by_name(folder: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for path in (path for room in ROOMS for path in (folder / room).rglob("*.py")):
        place = path.relative_to(folder).as_posix()
        if place == PROTOCOL:
            continue
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(place)
    return found


def test_no_class_of_a_server_is_called_like_another() -> None:
    found = classes_by_name(Path(orbitmq.__file__).parent)
    assert len(found) > 500
    assert {name: places for name, places in found.items() if len(places) > 1} == {}
