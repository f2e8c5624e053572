"""An extension of griffe: docstrings, written for ``help()``, become Markdown for the reference pages."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":\w+:`~?(?:[^`<]*<)?([\w.]+)>?`")
BLOCK = re.compile(r"^( *)(.*?) ?::$", re.MULTILINE)


def markdown(text: str) -> str:
    """A docstring without roles (``:class:`x```) and without the double colon before a block of code."""
    text = ROLE.sub(lambda match: f"`{match[1].rpartition('.')[2]}`", text)
    return BLOCK.sub(lambda match: f"{match[1]}{match[2]}:" if match[2] else "", text)


class PlainMarkdown(griffe.Extension):
    """Rewrites every docstring before its sections are read."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
