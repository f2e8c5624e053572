"""The property block of a message: ``name 0x01 value 0x02`` repeated, in UTF-8."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

# The length field of a record is a signed 16 bit number.
MAX_PROPERTIES_BYTES: Final = 32767


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The block for ``properties``, in their order. The caller checks the limit."""
    return properties_text(properties).encode("utf-8", "replace")


def properties_text(properties: Mapping[str, str]) -> str:
    """The same block as text, as the ``properties`` field of a send header carries it.

    Raises:
        TypeError: a name or a value is no string.
    """
    if not properties:
        return ""
    return "\x02".join(["\x01".join(pair) for pair in properties.items()]) + "\x02"


def parse_properties(text: str) -> dict[str, str]:
    """Read a block that was received as text.

    As in Java, the last separator may be missing, and a pair without a name or a value is ignored.
    """
    found: dict[str, str] = {}
    for pair in text.split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value:
            found[name] = value
    return found


def decode_properties(block: bytes) -> dict[str, str]:
    """Read a block of a stored record; bytes that are not UTF-8 become U+FFFD, as in Java."""
    return parse_properties(block.decode("utf-8", "replace"))
