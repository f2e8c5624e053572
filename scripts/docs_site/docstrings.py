"""An extension of griffe for the reference pages: docstrings become Markdown, doors show what they offer."""

from __future__ import annotations

import ast
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
    """Rewrites every docstring before its sections are read, and names what a lazy module exports."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        # Such a module has no list of names in its text: __all__ is made of the table of their homes.
        homes = mod.members.get("_HOMES")
        if not mod.exports and isinstance(homes, griffe.Attribute):
            mod.exports = sorted(ast.literal_eval(str(homes.value)))
