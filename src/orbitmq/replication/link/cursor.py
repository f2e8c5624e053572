# cython: annotation_typing=False
"""The place in the log from which a follower gets the next bytes, and a limit of bytes a second."""

from __future__ import annotations

from orbitmq.store.ports import CopiedLog, FilePart


class Cursor:
    """The place in the log from which one follower is sent the next bytes.

    Attributes:
        position: the log offset of the next bytes.
    """

    def __init__(self, store: CopiedLog, position: int) -> None:
        self._store = store
        self.position = position

    @property
    def behind(self) -> int:
        """How many bytes of the log have not been sent to the follower yet."""
        return self._store.max_commit_log_offset - self.position

    def take(self, most: int) -> tuple[int, FilePart] | None:
        """The next piece: its offset, and up to ``most`` bytes of one file. ``None``: there is none."""
        part = self._store.raw.part(self.position, most)
        if part is None:
            return None
        offset = self.position
        self.position += part.end - part.start
        return offset, part


class Flow:
    """Bytes sent in the second under way (FlowMonitor).

    Attributes:
        last_second: how many were sent in the second before.
    """

    def __init__(self, now: float) -> None:
        self._second = int(now)
        self._sent = 0
        self.last_second = 0

    def left(self, now: float, limit: int) -> int:
        """How many bytes may still be sent in this second, with ``limit`` bytes a second."""
        self._turn(now)
        return max(0, limit - self._sent)

    def sent(self, now: float, size_bytes: int) -> None:
        """Count bytes that were sent."""
        self._turn(now)
        self._sent += size_bytes

    def rate(self, now: float) -> int:
        """Bytes of the last whole second."""
        self._turn(now)
        return self.last_second

    def until_next(self, now: float) -> float:
        """Seconds until the next second begins."""
        return self._second + 1 - now

    def _turn(self, now: float) -> None:
        second = int(now)
        if second != self._second:
            self.last_second = self._sent if second == self._second + 1 else 0
            self._second, self._sent = second, 0
