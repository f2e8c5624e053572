"""Compile the modules on the path of every message.

A module is compiled when a ``.pxd`` of the same name stands beside its ``.py``. It stays ordinary Python, so
a machine without a compiler installs the same package and runs it uncompiled, with one warning line.

``ORBITMQ_PURE=1`` skips compiling. ``python setup.py build_ext --inplace`` builds for development.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

SOURCE = Path("src")
GENERATED = Path("build") / "cython"
DIRECTIVES = {
    "language_level": 3,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
    # `if cython.compiled:` leaves one of its branches unreachable, which is the idea of it.
    "warn.unreachable": False,
    "show_performance_hints": False,
}


def hot_modules() -> list[Path]:
    """The sources to compile, as paths below the project's folder."""
    return sorted(pxd.with_suffix(".py") for pxd in SOURCE.rglob("*.pxd") if pxd.with_suffix(".py").exists())


def extensions() -> list[Extension]:
    if os.environ.get("ORBITMQ_PURE") == "1":
        return []
    return [
        Extension(
            ".".join(path.relative_to(SOURCE).with_suffix("").parts),
            [str(path)],
            depends=[str(path.with_suffix(".pxd"))],
            extra_compile_args=["-O3"],
            optional=True,
        )
        for path in hot_modules()
    ]


class BuildOrWarn(build_ext):
    """Compile what can be compiled; what cannot stays Python and is named in one warning line."""

    def run(self) -> None:
        self.failed: dict[str, str] = {}
        super().run()
        if self.inplace:
            for name in self.failed:
                # A binary of an older source must not win over the source that failed to compile.
                Path(self.get_ext_fullpath(name)).unlink(missing_ok=True)
        if self.failed:
            names = ", ".join(sorted(self.failed))
            reasons = "; ".join(sorted(set(self.failed.values())))
            print(f"WARNING: OrbitMQ runs uncompiled, and slower, in {names}: {reasons}", file=sys.stderr)

    def build_extension(self, ext: Extension) -> None:
        Path(self.build_lib, self.get_ext_filename(ext.name)).unlink(missing_ok=True)
        missing = self._missing_tool()
        if missing:
            self.failed[ext.name] = missing
            return
        try:
            ext.sources = [self._generate(ext)]
            super().build_extension(ext)
        except CCompilerError:
            self.failed[ext.name] = "the C compiler failed (its message is above)"
        except (BaseError, OSError, ValueError) as error:
            self.failed[ext.name] = " ".join(str(error).split())[:200]

    def _missing_tool(self) -> str | None:
        command = getattr(self.compiler, "compiler", None)
        if command and shutil.which(shlex.split(str(command[0]))[0]) is None:
            return f"no C compiler ({command[0]} not found)"
        try:
            import Cython  # noqa: F401
        except ImportError:
            return "Cython is not installed"
        return None

    def _generate(self, ext: Extension) -> str:
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError

        module = Extension(ext.name, list(ext.sources))
        try:
            made = cythonize(
                [module],
                include_path=[str(SOURCE)],
                compiler_directives=DIRECTIVES,
                build_dir=str(GENERATED),
                quiet=True,
            )
        except CompileError as error:
            raise ValueError("Cython refuses it (its message is above)") from error
        return str(made[0].sources[0])

    def get_outputs(self) -> list[str]:
        return [path for path in super().get_outputs() if Path(path).exists()]


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildOrWarn})
