"""Pulls that wait for messages and stay on the fast path."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from orbitmq.broker.fast_path.keys import SignedCaller
from orbitmq.message.sysflag import PullFlag
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.command import Command
from orbitmq.wire.frame import decode_frame

# Handles a pull that waited: gets its connection, the request as received, and the system flags to keep.
Resume: TypeAlias = Callable[[ServerConnection, Command, int], None]


class HeldFrame:
    """A parked pull request, kept as the received frame (see ``held_pulls.PullWaiter``).

    When messages arrive, the frame goes through the fast path again, which then finds them. All other cases
    (the pull's time is over, its topic is gone, the fast path does not take it any more) are left to the
    ordinary handler, which gets the request as received, so that its signature is right, and the system flags
    to keep.

    Args:
        caller: the user of the request; None: the broker requires no keys.
        answer: answers from the fast path; its result None: the fast path does not take the request.
        ordinary: hands a request to its handler, with the system flags to keep.
    """

    __slots__ = ("_answer", "_ordinary", "caller", "connection", "frame", "offset")

    def __init__(
        self,
        connection: ServerConnection,
        frame: bytes,
        offset: int,
        caller: SignedCaller | None,
        answer: Callable[[HeldFrame], bool | None],
        ordinary: Resume,
    ) -> None:
        self.connection = connection
        self.frame = frame
        self.offset = offset
        self.caller = caller
        self._answer = answer
        self._ordinary = ordinary

    @property
    def gone(self) -> bool:
        return self.connection.closed

    def is_of(self, user: str) -> bool:
        return self.caller is not None and self.caller.name == user

    def wake(self) -> bool:
        """Answer from the fast path; ``False`` when there is still no message to read."""
        answered = self._answer(self)
        if answered is None:
            self._handle(~PullFlag.COMMIT_OFFSET)
            return True
        return answered

    def expire(self) -> None:
        """Answer that no message arrived."""
        self._handle(~(PullFlag.COMMIT_OFFSET | PullFlag.SUSPEND))

    def recheck(self) -> None:
        """Answer like :meth:`expire`: the gate checks the request again before its handler answers."""
        self.expire()

    def _handle(self, kept_flags: int) -> None:
        # The pull's offset was committed when the pull arrived; a later commit must not be undone.
        self._ordinary(self.connection, decode_frame(self.frame), kept_flags)
