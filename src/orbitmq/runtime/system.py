"""The real machine behind the seam: system clock, disk, sockets and a thread pool (Linux)."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import random
import shutil
import socket
import struct
import time
from collections.abc import Callable
from datetime import datetime

from orbitmq.runtime.paths import expanded
from orbitmq.runtime.seam import Buffer, Listener, Runtime, Segment
from orbitmq.runtime.threads import SystemThreads

# One fallocate call holds the inode lock for as long as it runs, so a big file is allocated piece by piece.
ALLOCATION_STEP_BYTES = 16 * 1024 * 1024

LISTEN_BACKLOG = 1024
# struct flock: type, whence, start, length, process id (0 for a lock of an open file).
_FLOCK = struct.Struct("hhqqi4x")
# One call for thousands of files (Linux); Python has no name for it.
_syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # The function itself: it is asked several times for every message.
    monotonic = staticmethod(time.monotonic)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def local_time(self, epoch_ms: int) -> datetime:
        return datetime.fromtimestamp(epoch_ms / 1000)

    def epoch_ms(self, local: datetime) -> int:
        return round(local.timestamp() * 1000)


class SystemHost:
    """This machine, this process, this user."""

    @property
    def name(self) -> str:
        return os.uname().nodename

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def home(self) -> str:
        return expanded("~")

    @property
    def cores(self) -> int:
        return len(os.sched_getaffinity(0))

    @property
    def memory_bytes(self) -> int:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class SystemSegment:
    """A file written with ``pwrite`` and read through a shared, read-only map."""

    def __init__(self, path: str, size_bytes: int, *, create: bool) -> None:
        self._path = path
        self._size_bytes = size_bytes
        self._allocated = 0
        self._view: memoryview | None = None
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._fd = os.open(path, flags, 0o644)
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
                # ENXIO: only a hole is left. Any other: the file system does not tell.
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


class SystemFiles:
    """The local file system. A change of a folder (create, rename, remove) is on the device on return."""

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list_dir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def make_dirs(self, path: str) -> None:
        missing = []
        folder = os.path.abspath(path)
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        try:
            os.makedirs(path, exist_ok=True)
            for made in missing:
                _sync_folder(os.path.dirname(made))
        except OSError:
            # The next call would find them, and sync nothing.
            for made in missing:
                with contextlib.suppress(OSError):
                    os.rmdir(made)
            raise

    def size_bytes(self, path: str) -> int:
        return os.stat(path).st_size

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def read_at(self, path: str, offset: int, count: int) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, count, offset)
        finally:
            os.close(fd)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        folder = os.path.dirname(os.path.abspath(path))
        self.make_dirs(folder)
        temporary = f"{path}.tmp"
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        if sync:
            _sync_folder(folder)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)
        folders = {os.path.dirname(os.path.abspath(source)), os.path.dirname(os.path.abspath(target))}
        for folder in folders:
            _sync_folder(folder)

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        _sync_folder(os.path.dirname(os.path.abspath(path)))

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        _sync_folder(os.path.dirname(os.path.abspath(path)))

    def open_segment(
        self, path: str, size_bytes: int, *, create: bool = False, durable: bool = True
    ) -> Segment:
        folder = os.path.dirname(os.path.abspath(path))
        new = create and not os.path.exists(path)
        if new and durable:
            self.make_dirs(folder)
        elif new:
            os.makedirs(folder, exist_ok=True)
        if not new:
            return SystemSegment(path, size_bytes, create=create)
        segment: Segment | None = None
        try:
            segment = SystemSegment(path, size_bytes, create=True)
            if durable:
                _sync_folder(folder)
        except OSError:
            # The next call would find the file, and a power cut take it with all that was flushed into it.
            if segment is not None:
                segment.close()
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        return segment

    def sync_all(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if _syncfs is None:
                os.sync()
            elif _syncfs(fd) != 0:
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), path)
        finally:
            os.close(fd)

    def lock(self, path: str) -> Callable[[], None]:
        self.make_dirs(os.path.dirname(os.path.abspath(path)))
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # One that a JVM's lock of this byte excludes too, unlike flock; and it belongs to this open file,
            # so that a second store of the same process is kept out.
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
            # For who looks; a full disk refuses even that.
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
                os.pwrite(fd, str(os.getpid()).encode(), 0)
        except OSError as error:
            os.close(fd)
            if isinstance(error, BlockingIOError):
                raise BlockingIOError(error.errno, "another process holds the lock", path) from None
            raise
        return _Release(fd)

    def disk_used_ratio(self, path: str) -> float:
        stat = _file_system(path)
        used = stat.f_blocks - stat.f_bfree
        # As `df`: blocks reserved for root count neither as used nor as free.
        whole = used + stat.f_bavail
        return used / whole if whole else 1.0

    def disk_bytes(self, path: str) -> tuple[int, int]:
        stat = _file_system(path)
        return stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize


class _Release:
    """Gives a lock back, once."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __call__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _file_system(path: str) -> os.statvfs_result:
    folder = os.path.abspath(path)
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    return os.statvfs(folder)


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class SystemListener:
    """A listening socket of the running loop."""

    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        self._port: int = server.sockets[0].getsockname()[1]

    @property
    def port(self) -> int:
        return self._port

    async def close(self) -> None:
        # Not wait_closed(): since Python 3.12 that waits for the open connections too.
        self._server.close()


class SystemNetwork:
    """TCP of the running event loop, asyncio's own or uvloop. Both set TCP_NODELAY themselves."""

    async def resolve(self, host: str) -> str:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        found.sort(key=lambda one: one[0] != socket.AF_INET)
        return str(found[0][4][0])

    async def listen(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Listener:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(factory, host or None, port, backlog=LISTEN_BACKLOG)
        return SystemListener(server)

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, local_host: str = ""
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        local = (local_host, 0) if local_host else None
        return await asyncio.get_running_loop().create_connection(factory, host, port, local_addr=local)


def system_runtime(seed: int | None = None) -> Runtime:
    """The real machine. ``seed`` fixes the random source, for tests; None draws one from the system."""
    return Runtime(
        clock=SystemClock(),
        random=random.Random(seed),
        files=SystemFiles(),
        network=SystemNetwork(),
        threads=SystemThreads(),
        host=SystemHost(),
    )
