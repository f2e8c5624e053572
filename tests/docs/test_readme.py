"""Every Python example of the README and of these pages runs and prints what its page says.

`make interop-grpc` runs those of the official client of RocketMQ 5, which this environment does not have.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.interop.grpc_clients import page_program

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "127.0.0.1:9876"


PAGES = (
    "README.md",
    "docs/admin.md",
    "docs/consuming.md",
    "docs/filters.md",
    "docs/groups.md",
    "docs/logging.md",
    "docs/pop.md",
    "docs/producing.md",
    "docs/timers.md",
)


def examples(page: str) -> list[tuple[str, str]]:
    """Each Python block with the output block that follows it."""
    blocks = [(match[1], match[2]) for match in FENCE.finditer((ROOT / page).read_text(encoding="utf-8"))]
    return [
        (code, blocks[place + 1][1]) for place, (language, code) in enumerate(blocks) if language == "python"
    ]


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("cluster")
    command = [sys.executable, "-m", "orbitmq", "up", "--port", "0", "--json", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment()) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["name_server"]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 0


PARAMETERS = [
    pytest.param(code, expected, id=f"{page} {number}")
    for page in PAGES
    for number, (code, expected) in enumerate(examples(page), 1)
    if not re.search("spark|^from rocketmq import", code, re.MULTILINE)
]


@pytest.mark.parametrize(("code", "expected"), PARAMETERS)
def test_an_example_prints_what_its_page_says(
    code: str, expected: str, name_server: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code.replace(ADDRESS, name_server)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment(),
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == expected


# Each example's output is told apart by a line that no example prints.
RUN_ALL = """
import json, sys
names = {}
for code in json.loads(sys.stdin.read()):
    exec(compile(code, "<example>", "exec"), names)
    print("---- end of example", flush=True)
"""


def printed_by(codes: list[str], name_server: str, folder: Path) -> list[str]:
    """What each example prints, all run in one process in ``folder``."""
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL],
        input=json.dumps([code.replace(ADDRESS, name_server) for code in codes]),
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(),
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("---- end of example\n")[:-1]


@pytest.mark.parametrize("page", PAGES)
def test_every_example_shows_its_output(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    languages = [match[1] for match in FENCE.finditer(text)]
    followed = [
        after for before, after in zip(languages, [*languages[1:], ""], strict=True) if before == "python"
    ]
    assert followed
    assert set(followed) == {"text"}


def test_every_link_of_the_documents_leads_somewhere() -> None:
    for document in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (document.parent / target).exists(), f"{document.name}: {target}"


@pytest.mark.parametrize("language", ["python", "java"])
def test_the_grpc_programs_of_the_readme_are_those_that_the_interop_runs(language: str) -> None:
    blocks = FENCE.finditer((ROOT / "README.md").read_text(encoding="utf-8"))
    [shown] = [block[2] for block in blocks if block[1] == language and "127.0.0.1:8081" in block[2]]
    # make interop-grpc runs the programs of this page with the official clients.
    assert shown == page_program(language, "127.0.0.1:8081")


@pytest.mark.parametrize("name", ["orbitmq", "peer", "client"])
def test_figures_say_which_kind_of_record_they_are(name: str) -> None:
    content = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    kind = content["record"]["kind"]
    assert kind in ("short", "full")
