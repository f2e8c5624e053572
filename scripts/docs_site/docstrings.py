"""An extension of griffe for the reference pages: docstrings become Markdown, doors show what they offer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import griffe

ROLE = re.compile(r":\w+:`~?(?:[^`<]*<)?([\w.]+)>?`")
BLOCK = re.compile(r"^( *)(.*?) ?::$", re.MULTILINE)


def markdown(text: str) -> str:
    """A docstring without roles (``:class:`x```) and without the double colon before a block of code."""
    text = ROLE.sub(lambda match: f"`{match[1].rpartition('.')[2]}`", text)
    return BLOCK.sub(lambda match: f"{match[1]}{match[2]}:" if match[2] else "", text)


class ReferencePages(griffe.Extension):
    """Shows what a module's text does not say: names of lazy doors, and options and methods that are made."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)

    def on_module_members(self, *, mod: griffe.Module, **_: Any) -> None:
        # Such a module has no list of names in its text: __all__ is made of the table of their homes.
        homes = mod.members.get("_HOMES")
        if not mod.exports and isinstance(homes, griffe.Attribute):
            mod.exports = sorted(ast.literal_eval(str(homes.value)))

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        everything = loader.modules_collection
        for module in _modules(pkg):
            for kind in module.classes.values():
                if not kind.is_alias:
                    _show_options(kind, everything)
        for module in _modules(pkg):
            for kind in module.classes.values():
                if not kind.is_alias:
                    _show_made(kind, everything)


def _modules(module: griffe.Module) -> Iterator[griffe.Module]:
    yield module
    for inner in module.modules.values():
        if not inner.is_alias:
            yield from _modules(inner)


def _show_options(kind: griffe.Class, everything: griffe.ModulesCollection) -> None:
    """Give a constructor under ``takes`` the fields of its options; see orbitmq.client.keywords."""
    init = kind.members.get("__init__")
    if not isinstance(init, griffe.Function):
        return
    for decorator in init.decorators:
        if str(decorator.value).startswith("takes("):
            options = everything[decorator.value.arguments[0].canonical_path]
            init.parameters = griffe.Parameters(init.parameters[0], *_fields(options))


def _fields(options: griffe.Class) -> list[griffe.Parameter]:
    """The parameters of a dataclass whose fields are keywords but for those that say otherwise."""
    found: dict[str, griffe.Parameter] = {}
    for each in (*reversed(options.mro()), options):
        for name, member in each.members.items():
            if not isinstance(member, griffe.Attribute) or member.annotation is None:
                continue
            first, default = False, member.value
            if isinstance(default, griffe.ExprCall) and str(default.function) == "field":
                said = {each.name: each.value for each in default.arguments}
                first, default = said.get("kw_only") == "False", said.get("default")
            found[name] = griffe.Parameter(
                name,
                annotation=member.annotation,
                kind=(
                    griffe.ParameterKind.positional_or_keyword if first else griffe.ParameterKind.keyword_only
                ),
                default=default,
            )
    ordered = sorted(found.values(), key=lambda each: each.default is not None)
    return sorted(ordered, key=lambda each: each.kind is griffe.ParameterKind.keyword_only)


# What makes a blocking method of an asynchronous one; see orbitmq.sync.blocking.
MAKERS = {"blocking", "iterating", "on_loop"}


def _show_made(kind: griffe.Class, everything: griffe.ModulesCollection) -> None:
    """Give methods that are made when the module runs the signature of their models."""
    for name, member in list(kind.members.items()):
        model = returns = docstring = None
        if isinstance(member, griffe.Attribute) and isinstance(member.value, griffe.ExprCall):
            maker, arguments = str(member.value.function), member.value.arguments
            if maker in MAKERS:
                model = everything[arguments[0].canonical_path]
                returns, docstring = model.returns, model.docstring
            elif maker == "making":
                model = everything[f"{arguments[0].canonical_path}.__init__"]
                returns = arguments[0]
                docstring = griffe.Docstring(markdown(ast.literal_eval(str(arguments[1]))))
        elif name == "__init__" and isinstance(member, griffe.Function):
            for decorator in member.decorators:
                if decorator.value.canonical_path.endswith(".made_as"):
                    model = everything[f"{decorator.value.arguments[0].canonical_path}.__init__"]
                    returns, docstring = model.returns, model.docstring
        if model is not None:
            shown = griffe.Function(name, parameters=model.parameters, returns=returns, docstring=docstring)
            kind.set_member(name, shown)
