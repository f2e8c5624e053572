"""`setup.py build_ext --inplace` on a small project: what it compiles again, and what a failure leaves."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BASE = "import cython\n\n\ndef twice(number):\n    return 2 * number\n"
USER = (
    "import cython\nfrom orbitmq.base import twice\n\n\ndef four(number):\n    return twice(twice(number))\n"
)
OTHER = "import cython\n\n\nclass Kept:\n    def __init__(self, data):\n        self.view = data\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Three hot modules, of which one calls another's C function and one has a memory view."""
    package = tmp_path / "src" / "orbitmq"
    package.mkdir(parents=True)
    # Its -O3 stands behind the CFLAGS of the environment; here nobody runs what is compiled for long.
    recipe = (ROOT / "setup.py").read_text()
    assert recipe.count('"-O3"') == 1
    (tmp_path / "setup.py").write_text(recipe.replace('"-O3"', '"-O0"'))
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "orbitmq"\nversion = "0"\n')
    (package / "__init__.py").write_text("")
    files = {
        "base.py": BASE,
        "base.pxd": "cpdef long twice(long number)\n",
        "user.py": USER,
        "user.pxd": "from orbitmq.base cimport twice\ncpdef long four(long number)\n",
        "other.py": OTHER,
        "other.pxd": "cdef class Kept:\n    cdef const unsigned char[::1] view\n",
    }
    for name, text in files.items():
        (package / name).write_text(text)
    return tmp_path


def build(project: Path, **environment: str) -> str:
    """Build in place; returns what it printed as a warning."""
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr
    return "\n".join(line for line in done.stderr.splitlines() if line.startswith("WARNING"))


def binaries(project: Path) -> dict[str, int]:
    """Module to when it was compiled, ns."""
    return {path.name.partition(".")[0]: path.stat().st_mtime_ns for path in project.glob("src/orbitmq/*.so")}


def change(file: Path, text: str) -> None:
    time.sleep(0.02)  # file times are compared
    file.write_text(text)


def result(project: Path) -> str:
    code = "import orbitmq.user as u, orbitmq.base as b; print(u.four(5), b.__file__.rpartition('.')[2])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.slow
def test_only_what_changed_and_what_depends_on_it_is_compiled_again(project: Path) -> None:
    package = project / "src" / "orbitmq"
    assert build(project) == ""
    first = binaries(project)
    assert set(first) == {"base", "user", "other", "_cyutility"}
    assert result(project) == "20 so"

    assert build(project) == ""
    assert binaries(project) == first

    change(package / "base.py", BASE.replace("2 *", "3 *"))
    build(project)
    second = binaries(project)
    assert {name for name in first if second[name] != first[name]} == {"base"}
    assert result(project) == "45 so"

    change(package / "base.pxd", "cpdef int twice(int number)\n")
    build(project)
    third = binaries(project)
    assert {name for name in first if third[name] != second[name]} == {"base", "user"}
    assert result(project) == "45 so"

    # One that is gone, or fails, must not run on as a binary of its older source.
    (package / "other.pxd").unlink()
    build(project)
    assert set(binaries(project)) == {"base", "user", "_cyutility"}
    change(package / "user.py", USER + "\ndef broken(:\n")
    assert "runs uncompiled, and slower: Cython refuses a module" in build(project)
    assert binaries(project) == {}


def test_without_a_compiler_one_line_warns_and_the_package_is_uncompiled(project: Path) -> None:
    stale = project / "src" / "orbitmq" / "base.cpython-311-x86_64-linux-gnu.so"
    stale.write_bytes(b"of an older source")
    warning = build(project, CC="/nowhere/cc")
    assert warning == "WARNING: OrbitMQ runs uncompiled, and slower: no C compiler (/nowhere/cc not found)"
    assert binaries(project) == {}
    assert result(project) == "20 py"


@pytest.mark.slow
def test_a_failing_compiler_leaves_the_package_uncompiled(project: Path) -> None:
    assert "runs uncompiled, and slower: the C compiler failed" in build(project, CC="false")
    assert binaries(project) == {}
    assert result(project) == "20 py"
