"""Prepares standard input, output and error, without any of which a program may have been started."""

from __future__ import annotations

import io
import os
import sys
from typing import Any

_NAMES = ("stdin", "stdout", "stderr")


_closed: set[int] = set()


class _Written(io.FileIO):
    """Standard output that keeps the error of a refused write: the error does not name the stream."""

    refused: OSError | None = None

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            _Written.refused = error
            raise


def without(descriptor: int) -> bool:
    """Whether the program was started without this stream."""
    return descriptor in _closed


def reserve() -> None:
    """Open each of the descriptors 0 to 2 that is closed, on the null device.

    Otherwise the next socket or file would get such a descriptor: printed text would be written to it, and
    libuv, which never closes descriptors 0 to 2, would abort the process.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            _closed.add(descriptor)
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            os.set_inheritable(descriptor, True)


def prepare() -> None:
    """As :func:`reserve`; then ``sys.stdin``, ``stdout`` and ``stderr`` exist, and print any text.

    A character that the encoding lacks (ASCII, for example) is printed as an escape.
    """
    reserve()
    for descriptor, name in enumerate(_NAMES):
        stream = getattr(sys, name)
        if stream is None:
            mode = "r" if descriptor == 0 else "w"
            setattr(sys, name, open(descriptor, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - for ever
        elif descriptor and getattr(stream, "errors", "") == "strict":
            stream.reconfigure(errors="backslashreplace")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout = _remembering(sys.stdout)


def _remembering(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """A copy of a stream with the same settings, which writes through :class:`_Written`."""
    stream.flush()
    raw = _Written(stream.fileno(), "wb", closefd=False)
    return io.TextIOWrapper(
        raw if stream.write_through else io.BufferedWriter(raw),
        stream.encoding,
        stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )


def is_of_output(error: BaseException) -> bool:
    """Whether this is the error of a refused write to standard output."""
    return error is _Written.refused


def leave_unwritten() -> OSError | None:
    """Flush the output. Text that a pipe's reader does not take is dropped, as Python would exit with 120."""
    failure: OSError | None = None
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            failure = failure or error
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, stream.fileno())
            os.close(nothing)
    return failure
