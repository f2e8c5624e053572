"""Small files that a user names."""

from __future__ import annotations


def first_bytes(path: str, count: int) -> bytes:
    """The first ``count`` bytes of a file.

    Raises:
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        return file.read(count)
