"""A wheel: compiled, whole, and usable where there is neither a compiler nor Cython."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import msgspec
import pytest
import typing_extensions

ROOT = Path(__file__).resolve().parents[2]
# The console's pages and their style.
CONSOLE_FILES = [
    str(file.relative_to(ROOT / "src"))
    for folder in ("templates", "static")
    for file in (ROOT / "src" / "orbitmq" / "console" / folder).rglob("*")
    if file.is_file()
]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The project's source, without what development has built of it."""
    tree = tmp_path / "source"
    built = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
    for folder in ("src", "scripts"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=built)
    for file in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, tree)
    # No test judges how fast the wheel is, and optimising takes more than half of its time.
    recipe = (tree / "setup.py").read_text()
    assert recipe.count('"-O3"') == 1
    (tree / "setup.py").write_text(recipe.replace('"-O3"', '"-O0"'))
    return tree


def make_wheel(source: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", str(source / "scripts" / "wheel.sh"), sys.executable],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def install(wheel: Path, folder: Path) -> Path:
    """An environment with the wheel and what it depends on; returns its folder of commands."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "-q",
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*command, "--no-compile", str(wheel)], check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    (packages / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    (packages / "typing_extensions.py").symlink_to(typing_extensions.__file__)
    return python.parent


def run(bin_folder: Path, *command: str) -> str:
    """Run a command of that environment, which sees nothing else."""
    done = subprocess.run(
        [str(bin_folder / command[0]), *command[1:]],
        capture_output=True,
        text=True,
        check=False,
        cwd=bin_folder,
        env={"PATH": str(bin_folder)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.behaviour("CS-18")
def test_a_wheel_runs_compiled_in_an_environment_without_a_compiler(source: Path, tmp_path: Path) -> None:
    built = make_wheel(source)
    assert built.returncode == 0, built.stderr
    (wheel,) = (source / "dist").glob("*.whl")
    if "-linux_" in wheel.name:
        assert "a package index takes no such wheel" in built.stderr
    with zipfile.ZipFile(wheel) as content:
        assert set(CONSOLE_FILES) <= set(content.namelist())
    commands = install(wheel, tmp_path / "empty")
    assert "(compiled)" in run(commands, "orbitmq", "--version")
    modules = [
        ".".join(pxd.relative_to(source / "src").with_suffix("").parts)
        for pxd in (source / "src").rglob("*.pxd")
    ]
    code = f"import importlib; [print(importlib.import_module(name).__file__) for name in {modules}]"
    files = run(commands, "python", "-c", code).splitlines()
    assert len(files) == len(modules) > 10
    assert all(file.endswith(".so") and str(tmp_path / "empty") in file for file in files)


def test_a_wheel_that_cannot_be_compiled_is_not_built(source: Path) -> None:
    built = make_wheel(source, CC="/nowhere/cc")
    assert built.returncode != 0
    assert "not compiled: no C compiler (/nowhere/cc not found)" in built.stderr
    assert "ORBITMQ_PURE=1" in built.stderr
    assert not list(source.glob("dist/*.whl"))


@pytest.mark.slow
def test_an_uncompiled_wheel_is_built_when_asked_for(source: Path, tmp_path: Path) -> None:
    built = make_wheel(source, CC="/nowhere/cc", ORBITMQ_PURE="1")
    assert built.returncode == 0, built.stderr
    (wheel,) = (source / "dist").glob("*-none-any.whl")
    assert "(uncompiled)" in run(install(wheel, tmp_path / "empty"), "orbitmq", "--version")


@pytest.mark.behaviour("CS-18")
@pytest.mark.parametrize("variable", ["CFLAGS", "CC"])
def test_a_wheel_for_this_processor_only_is_not_built(source: Path, variable: str) -> None:
    built = make_wheel(source, **{variable: "cc -march=native"})
    assert built.returncode != 0
    assert "instructions of this machine's processor (native)" in built.stderr
    assert "out of CFLAGS" in built.stderr
    assert not list(source.glob("dist/*.whl"))


@pytest.mark.behaviour("CS-18")
def test_wheels_are_made_for_each_python_of_the_classifiers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    classifiers = project["project"]["classifiers"]
    pythons = re.findall(r"Python :: 3\.(\d+)", "\n".join(classifiers))
    wheels = project["tool"]["cibuildwheel"]
    assert wheels["build"] == [f"cp3{minor}-*" for minor in pythons]
    assert wheels["linux"]["archs"] == ["x86_64", "aarch64"]
    assert {key.partition("-")[0] for key in wheels["linux"] if key.endswith("image")} == {
        "manylinux",
        "musllinux",
    }


@pytest.mark.behaviour("CS-18")
def test_no_compiler_flag_asks_for_a_newer_processor() -> None:
    [flags] = re.findall(r"extra_compile_args=\[(.*?)\]", (ROOT / "setup.py").read_text(encoding="utf-8"))
    assert not re.search(r"-m\w", flags)
