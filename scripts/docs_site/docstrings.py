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


class ReferencePages(griffe.Extension):
    """Shows what the text of a module does not say: names of lazy doors, methods of blocking clients."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        # Such a module has no list of names in its text: __all__ is made of the table of their homes.
        homes = mod.members.get("_HOMES")
        if not mod.exports and isinstance(homes, griffe.Attribute):
            mod.exports = sorted(ast.literal_eval(str(homes.value)))

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        for module in pkg.modules.values():
            if module.name == "sync":
                for inner in module.modules.values():
                    _show_blocking(inner, loader.modules_collection)


# What makes a blocking method of an asynchronous one; see orbitmq.sync.blocking.
MAKERS = {"blocking", "iterating", "on_loop"}


def _show_blocking(module: griffe.Module, everything: griffe.ModulesCollection) -> None:
    """Give blocking methods, which are made when the module runs, the signature of their models."""
    for kind in module.classes.values():
        if kind.is_alias:
            continue
        for name, member in list(kind.members.items()):
            model = None
            if isinstance(member, griffe.Attribute) and isinstance(member.value, griffe.ExprCall):
                if member.value.function.name in MAKERS:
                    model = everything[member.value.arguments[0].canonical_path]
            elif name == "__init__" and isinstance(member, griffe.Function):
                for decorator in member.decorators:
                    if decorator.value.canonical_path.endswith(".made_as"):
                        model = everything[f"{decorator.value.arguments[0].canonical_path}.__init__"]
            if model is None:
                continue
            shown = griffe.Function(
                name, parameters=model.parameters, returns=model.returns, docstring=model.docstring
            )
            kind.set_member(name, shown)
