"""Shows the bodies of messages as text, JSON or hexadecimal. Pure."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

# The most bytes of a body that are shown; the download has the whole body.
MOST_BYTES: Final = 64 * 1024
# The most characters of a body in a list of messages.
FIRST_LINE: Final = 100
Form = Literal["text", "json", "hex"]


def shown(body: bytes, form: str) -> str:
    """The text of a body in this form; invalid UTF-8 is shown with replacement characters."""
    if form == "json" and len(body) <= MOST_BYTES:
        try:
            return msgspec.json.format(body, indent=2).decode(errors="replace")
        except msgspec.DecodeError as error:
            return f"not JSON: {error}"
    begin = body[:MOST_BYTES]
    if form == "hex":
        lines = range(0, len(begin), 16)
        return "\n".join(f"{at:08x}  {begin[at : at + 16].hex(' ')}" for at in lines)
    return begin.decode(errors="replace")


def first_line(body: bytes) -> str:
    """The beginning of a body on one line, for a list."""
    begin = " ".join(body[:400].decode(errors="replace").split())
    return begin if len(begin) <= FIRST_LINE else f"{begin[: FIRST_LINE - 1]}…"
