"""Times of the requests of a chunk: differences of the fast path's counters, noted when answers may go."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq.broker.durability import RESPONSE_CODES, with_code
from orbitmq.broker.rpc_times import RpcTimes
from orbitmq.store import PutStatus
from orbitmq.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from orbitmq.broker.fast_path.frames import FastFrames

SENDS: Final = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


def _sends(frames: FastFrames) -> tuple[int, int, int]:
    sends = frames.sends
    return sends.answered_v1, sends.answered_v2, sends.answered_batches


class Chunk:
    """One chunk, from its arrival on.

    Args:
        write: sends answers to its client.
    """

    __slots__ = ("_began", "_lite", "_pulls", "_sends", "_times", "_write")

    def __init__(self, times: RpcTimes, frames: FastFrames, write: Callable[[bytes], None]) -> None:
        self._times = times
        self._write = write
        self._began = times.clock.monotonic()
        self._sends = _sends(frames)
        self._pulls, self._lite = frames.pulls.found, frames.pulls.found_lite

    def _new_sends(self, frames: FastFrames) -> list[int]:
        now, before = _sends(frames), self._sends
        self._sends = now
        return [ours - theirs for ours, theirs in zip(now, before, strict=True)]

    def answers(self, frames: FastFrames) -> Answers:
        """Note the sends since the last call: their answers wait until the log is safe."""
        return Answers(self._times, self._write, self._began, self._new_sends(frames))

    def end(self, frames: FastFrames) -> None:
        """Note the time of the answers that need not wait: all of them are written."""
        for code, number in zip(SENDS, self._new_sends(frames), strict=True):
            if number:
                self._times.note(code, ResponseCode.SUCCESS, self._began, number)
        lite = frames.pulls.found_lite - self._lite
        for code, number in (
            (RequestCode.LITE_PULL_MESSAGE, lite),
            (RequestCode.PULL_MESSAGE, frames.pulls.found - self._pulls - lite),
        ):
            if number:
                self._times.note(code, ResponseCode.SUCCESS, self._began, number)


class Answers:
    """Answers to sends that wait."""

    __slots__ = ("_began", "_numbers", "_times", "_told", "_write")

    def __init__(
        self, times: RpcTimes, write: Callable[[bytes], None], began: float, numbers: list[int]
    ) -> None:
        self._times = times
        self._write = write
        self._began = began
        self._numbers = numbers
        self._told = int(ResponseCode.SUCCESS)

    def write(self, data: bytes) -> None:
        """Note the time of the answers that waited, and write them."""
        self._write(data)
        for code, number in zip(SENDS, self._numbers, strict=True):
            if number:
                self._times.note(code, self._told, self._began, number)

    def late(self, data: bytes, status: PutStatus) -> bytes:
        """The answers with the code of this status."""
        self._told = int(RESPONSE_CODES[status])
        return with_code(data, status)
