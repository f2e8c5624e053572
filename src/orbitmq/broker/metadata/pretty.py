"""JSON as fastjson's PrettyFormat writes it, which is the form of RocketMQ's table files."""

from __future__ import annotations

import json
import json.encoder
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from orbitmq.wire.bodies.base import Body, written_fields

quoted = json.encoder.encode_basestring


def pretty(value: Any) -> bytes:
    """JSON with tabs as indent, bare number keys, sorted, without nulls."""
    return pretty_value(value, "\n").encode()


def pretty_value(value: Any, newline: str) -> str:
    """JSON like that of :func:`pretty`, as text inside a file: ``newline`` is a line end and the indent."""
    parts: list[str] = []
    _write(value, newline, parts.append)
    return "".join(parts)


def _write(value: Any, newline: str, out: Callable[[str], None]) -> None:
    if isinstance(value, dict):
        entries = [(_key(key), value[key]) for key in sorted(value) if value[key] is not None]
        _write_block("{", "}", entries, newline, out)
    elif isinstance(value, list | tuple):
        _write_block("[", "]", [("", item) for item in value], newline, out)
    elif isinstance(value, Body):
        out(body_text(value, newline))
    else:
        out(json.dumps(value, ensure_ascii=False))


def _write_block(
    opening: str, closing: str, entries: list[tuple[str, Any]], newline: str, out: Callable[[str], None]
) -> None:
    out(opening)
    for index, (prefix, item) in enumerate(entries):
        out(("," if index else "") + newline + "\t" + prefix)
        _write(item, newline + "\t", out)
    out(newline + closing if entries else closing)


def _key(key: str | int) -> str:
    return f"{key}:" if isinstance(key, int) else f"{quoted(key)}:"


def body_text(body: Body, newline: str) -> str:
    """``body`` as text in a pretty file; fast, for tables of many thousand bodies.

    Args:
        newline: a line end and the indent of the line in which the body begins.
    """
    inner = newline + "\t"
    parts = []
    for name, attribute in written_fields(type(body)) or ():
        value = getattr(body, attribute)
        kind = type(value)
        if kind is int:
            text = str(value)
        elif kind is bool:
            text = "true" if value else "false"
        elif value is None:
            continue
        elif isinstance(value, str):
            text = quoted(value)
        elif kind is dict and not value:
            text = "{}"
        else:
            text = pretty_value(value, inner)
        parts.append(f'"{name}":{text}')
    return f"{{{inner}{(',' + inner).join(parts)}{newline}}}" if parts else "{}"


def file_text(parts: Iterable[tuple[str, Iterable[tuple[str, str]] | str]]) -> Iterator[str]:
    """A table file piece by piece: one piece is one entry of a table, or the end of one.

    Args:
        parts: name and content of each field of the file: its text, or the entries of a table, each as the
            text of its key and the text of its value.
    """
    yield "{"
    for number, (name, content) in enumerate(parts):
        start = f'{"," if number else ""}\n\t"{name}":'
        if isinstance(content, str):
            yield start + content
            continue
        yield start + "{"
        separator = "\n\t\t"
        for key, value in content:
            yield f"{separator}{key}:{value}"
            separator = ",\n\t\t"
        yield "}" if separator == "\n\t\t" else "\n\t}"
    yield "\n}"
