"""Compile the modules on the path of every message.

A module is compiled when a ``.pxd`` of the same name stands beside its ``.py``. It stays ordinary Python, so
the package also runs uncompiled. Either all of these modules are compiled or none: they call each other's C
functions, and they share Cython's own helpers in one more binary, ``orbitmq._cyutility``.

- ``python setup.py build_ext --inplace`` builds for development, only what changed and what depends on it
  (``--force``: all of it). What cannot be compiled leaves the package uncompiled, with one warning line.
- A wheel that cannot be compiled fails. ``ORBITMQ_PURE=1`` asks for an uncompiled one.
- On other systems than Linux, where only clients run, nothing is compiled.
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
SHARED = "orbitmq._cyutility"
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
    if os.environ.get("ORBITMQ_PURE") == "1" or sys.platform != "linux":
        return []
    sources = {
        ".".join(path.relative_to(SOURCE).with_suffix("").parts): [str(path)] for path in hot_modules()
    }
    # Cython writes the shared module's source itself.
    sources[SHARED] = []
    return [
        # Python's own flags ask for debug information, which doubles the time and the size.
        Extension(
            name,
            files,
            include_dirs=[str(SOURCE)],
            depends=["setup.py", *map(str, SOURCE.rglob("*.h"))],
            extra_compile_args=["-O3", "-g0"],
        )
        for name, files in sources.items()
    ]


class NotCompiledError(BaseError):
    """The hot modules cannot be compiled here; the text says why."""


class BuildAllOrNone(build_ext):
    """Compile all hot modules, several at a time."""

    def finalize_options(self) -> None:
        super().finalize_options()
        if sys.platform == "linux":
            self.parallel = self.parallel or len(os.sched_getaffinity(0))

    def run(self) -> None:
        development = self.inplace
        try:
            super().run()
        except (NotCompiledError, CCompilerError) as error:
            reason = "the C compiler failed (its message is above)"
            if isinstance(error, NotCompiledError):
                reason = str(error)
            if not development:
                raise NotCompiledError(
                    f"OrbitMQ is not compiled: {reason}. ORBITMQ_PURE=1 builds it uncompiled, and slower"
                ) from error
            remove_binaries(keep=[])
            print(f"WARNING: OrbitMQ runs uncompiled, and slower: {reason}", file=sys.stderr)
        else:
            if development:
                remove_binaries(keep=[self.get_ext_filename(ext.name) for ext in self.extensions])

    def build_extensions(self) -> None:
        command = getattr(self.compiler, "compiler", None)
        if command and shutil.which(shlex.split(str(command[0]))[0]) is None:
            raise NotCompiledError(f"no C compiler ({command[0]} not found)")
        self._generate()
        # The longest first, so that no core waits for it at the end.
        self.extensions.sort(key=lambda ext: -Path(ext.sources[0]).stat().st_size)
        super().build_extensions()

    def _generate(self) -> None:
        """Write the C sources that are older than what they are made of; name them in the extensions."""
        try:
            from Cython.Build import cythonize
            from Cython.Compiler.Errors import CompileError
        except ImportError:
            raise NotCompiledError("Cython is not installed") from None
        shared = str(SOURCE.joinpath(*SHARED.split(".")).with_suffix(".c"))
        recipe = Path(__file__).stat().st_mtime
        try:
            made = cythonize(
                [Extension(ext.name, list(ext.sources) or [shared]) for ext in self.extensions],
                include_path=[str(SOURCE)],
                compiler_directives=DIRECTIVES,
                shared_utility_qualified_name=SHARED,
                build_dir=str(GENERATED),
                nthreads=self.parallel,
                force=bool(self.force) or any(c.stat().st_mtime < recipe for c in GENERATED.rglob("*.c")),
                quiet=True,
            )
        except CompileError:
            raise NotCompiledError("Cython refuses a module (its message is above)") from None
        except (OSError, ValueError) as error:
            raise NotCompiledError(" ".join(str(error).split())[:200]) from error
        generated = {extension.name: list(extension.sources) for extension in made}
        for ext in self.extensions:
            ext.sources = generated[ext.name]


def remove_binaries(keep: list[str]) -> None:
    """Remove the binaries in the source tree, but for ``keep``: an older one would win over its source."""
    kept = {SOURCE / name for name in keep}
    for binary in SOURCE.rglob("*.so"):
        if binary not in kept:
            binary.unlink()


if __name__ == "__main__":
    setup(ext_modules=extensions(), cmdclass={"build_ext": BuildAllOrNone})
