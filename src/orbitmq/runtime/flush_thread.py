# cython: annotation_typing=False
"""A thread that brings files to the device and does nothing else, so that it needs no Python while it works.

A durable send waits for two hand-overs: to a thread and back. Here each is a few bytes through a pipe. The
event loop writes file descriptors; the thread calls ``fdatasync`` for each and writes the outcome back.
Compiled, the thread never takes the interpreter's lock, so that it does not compete with the loop for it.

Typed in ``flush_thread.pxd`` and compiled when a C compiler is there; the same text runs uncompiled.
"""

from __future__ import annotations

import asyncio
import errno as error_codes
import logging
import os
import signal
import struct
import threading
from array import array
from collections import deque
from collections.abc import Callable, Sequence

import cython

logger = logging.getLogger(__name__)

# The numbers in a request that are not file descriptors.
END_OF_REQUEST = -1
CLOSE = -2

NUMBERS = 64
MAX_RESULT_BYTES = 4096
UNKNOWN_ERROR = error_codes.EIO

Done = Callable[[OSError | None], object]


class FlushThread:
    """Runs ``fdatasync`` off the event loop. It serves one loop at a time; requests end in their order."""

    def __init__(self) -> None:
        self._requests, self._to_thread = os.pipe2(os.O_CLOEXEC)
        self._from_thread, self._results = os.pipe2(os.O_CLOEXEC)
        self._pending: deque[Done] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._serve, name="orbitmq-flush", daemon=True)
        self._thread.start()

    def sync(self, descriptors: Sequence[int], done: Done) -> None:
        """Call ``done(error)`` on the running loop when the files are on the device, or one of them failed.

        The descriptors must stay open until then.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop = loop
            loop.add_reader(self._from_thread, self._take_results)
        self._pending.append(done)
        os.write(self._to_thread, struct.pack(f"{len(descriptors) + 1}i", *descriptors, END_OF_REQUEST))

    def _take_results(self) -> None:
        for (code,) in struct.iter_unpack("i", os.read(self._from_thread, MAX_RESULT_BYTES)):
            done = self._pending.popleft()
            try:
                done(OSError(code, os.strerror(code)) if code else None)
            except Exception:
                # The outcomes behind this one must still be reported.
                logger.exception("what follows a flush failed")

    def _serve(self) -> None:
        # Signals are for the main thread.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        serve(self._requests, self._results, array("i", bytes(NUMBERS * 4)))

    def close(self) -> None:
        """End the thread after the requests sent so far; results not taken by then are dropped."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._from_thread)
        os.write(self._to_thread, struct.pack("i", CLOSE))
        self._thread.join()
        for descriptor in (self._requests, self._to_thread, self._from_thread, self._results):
            os.close(descriptor)


def serve(requests: int, results: int, numbers: array[int]) -> None:
    """Handle the requests of the pipe ``requests`` until CLOSE; writes an ``errno`` for each to ``results``.

    Args:
        numbers: the thread's own memory, for :data:`NUMBERS` numbers.
    """
    if cython.compiled:
        with cython.nogil:
            _serve(requests, results, cython.address(numbers[0]))
    else:
        _serve(requests, results, numbers)


def _serve(requests: int, results: int, numbers: array[int]) -> None:
    error = 0
    while True:
        count = receive(requests, numbers)
        if count <= 0:
            return
        for at in range(count):
            number = numbers[at]
            if number == CLOSE:
                return
            if number == END_OF_REQUEST:
                reply(results, error)
                error = 0
            else:
                code = sync_one(number)
                if code != 0:
                    error = code


def receive(requests: int, numbers: array[int]) -> int:
    """Wait for numbers; returns how many came, 0 when the other end is closed."""
    if cython.compiled:
        count = read(requests, numbers, NUMBERS * 4)
        while count < 0 and errno == EINTR:
            count = read(requests, numbers, NUMBERS * 4)
    else:
        count = os.readv(requests, [numbers])
    return count // 4


def reply(results: int, error: int) -> None:
    if cython.compiled:
        write(results, cython.address(error), 4)
    else:
        os.write(results, struct.pack("i", error))


def sync_one(descriptor: int) -> int:
    """Bring one file to the device; returns 0 or the ``errno``."""
    code = 0
    if cython.compiled:
        while fdatasync(descriptor) != 0:
            if errno != EINTR:
                return errno
    else:
        try:
            os.fdatasync(descriptor)
        except OSError as failure:
            code = failure.errno or UNKNOWN_ERROR
    return code
