"""Pulls that wait for messages and stay on the fast path."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.message.sysflag import PullFlag
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.frame import decode_frame


class HeldFrame:
    """A parked pull request, kept as the frame that it came in (see ``held_pulls.PullWaiter``).

    When messages come, the frame goes through the fast path again, which then finds them. All other cases
    (its time is over, its topic is gone, the fast path no longer takes it) are left to the ordinary
    handler.
    """

    __slots__ = ("_answer", "connection", "frame", "offset")

    def __init__(
        self,
        connection: ServerConnection,
        frame: bytes,
        offset: int,
        answer: Callable[[HeldFrame], bool | None],
    ) -> None:
        self.connection = connection
        self.frame = frame
        self.offset = offset
        self._answer = answer

    @property
    def gone(self) -> bool:
        return self.connection.closed

    def is_of(self, user: str) -> bool:
        """A request with a signature is never parked."""
        return False

    def wake(self) -> bool:
        """Answer from the fast path; ``False`` when there is still no message to read."""
        answered = self._answer(self)
        if answered is None:
            self._ordinary(~PullFlag.COMMIT_OFFSET)
            return True
        return answered

    def expire(self) -> None:
        """Answer that no message arrived."""
        self._ordinary(~(PullFlag.COMMIT_OFFSET | PullFlag.SUSPEND))

    def _ordinary(self, kept_flags: int) -> None:
        # The pull's offset was committed when the pull came; a later commit must not be undone.
        command = decode_frame(self.frame)
        command.ext["sysFlag"] = str(int(command.ext["sysFlag"]) & kept_flags)
        self.connection.dispatch(command)
