"""The examples of docs/spark.md run one after another in one Spark session and print what the page says."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from tests.docs.test_readme import ROOT, examples, name_server, printed_by

__all__ = ["name_server"]

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="needs Java"),
]
PAGE = "docs/spark.md"


def test_the_examples_print_what_the_page_says(name_server: str, tmp_path: Path) -> None:
    codes, expected = zip(*examples(PAGE), strict=True)
    assert printed_by(list(codes), name_server, tmp_path) == list(expected)


def test_every_option_and_column_is_on_the_pages() -> None:
    from orbitmq.spark.options import option_names
    from orbitmq.spark.schema import column_names
    from orbitmq.spark.spellings import KAFKA_NAMES, ROCKETMQ_NAMES

    pages = (PAGE, "docs/spark-tuning.md", "docs/spark-migrating.md", "docs/secured-clusters.md")
    text = "\n".join((ROOT / page).read_text(encoding="utf-8") for page in pages).lower()
    names = (*option_names(), *column_names(), *KAFKA_NAMES, *ROCKETMQ_NAMES)
    assert not [name for name in names if f"`{name.lower()}`" not in text]


def test_the_first_page_is_short() -> None:
    assert len((ROOT / PAGE).read_text(encoding="utf-8").split()) <= 2_500
