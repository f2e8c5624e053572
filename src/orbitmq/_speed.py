"""One source, two speeds: decides whether importing a compiled module gives its machine code or its source.

The modules on the path of every message have a ``.pxd`` beside their ``.py``, and are compiled if there is a
compiler at installation. The package imports this module first. It

- makes ``import cython``, which those sources contain, work where Cython is not installed (a compiled module
  never runs that line), and
- with ``ORBITMQ_PURE=1`` in the environment imports every module of the package from its source, so that the
  same tests run at both speeds; processes that are started inherit it.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType, TracebackType
from typing import Any

PACKAGE = __name__.partition(".")[0]
SOURCE_ONLY = os.environ.get("ORBITMQ_PURE") == "1"


class SourceFinder:
    """Finds only source files of the package's modules, and ignores compiled ones."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if path is None or name.partition(".")[0] != PACKAGE:
            return None
        source = (importlib.machinery.SourceFileLoader, importlib.machinery.SOURCE_SUFFIXES)
        for folder in path:
            spec = importlib.machinery.FileFinder(folder, source).find_spec(name)
            if spec is not None and spec.loader is not None:
                return spec
        return None


class Inert:
    """Stands for Cython's names that have no effect uncompiled: C types, decorators, ``with`` blocks."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self

    def __getitem__(self, item: Any) -> Inert:
        return self

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class CythonStandIn(ModuleType):
    """The module that ``import cython`` gives when Cython is not installed."""

    compiled = False

    @staticmethod
    def cast(kind: Any, value: Any, typecheck: bool = False) -> Any:
        return value

    @staticmethod
    def declare(kind: Any = None, value: Any = None, **names: Any) -> Any:
        return value

    def __getattr__(self, name: str) -> Inert:
        if name.startswith("__"):
            raise AttributeError(name)
        return Inert()


def prepare() -> None:
    """Install the finder and the stand-in; called once, when the package is imported."""
    if SOURCE_ONLY and SourceFinder not in sys.meta_path:
        sys.meta_path.insert(0, SourceFinder)
    if "cython" not in sys.modules and importlib.util.find_spec("cython") is None:
        sys.modules["cython"] = CythonStandIn("cython")


def is_compiled(module: ModuleType) -> bool:
    """Whether ``module`` is compiled."""
    return isinstance(module.__loader__, importlib.machinery.ExtensionFileLoader)


def of_package() -> str:
    """``compiled`` or ``uncompiled``, by one module: all modules with a ``.pxd`` are compiled, or none."""
    return "compiled" if is_compiled(importlib.import_module(f"{PACKAGE}.message.octets")) else "uncompiled"


prepare()
