"""Standard input, output and error, which a program may have been started without."""

from __future__ import annotations

import os
import sys

_NAMES = ("stdin", "stdout", "stderr")


_closed: set[int] = set()


def without(descriptor: int) -> bool:
    """Whether the program was started without this one."""
    return descriptor in _closed


def reserve() -> None:
    """Open what is closed of the descriptors 0 to 2, on nothing.

    The next socket or file would get such a descriptor: what is printed would go into it, and libuv, which
    never closes one of the three, would end the process.
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
    """As :func:`reserve`; and Python's three streams are there and print any text.

    What an encoding such as ASCII lacks is printed as an escape.
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
    """Write out what was printed; forget what nobody takes: Python would try again, and exit with 120."""
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
