"""The examples of docs/spark.md run one after another in one Spark session and print what the page says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.test_readme import ADDRESS, ROOT, environment, examples, name_server

__all__ = ["name_server"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs Java"),
]
PAGE = "docs/spark.md"

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


def test_the_examples_print_what_the_page_says(name_server: str, tmp_path: Path) -> None:
    codes, expected = zip(*examples(PAGE), strict=True)
    assert printed_by(list(codes), name_server, tmp_path) == list(expected)
    # The file holds the queries that run; the last one that was watched may have ended.
    for lag in json.loads((tmp_path / "lag.json").read_text()):
        assert (lag["rows_behind"], lag["skipped"], lag["queues"] != []) == (0, 0, True)


def test_every_option_and_column_is_on_the_page() -> None:
    from orbitmq.spark.options import option_names
    from orbitmq.spark.schema import column_names
    from orbitmq.spark.spellings import KAFKA_NAMES

    text = (ROOT / PAGE).read_text(encoding="utf-8").lower()
    missing = [
        name for name in (*option_names(), *column_names(), *KAFKA_NAMES) if f"`{name.lower()}`" not in text
    ]
    assert not missing
