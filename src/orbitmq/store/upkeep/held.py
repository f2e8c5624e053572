"""Log files that cleaning keeps because messages in them wait to be delivered. No I/O."""

from __future__ import annotations

from collections import Counter


class HeldFiles:
    """Counts waiting messages by the log file that has them.

    Attributes:
        file_bytes: size of one log file.
        are_known: whether all waiting messages are counted; until then all files are held.
    """

    def __init__(self, file_bytes: int) -> None:
        self.file_bytes = file_bytes
        self._waiting: Counter[int] = Counter()
        self.are_known = True

    def hold(self, log_offset: int, messages: int = 1) -> None:
        """Count waiting messages of the file with this log offset; a negative number: they wait no more."""
        file = log_offset // self.file_bytes
        self._waiting[file] += messages
        if self._waiting[file] <= 0:
            del self._waiting[file]

    def forget(self) -> None:
        """Set all counts to zero."""
        self._waiting.clear()

    @property
    def first(self) -> int | None:
        """The log offset from which on files are held; ``None``: no file is held."""
        if not self.are_known:
            return 0
        return min(self._waiting) * self.file_bytes if self._waiting else None
