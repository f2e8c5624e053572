"""Java's ``.properties`` text: configuration bodies and files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from orbitmq.wire.errors import BodyError

_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.|$)", re.DOTALL)
# The key ends at the first separator that is not escaped: spaces, then at most one '=' or ':', then spaces.
_ENTRY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


def parse(text: str) -> dict[str, str]:
    """Read the entries: ``key=value``, ``key: value`` or ``key value``; ``#`` and ``!`` begin comments.

    A line that ends in a backslash goes on in the next one. A later entry replaces an earlier one.

    Raises:
        BodyError: a ``\\u`` escape without four hexadecimal digits.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        entry = _ENTRY.fullmatch(line)
        if entry is not None:
            found[_unescape(entry[1])] = _unescape(entry[2])
    return found


def render(entries: Mapping[str, str]) -> str:
    """The text for ``entries``, in their order, one line each. Characters beyond ASCII stay as they are."""
    return "".join(f"{_escape(key, is_key=True)}={_escape(value)}\n" for key, value in entries.items())


def _logical_lines(text: str) -> Iterator[str]:
    pending = ""
    for line in re.split(r"\r\n|[\r\n]", text):
        stripped = line.lstrip(" \t\f")
        if not pending and (not stripped or stripped[0] in "#!"):
            continue
        slashes = len(stripped) - len(stripped.rstrip("\\"))
        if slashes % 2:
            pending += stripped[:-1]
            continue
        yield pending + stripped
        pending = ""
    if pending:
        yield pending


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    found = _ESCAPE.sub(_unescaped, text)
    # Two escapes can be the halves of one character; a half alone has no UTF-8 form and is replaced.
    return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _unescaped(found: re.Match[str]) -> str:
    escape = found[1]
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    if escape == "u":
        raise BodyError(f"properties: {found.string[found.start() :][:20]!r} is not \\u and four digits")
    return _ESCAPES.get(escape, escape)


def _escape(text: str, *, is_key: bool = False) -> str:
    written = "".join(_WRITTEN.get(character, character) for character in text)
    if is_key:
        return re.sub(r"([=: #!])", r"\\\1", written)
    spaces = len(written) - len(written.lstrip(" "))
    return "\\ " * spaces + written[spaces:]
