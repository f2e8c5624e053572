"""Write tests/unit/golden/surface.txt: every public name with its signature.

    .venv/bin/python scripts/surface.py

tests/unit/test_client_surface.py compares it with the code: a change of what programs see is a decision.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "unit" / "golden" / "surface.txt"
DOORS = (
    "orbitmq",
    "orbitmq.errors",
    "orbitmq.sync",
    "orbitmq.admin",
    "orbitmq.testing",
    "orbitmq.spark",
)
# Shared by clients, otherwise internal: only its constructor is public.
OPAQUE = frozenset({"ClientInstance"})


def surface() -> str:
    """All public names of all doors, one a line, members indented."""
    return "\n".join(line for door in DOORS for line in _door(import_module(door))) + "\n"


def _door(module: ModuleType) -> Iterator[str]:
    yield f"{module.__name__}:"
    for name in sorted(getattr(module, "__all__", ())):
        for line in _shown(name, getattr(module, name)):
            yield f"  {line}"


def _shown(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        values = "" if issubclass(value, Enum) else _signature(value)
        yield f"class {name}{values}"
        if name not in OPAQUE:
            for line in sorted(set(_members(value))):
                yield f"  {line}"
    elif inspect.isroutine(value):
        yield f"{name}{_signature(value)}"
    else:
        yield f"{name} = {value}"


def _members(kind: type[Any]) -> Iterator[str]:
    if issubclass(kind, Enum):
        yield from (f"{each.name} = {each.value!r}" for each in kind)
        return
    for owner in kind.__mro__:
        if owner.__module__.startswith("orbitmq."):
            for name, hint in inspect.get_annotations(owner).items():
                if name[0] != "_":
                    yield f"{name}: {_hint(hint)}"
    for name in dir(kind):
        value = inspect.getattr_static(kind, name)
        owner = next(each for each in kind.__mro__ if name in each.__dict__)
        if name[0] == "_" or not owner.__module__.startswith("orbitmq."):
            continue
        if isinstance(value, property):
            yield f"{name}: {_hint(inspect.signature(value.fget).return_annotation)}"  # type: ignore[arg-type]
        elif inspect.isroutine(value):
            kinds = "async " if inspect.iscoroutinefunction(value) else ""
            yield f"{kinds}{name}{_signature(getattr(kind, name))}"


def _signature(value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    words: list[str] = []
    starred = False
    for each in signature.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not starred:
            words.append("*")
        starred = starred or each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        star = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        hint = "" if each.annotation is each.empty else f": {_hint(each.annotation)}"
        default = "" if each.default is each.empty else f" = {_default(each.default)}"
        words.append(f"{star}{each.name}{hint}{default}")
    back = signature.return_annotation
    arrow = "" if back in (signature.empty, None, "None") else f" -> {_hint(back)}"
    return f"({', '.join(words)}){arrow}"


def _hint(hint: Any) -> str:
    if isinstance(hint, str):
        return hint
    return getattr(hint, "__forward_arg__", None) or inspect.formatannotation(hint)


def _default(value: Any) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    return getattr(value, "__name__", None) or repr(value)


def main() -> None:
    """Write the file."""
    GOLDEN.write_text(surface())


if __name__ == "__main__":
    sys.exit(main())
