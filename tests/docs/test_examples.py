"""Every program of ``examples/`` runs, is short, and uses nothing but public names."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from tests.docs.test_readme import ADDRESS, ROOT, environment, name_server

__all__ = ["name_server"]

FOLDER = ROOT / "examples"
DOORS = (
    "orbitmq",
    "orbitmq.admin",
    "orbitmq.errors",
    "orbitmq.spark",
    "orbitmq.spark.jobs",
    "orbitmq.spark.session",
    "orbitmq.sync",
    "orbitmq.testing",
)
PRINTED = {
    "send_and_consume": "['order 0', 'order 1', 'order 2']\n",
    "order": "['ann', 'bob', 'eve'] True\n",
    "transaction": "['bill 1', 'bill 3']\n",
    "request_reply": "one umbrella: 17 euro\n",
    "delayed": "thanks for your order - at once\npay - after its delay\n",
    "spark_stream": "{'open': 25, 'paid': 75}\n",
}
NEEDS_JAVA = (
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs Java"),
)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=NEEDS_JAVA if "spark" in name else ()) for name in PRINTED]
)
def test_an_example_prints_what_it_should(name: str, name_server: str, tmp_path: Path) -> None:
    program = tmp_path / f"{name}.py"
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    assert text.count(ADDRESS) == 1
    program.write_text(text.replace(ADDRESS, name_server), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(),
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == PRINTED[name]


def offered_by(door: str) -> list[str]:
    """The names in ``__all__``; a module without it offers what it defines."""
    module = import_module(door)
    here = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == door]
    return getattr(module, "__all__", here)


def test_each_example_is_run() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted(PRINTED)


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_can_be_read_at_a_glance(name: str) -> None:
    assert 20 <= len((FOLDER / f"{name}.py").read_text(encoding="utf-8").splitlines()) <= 40


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_an_example_imports_only_public_names(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        assert not [name for name in modules if name.startswith("orbitmq.") and name not in DOORS]
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "orbitmq":
            assert node.module in DOORS, ast.unparse(node)
            offered = offered_by(node.module)
            assert [alias.name for alias in node.names if alias.name not in offered] == [], ast.unparse(node)
