"""Small files that a user names."""

from __future__ import annotations

import os
import stat

from orbitmq.errors import ValidationError


def first_bytes(path: str, count: int) -> bytes:
    """The first ``count`` bytes of a file.

    Raises:
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        return file.read(count)


def private_bytes(path: str, count: int) -> bytes:
    """The first ``count`` bytes of a file that no other user can read or change. Windows has no such modes.

    Raises:
        ValidationError: other users can, or the file is another user's; the text names the remedy.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        if hasattr(os, "getuid"):
            mode = stat.S_IMODE(found.st_mode)
            if mode & 0o077:
                raise ValidationError(
                    f"{path} is open to other users of this machine (mode {mode:o}): run chmod 600 {path}"
                )
            if found.st_uid != os.getuid():
                raise ValidationError(f"{path} belongs to another user: make it your own, with mode 600")
        return file.read(count)
