"""Names of files and folders."""

from __future__ import annotations

import os.path


def joined(*parts: str) -> str:
    """One path of several parts."""
    return os.path.join(*parts)


def folder_of(path: str) -> str:
    """The folder that holds ``path``."""
    return os.path.dirname(path)


def expanded(path: str) -> str:
    """``path`` with the user's home folder in place of a leading ``~``."""
    return os.path.expanduser(path)


def absolute(path: str) -> str:
    """``path`` from the root of the file system on."""
    return os.path.abspath(path)
