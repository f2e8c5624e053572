"""An exclusive lock of a file, made by the calls that the system has."""

from __future__ import annotations

import contextlib
import errno
import os
import struct
from importlib import import_module

# struct flock on Linux: type, whence, start, length, process id (0 for a lock of an open file).
_FLOCK = struct.Struct("hhqqi4x")
_BUSY = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
# Windows locks bytes against readers too, so the locked byte lies far behind the process number, which other
# programs read.
_WINDOWS_BYTE = 1 << 30


class FileLock:
    """A lock that is held from its creation until it is called; it ends with the process, too.

    The file holds the number of the process that has the lock.

    Raises:
        BlockingIOError: another process, or this one already, holds the lock.
        OSError: the file cannot be opened, or the system has no locks.
    """

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        try:
            _take(self._fd)
            # A full disk may refuse the process number; the lock holds without it.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, 0)
                os.lseek(self._fd, 0, os.SEEK_SET)
                os.write(self._fd, str(os.getpid()).encode())
        except OSError as error:
            self()
            if error.errno in _BUSY:
                raise BlockingIOError(error.errno, "another process holds the lock", path) from None
            raise

    def __call__(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _take(descriptor: int) -> None:
    try:
        fcntl = import_module("fcntl")
    except ImportError:
        _take_on_windows(descriptor)
        return
    if hasattr(fcntl, "F_OFD_SETLK"):
        # Unlike flock, this lock also excludes a JVM's lock of the same byte. It belongs to this open file,
        # so that a second store of the same process is refused.
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    else:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _take_on_windows(descriptor: int) -> None:
    try:
        msvcrt = import_module("msvcrt")
    except ImportError:
        raise OSError(errno.ENOSYS, "this system has no locks of files") from None
    os.lseek(descriptor, _WINDOWS_BYTE, os.SEEK_SET)
    msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
