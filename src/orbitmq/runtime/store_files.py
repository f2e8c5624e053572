"""Files of a store, for servers on Linux: maps, blocks made in advance, one call that syncs all."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os

from orbitmq.runtime.seam import Buffer

# One fallocate call holds the inode lock for as long as it runs, so a big file is allocated piece by piece.
ALLOCATION_STEP_BYTES = 16 * 1024 * 1024

# One call for thousands of files (Linux); Python has no name for it.
_syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


class SystemSegment:
    """A file written with ``pwrite`` and read through a shared, read-only map."""

    def __init__(self, path: str, size_bytes: int, *, create: bool, private: bool = False) -> None:
        self._path = path
        self._size_bytes = size_bytes
        self._allocated = 0
        self._view: memoryview | None = None
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._fd = os.open(path, flags, 0o600 if private else 0o644)
        try:
            if os.fstat(self._fd).st_size < size_bytes:
                os.ftruncate(self._fd, size_bytes)
        except OSError:
            os.close(self._fd)
            raise

    @property
    def path(self) -> str:
        return self._path

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def pwrite(self, data: Buffer, offset: int) -> None:
        length = len(data)
        if offset < 0 or offset + length > self._size_bytes:
            raise ValueError(
                f"{length} bytes at {offset} do not fit {self._path} of {self._size_bytes} bytes"
            )
        written = os.pwrite(self._fd, data, offset)
        if written != length:
            self._pwrite_rest(data, offset, written)

    def _pwrite_rest(self, data: Buffer, offset: int, written: int) -> None:
        rest = memoryview(data)
        while written < len(rest):
            written += os.pwrite(self._fd, rest[written:], offset + written)

    def view(self) -> memoryview:
        if self._view is None:
            if self._size_bytes == 0:
                self._view = memoryview(b"")
            else:
                self._view = memoryview(
                    mmap.mmap(self._fd, self._size_bytes, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
                )
        return self._view

    def preallocate(self, up_to: int) -> None:
        up_to = min(up_to, self._size_bytes)
        while self._allocated < up_to:
            step = min(ALLOCATION_STEP_BYTES, self._size_bytes - self._allocated)
            os.posix_fallocate(self._fd, self._allocated, step)
            self._allocated += step

    def read_ahead(self, start: int, end: int) -> None:
        os.posix_fadvise(self.descriptor, start, end - start, os.POSIX_FADV_WILLNEED)

    def data_end(self, start: int) -> int:
        at = start
        while at < self._size_bytes:
            try:
                data = os.lseek(self.descriptor, at, os.SEEK_DATA)
                at = os.lseek(self.descriptor, data, os.SEEK_HOLE)
            except OSError as error:
                # ENXIO: only a hole is left. Any other error: the file system does not show holes.
                return at if error.errno == errno.ENXIO else self._size_bytes
        return at

    def sync(self) -> None:
        os.fdatasync(self.descriptor)

    @property
    def descriptor(self) -> int:
        if self._fd < 0:
            raise OSError(errno.EBADF, "the segment is closed", self._path)
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        # The map goes away with the last view of it; unmapping under a reader would crash the process.
        self._view = None


def sync_all(path: str) -> None:
    """Bring all that was written to the file system of ``path``, names of files too, to the device."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if _syncfs is None:
            os.sync()
        elif _syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(fd)


def disk_used_ratio(path: str) -> float:
    """Used share, 0.0 to 1.0, of the file system that holds ``path``."""
    stat = _file_system(path)
    used = stat.f_blocks - stat.f_bfree
    # As `df`: blocks reserved for root count neither as used nor as free.
    whole = used + stat.f_bavail
    return used / whole if whole else 1.0


def disk_bytes(path: str) -> tuple[int, int]:
    """Size of the file system that holds ``path`` and what is free of it, both in bytes."""
    stat = _file_system(path)
    return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize


def _file_system(path: str) -> os.statvfs_result:
    folder = os.path.abspath(path)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return os.statvfs(folder)
