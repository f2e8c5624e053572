"""A newcomer's path: an empty folder, a wheel in an environment of its own, README.md from top to bottom."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from tests.docs.test_readme import ADDRESS, FENCE, ROOT

pytestmark = pytest.mark.slow

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = [(match[1], match[2]) for match in FENCE.finditer(README)]
JAVA_HOME = os.environ.get("JAVA_HOME")
JAVA = shutil.which("java") or JAVA_HOME


@dataclass
class Newcomer:
    """A person's folder and environment: nothing of this checkout but the wheel and what it depends on."""

    folder: Path
    commands: Path
    name_server: str = ADDRESS

    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("HOME", "JAVA_HOME") if name in os.environ}
        path = os.pathsep.join((str(self.commands), os.environ["PATH"]))
        return {
            **kept,
            "PATH": path,
            "VIRTUAL_ENV": str(self.commands.parent),
            "NAMESRV_ADDR": self.name_server,
        }

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [str(self.commands / words[0]), *words[1:]],
            cwd=self.folder,
            env={**self.environment(), "PYSPARK_PYTHON": str(self.commands / "python")},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def python(self, code: str) -> str:
        return self.run("python", "-c", code.replace(ADDRESS, self.name_server))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `pip install .` makes of this checkout, uncompiled: tests/packaging compiles one."""
    tree = tmp_path_factory.mktemp("source")
    left_out = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", tree / "src", ignore=left_out)
    for file in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, tree)
    words = ["wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tree / "dist"), str(tree)]
    command = [sys.executable, "-m", "pip", *words]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "ORBITMQ_PURE": "1"})
    (found,) = (tree / "dist").glob("orbitmq-*.whl")
    return found


@pytest.fixture(scope="module")
def newcomer(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newcomer]:
    """The newcomer, with the cluster of ``orbitmq up`` on free ports instead of the usual ones."""
    home = tmp_path_factory.mktemp("newcomer")
    venv.create(home / "venv", with_pip=False)
    commands = home / "venv" / "bin"
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(commands / "python"),
        "install",
        "-q",
        "--no-deps",
    ]
    subprocess.run([*install, "--no-index", "--no-compile", str(wheel)], check=True)
    (packages,) = home.glob("venv/lib/python3*/site-packages")
    # What the extras would install; the checkout itself is not on that path.
    (packages / "extras.pth").write_text(str(Path(msgspec.__file__).parents[1]))
    (home / "work").mkdir()
    person = Newcomer(home / "work", commands)
    assert str(home) in person.python("import orbitmq; print(orbitmq.__file__)")
    command = [str(commands / "orbitmq"), "up", "--port", "0", "--dir", str(home / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=person.environment()) as cluster:
        assert cluster.stdout is not None
        try:
            lines = iter(cluster.stdout.readline, "")
            shown = next(line for line in lines if "export NAMESRV_ADDR=" in line)
            person.name_server = shown.strip().rpartition("=")[2]
            yield person
        finally:
            cluster.send_signal(signal.SIGINT)
            cluster.communicate(timeout=180)


def test_the_way_of_installing_is_one_that_works(wheel: Path) -> None:
    assert wheel.is_file()
    (extras,) = re.findall(r"^pip install '\.\[([\w,]+)\]'$", BLOCKS[0][1], re.MULTILINE)
    project = (ROOT / "pyproject.toml").read_text()
    for extra in [*extras.split(","), "spark", "console"]:
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE)


def test_the_readme_can_be_followed_from_top_to_bottom(newcomer: Newcomer) -> None:
    ran = []
    for place, (language, text) in enumerate(BLOCKS):
        if place == 0:
            continue  # the installation: the fixtures have done it
        following = BLOCKS[place + 1][1] if BLOCKS[place + 1 : place + 2] else ""
        if language == "sh":
            printed = [newcomer.run(*shlex.split(line)) for line in text.splitlines()]
            assert printed[-1] == following
        elif language == "python" and "from rocketmq import" not in text:
            assert newcomer.python(text) == following
            # The program leaves no message over: a second run prints the same.
            assert newcomer.python(text) == following
        else:
            continue  # make interop-grpc runs the programs of the clients of RocketMQ 5
        ran.append(language)
    assert ran == ["sh", "python"]


def first_example(page: str) -> tuple[str, str]:
    """The first Python program of a page that the README names, and the block that follows it."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    blocks = [(match[1], match[2]) for match in FENCE.finditer(text)]
    place = next(place for place, (language, _) in enumerate(blocks) if language == "python")
    return blocks[place][1], blocks[place + 1][1]


def test_the_first_test_of_its_page_passes(newcomer: Newcomer) -> None:
    (newcomer.folder / "test_orders.py").write_text(first_example("testing.md")[0], encoding="utf-8")
    assert "1 passed" in newcomer.run("python", "-m", "pytest", "-q", "test_orders.py")


@pytest.mark.spark
@pytest.mark.skipif(not JAVA, reason="needs Java")
def test_the_first_program_with_spark_prints_what_its_page_says(newcomer: Newcomer) -> None:
    program, output = first_example("spark.md")
    assert newcomer.python(program) == output


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 180
    assert README.index("Not there yet") < README.index("## Install")
