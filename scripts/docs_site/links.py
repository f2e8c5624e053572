"""A hook of mkdocs: links that leave ``docs/`` lead to the file in the repository."""

from __future__ import annotations

import posixpath
import re
from typing import Any

LINK = re.compile(r"(\]\()((?:\.\./)+[^)#\s]+)")
REPOSITORY = "https://github.com/orbitmq/orbitmq/blob/main/"


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The text of a page whose links are those of the site."""
    folder = posixpath.dirname(f"docs/{page.file.src_uri}")

    def leads(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match[2]))
        return match[0] if target.startswith("docs/") else f"{match[1]}{REPOSITORY}{target}"

    return LINK.sub(leads, markdown)
