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
_LINE = re.compile(r"[^\r\n]*(?:\r\n|[\r\n])|[^\r\n]+")


def parse(text: str) -> dict[str, str]:
    """Read the entries: ``key=value``, ``key: value`` or ``key value``; ``#`` and ``!`` begin comments.

    A line that ends in a backslash goes on in the next one. A later entry replaces an earlier one.

    Raises:
        BodyError: a ``\\u`` escape without four hexadecimal digits.
    """
    return dict(entry for _, entry in _entries(text) if entry is not None)


def render(entries: Mapping[str, str]) -> str:
    """The text for ``entries``, in their order, one line each. Characters beyond ASCII stay as they are."""
    return "".join(f"{_escape(key, is_key=True)}={_escape(value)}\n" for key, value in entries.items())


def amended(text: str, changes: Mapping[str, str]) -> str:
    """``text`` with ``changes`` in place of its own entries or, if it has none, at its end.

    Comments, order and all other entries stay as they are.

    Raises:
        BodyError: as :func:`parse`.
    """
    left = dict(changes)
    written = []
    for lines, entry in _entries(text):
        if entry is None or entry[0] not in changes:
            written.append(lines)
        elif entry[0] in left:
            # A later entry of the same name would win, so only this one is kept.
            written.append(render({entry[0]: left.pop(entry[0])}))
    if left and written and not written[-1].endswith(("\n", "\r")):
        written.append("\n")
    return "".join(written) + render(left)


def _entries(text: str) -> Iterator[tuple[str, tuple[str, str] | None]]:
    """Each entry with the lines that it stands on; ``None`` for comments and blank lines."""
    lines, pending = "", ""
    for line in _LINE.findall(text):
        stripped = line.rstrip("\r\n").lstrip(" \t\f")
        if not pending and (not stripped or stripped[0] in "#!"):
            yield lines + line, None
            lines = ""
            continue
        lines += line
        slashes = len(stripped) - len(stripped.rstrip("\\"))
        if slashes % 2:
            pending += stripped[:-1]
            continue
        yield lines, _entry(pending + stripped)
        lines, pending = "", ""
    if lines:
        # The last line ends in a backslash: an empty line ends it, so that appended text does not continue
        # it.
        yield lines.rstrip("\r\n") + "\n\n", _entry(pending) if pending else None


def _entry(line: str) -> tuple[str, str] | None:
    found = _ENTRY.fullmatch(line)
    return (_unescape(found[1]), _unescape(found[2])) if found is not None else None


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
