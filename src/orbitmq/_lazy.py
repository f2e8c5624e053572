"""Loads the names of a package on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module


def lazy(
    package: str, homes: Mapping[str, str], others: Collection[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: the package's ``__name__``.
        homes: the module of each attribute, by the attribute's name.
        others: the public attributes of the package itself.
    """

    def load(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return load, lambda: sorted({*homes, *others})
