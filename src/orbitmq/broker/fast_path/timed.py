# cython: annotation_typing=False
"""Times of the fast path's requests: differences of its counters, noted once for each chunk.

A chunk costs two reads of the clock. Its numbers are added up here until a scrape adds them to those of the
handlers.

Typed in ``timed.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from orbitmq.broker.durability import RESPONSE_CODES, with_code
from orbitmq.broker.rpc_times import BOUNDS_MS
from orbitmq.wire.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.fast_path.frames import FastFrames
    from orbitmq.broker.rpc_times import RpcTimes
    from orbitmq.store import PutStatus

CODES = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
)
V1, V2, BATCHES, PULLS, LITE_PULLS = 0, 1, 2, 3, 4
# Of each code: the requests by their time, those above all bounds, and the sum of the times in ms.
BOUNDS = len(BOUNDS_MS)
TOTAL = BOUNDS + 1
WIDTH = BOUNDS + 2
SUCCESS = int(ResponseCode.SUCCESS)


class FastTimes:
    """Notes the times of chunks, which come one after the other."""

    def __init__(self, times: RpcTimes) -> None:
        self.times = times
        self.monotonic = times.clock.monotonic
        self.bounds = array("q", BOUNDS_MS)
        self.noted = array("q", bytes(8 * len(CODES) * WIDTH))
        self.began = 0.0
        self.v1 = self.v2 = self.batches = self.found = self.lite = 0
        times.tellers.append(self.tell)
        # Bound once: a chunk makes no object for them.
        self.release = self._release
        self.late = self._late

    def begin(self, frames: FastFrames) -> None:
        """Begin to time a received chunk."""
        self.began = self.monotonic()
        self._look(frames)

    def _look(self, frames: FastFrames) -> None:
        self.v1 = frames.sends.answered_v1
        self.v2 = frames.sends.answered_v2
        self.batches = frames.sends.answered_batches
        self.found = frames.pulls.found
        self.lite = frames.pulls.found_lite

    def answers(self, frames: FastFrames, send: Callable[[bytes], object], data: bytes) -> TimedAnswers:
        """The answers to the sends since the last call, which wait until the log is safe.

        Args:
            send: sends the answers to the client.
            data: the answers.
        """
        made = TimedAnswers()
        made.send = send
        made.data = data
        made.began = self.began
        made.v1 = frames.sends.answered_v1 - self.v1
        made.v2 = frames.sends.answered_v2 - self.v2
        made.batches = frames.sends.answered_batches - self.batches
        self.v1 = frames.sends.answered_v1
        self.v2 = frames.sends.answered_v2
        self.batches = frames.sends.answered_batches
        return made

    def sent(self, frames: FastFrames) -> None:
        """Note the time of the answers that need not wait: they are written."""
        lite = frames.pulls.found_lite - self.lite
        self.note(
            self.began,
            frames.sends.answered_v1 - self.v1,
            frames.sends.answered_v2 - self.v2,
            frames.sends.answered_batches - self.batches,
            frames.pulls.found - self.found - lite,
            lite,
        )
        self._look(frames)

    def _release(self, answers: TimedAnswers) -> None:
        """Write answers that waited, and note their time."""
        answers.send(answers.data)
        if answers.told == SUCCESS:
            self.note(answers.began, answers.v1, answers.v2, answers.batches, 0, 0)
            return
        for code, number in zip(CODES, (answers.v1, answers.v2, answers.batches), strict=False):
            if number:
                self.times.note(code, answers.told, answers.began, number)

    def _late(self, answers: TimedAnswers, status: PutStatus) -> TimedAnswers:
        """The answers with the code of this status."""
        answers.told = int(RESPONSE_CODES[status])
        answers.data = with_code(answers.data, status)
        return answers

    def note(self, began: float, v1: int, v2: int, batches: int, pulls: int, lite: int) -> None:
        """Note how many requests of each code, received at ``began``, were answered with success."""
        if v1 + v2 + batches + pulls + lite == 0:
            return
        ms = int((self.monotonic() - began) * 1000)
        place = 0
        while place < BOUNDS and ms > self.bounds[place]:
            place += 1
        self._add(V1, place, ms, v1)
        self._add(V2, place, ms, v2)
        self._add(BATCHES, place, ms, batches)
        self._add(PULLS, place, ms, pulls)
        self._add(LITE_PULLS, place, ms, lite)

    def _add(self, code: int, place: int, ms: int, number: int) -> None:
        self.noted[code * WIDTH + place] += number
        self.noted[code * WIDTH + TOTAL] += number * ms

    def tell(self) -> None:
        """Move the noted times to the broker's times."""
        for number, code in enumerate(CODES):
            row = [self.noted[number * WIDTH + place] for place in range(WIDTH)]
            if any(row):
                self.times.add(code, row[:TOTAL], row[TOTAL])
        for place in range(len(self.noted)):
            self.noted[place] = 0


class TimedAnswers:
    """Answers to the sends of one chunk, which wait until the log is safe.

    Attributes:
        told: the code of the answers.
    """

    send: Callable[[bytes], object]
    data: bytes

    def __init__(self) -> None:
        self.began = 0.0
        self.v1 = self.v2 = self.batches = 0
        self.told = SUCCESS
