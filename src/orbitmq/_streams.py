"""Standard input, output and error; a program may have been started without one of them."""

from __future__ import annotations

import os
import sys

_NAMES = ("stdin", "stdout", "stderr")


_closed: set[int] = set()


def without(descriptor: int) -> bool:
    """Whether the program was started without this stream."""
    return descriptor in _closed


def reserve() -> None:
    """Open each of the descriptors 0 to 2 that is closed, on the null device.

    Otherwise the next socket or file gets such a descriptor: printed text would go into it, and libuv, which
    never closes descriptors 0 to 2, would abort the process.
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
    """As :func:`reserve`; afterwards ``sys.stdin``, ``stdout`` and ``stderr`` exist and print any text.

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


def leave_unwritten() -> OSError | None:
    """Flush the output; drop what the reader of a pipe does not take, or Python would exit with 120."""
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
