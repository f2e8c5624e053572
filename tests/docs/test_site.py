"""``make docs``: the site builds, every link leads somewhere, no page loads anything from elsewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.docs.test_readme import ROOT, environment

pytestmark = pytest.mark.slow

# What a browser loads by itself; links to follow may lead anywhere.
LOADED = re.compile(
    r"<(?:script|img|iframe)\b[^>]*\bsrc=\"?(https?:[^\" >]+)|<link\b[^>]*rel=\"?stylesheet\"?[^>]*https?:"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)],
        cwd=ROOT,
        env={**environment(), "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    assert [page.name for page in pages if LOADED.search(page.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("door", "names"),
    [
        ("orbitmq", ["Producer", "Consumer", "Message", "SendResult"]),
        ("errors", ["OrbitError", "SendError", "BrokerError"]),
        ("sync", ["Producer", "Consumer", "send", "poll", "batches"]),
        ("admin", ["Admin", "TopicAdmin", "Partial", "GroupSettings"]),
        ("testing", ["World", "RunningCluster"]),
    ],
)
def test_the_reference_has_what_a_door_offers(site: Path, door: str, names: list[str]) -> None:
    page = (site / "reference" / door / "index.html").read_text(encoding="utf-8")
    found = set(re.findall(r'<h\d id="(?:[\w]+\.)*(\w+)"', page))
    assert found >= set(names)
    assert not re.search(r":\w+:<code>", page), "a role of Sphinx is left in the text"


def test_the_search_finds_pages_and_names(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = " ".join(entry["location"] for entry in index["docs"])
    assert "consuming/#handlers" in places
    assert "reference/orbitmq/#orbitmq.Producer" in places


def test_the_site_and_the_first_page_have_the_same_headings(site: Path) -> None:
    found = re.findall(r"^## (.+)$", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    tabs = re.findall(r"md-tabs__link[^>]*>\s*(\w+)\s*<", (site / "index.html").read_text(encoding="utf-8"))
    assert found == tabs == ["Start", "Use", "Run", "Inside"]


def test_no_words_in_braces_vanish() -> None:
    """Behind code, the site takes words in braces for HTML attributes and does not show them."""
    pages = list((ROOT / "docs").rglob("*.md"))
    assert [page.name for page in pages if re.search(r"` \{\w", page.read_text(encoding="utf-8"))] == []
