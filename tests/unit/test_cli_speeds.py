"""One source at two speeds: forcing the sources, and running them without Cython installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq._speed import CythonStandIn, SourceFinder

SOURCE = Path(__file__).resolve().parents[2] / "src"
HOT = [
    ".".join(pxd.relative_to(SOURCE).with_suffix("").parts)
    for pxd in sorted(SOURCE.rglob("*.pxd"))
    if pxd.with_suffix(".py").exists()
]


def python(code: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SOURCE), **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# Each module is imported as OrbitMQ's first one, as in an interpreter of its own, which would take longer.
IMPORT_EACH_FIRST = f"""
import importlib, importlib.util, sys
real = importlib.util.find_spec
if "without Cython" in sys.argv:
    importlib.util.find_spec = lambda name, package=None: None if name == "cython" else real(name, package)
finders = list(sys.meta_path)
for name in {HOT}:
    sys.meta_path[:] = finders
    for known in [known for known in sys.modules if known.partition(".")[0] in ("orbitmq", "cython")]:
        del sys.modules[known]
    file = importlib.import_module(name).__file__
    import cython
    print(name, file, type(cython).__name__, cython.compiled)
"""


def imported(*arguments: str) -> dict[str, list[str]]:
    """For each hot module: its file, the module that it uses as Cython, and whether that is compiled."""
    lines = python(IMPORT_EACH_FIRST, *arguments, ORBITMQ_PURE="1").splitlines()
    return {name: found for name, *found in map(str.split, lines)}


@pytest.fixture(scope="module")
def forced() -> dict[str, list[str]]:
    return imported()


@pytest.fixture(scope="module")
def without_cython() -> dict[str, list[str]]:
    return imported("without Cython")


@pytest.mark.parametrize("name", HOT)
def test_a_hot_module_can_be_forced_to_its_source(name: str, forced: dict[str, list[str]]) -> None:
    assert forced[name][0].endswith(name.rpartition(".")[2] + ".py")


@pytest.mark.parametrize("name", HOT)
def test_a_hot_module_runs_without_cython(name: str, without_cython: dict[str, list[str]]) -> None:
    assert without_cython[name][1:] == ["CythonStandIn", "False"]


def test_only_our_modules_are_found_as_sources() -> None:
    assert SourceFinder.find_spec("json.decoder", [str(SOURCE)]) is None
    assert SourceFinder.find_spec("orbitmq", None) is None
    spec = SourceFinder.find_spec("orbitmq._speed", [str(SOURCE / "orbitmq")])
    assert spec is not None
    assert str(spec.origin).endswith("_speed.py")


def test_the_stand_in_means_nothing() -> None:
    cython = CythonStandIn("cython")

    @cython.cfunc
    @cython.locals(a=cython.int)
    @cython.boundscheck(False)
    def twice(a: int) -> int:
        with cython.nogil:
            return 2 * a

    assert twice(4) == 8
    assert cython.cast(cython.p_uchar, 7) == 7
    assert cython.declare(cython.int, 3) == 3
    assert cython.compiled is False
    with pytest.raises(AttributeError):
        _ = cython.__path__
