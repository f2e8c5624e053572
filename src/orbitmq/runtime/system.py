"""The real machine behind the seam: system clock, disk, sockets and a thread pool.

Clients run on every system, so nothing here needs Linux when it is imported, nor in what a client calls.
Functions that only servers call are loaded with the first such call, and refused on other systems.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterable
from datetime import datetime

from orbitmq.errors import StartError
from orbitmq.runtime.paths import expanded
from orbitmq.runtime.seam import Listener, Runtime, Segment, Usage
from orbitmq.runtime.threads import SystemThreads

LISTEN_BACKLOG = 1024
# The systems on which servers run: they use Linux's file locks, memory maps and sendfile.
SERVER_SYSTEMS = frozenset({"linux"})
# Flags for files that child processes must not inherit. On Windows none are inherited, and files are read as
# binary.
OPEN_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


def require_linux() -> None:
    """Refuse to run a server on another system than Linux.

    Raises:
        StartError: this system is not Linux.
    """
    if sys.platform not in SERVER_SYSTEMS:
        raise StartError(
            f"name servers and brokers need Linux, this system is {sys.platform}: "
            "run them on Linux or in a container; clients, admin and the simulated broker of tests run here"
        )


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    # The function itself, without a method around it: it is called several times for every message.
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
        return socket.gethostname()

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def home(self) -> str:
        return expanded("~")

    @property
    def cores(self) -> int:
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1

    @property
    def memory_bytes(self) -> int:
        require_linux()
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def usage(self) -> Usage:
        require_linux()
        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[1])
        return Usage(time.process_time(), pages * os.sysconf("SC_PAGE_SIZE"))

    def variable(self, name: str) -> str:
        return os.environ.get(name, "")

    def give_back_memory(self) -> None:
        from orbitmq.runtime.memory import give_back

        give_back()


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
            # Otherwise the next call would find these folders, and sync nothing.
            for made in missing:
                with contextlib.suppress(OSError):
                    os.rmdir(made)
            raise

    def size_bytes(self, path: str) -> int:
        return os.stat(path).st_size

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def read_parts(self, path: str, offsets: Iterable[int], count: int) -> tuple[int, list[bytes]]:
        # A start calls this for each queue: a file object would take three times as long.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.fstat(fd).st_size, [os.pread(fd, count, offset) for offset in offsets]
        finally:
            os.close(fd)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, private: bool = False) -> None:
        folder = os.path.dirname(os.path.abspath(path))
        self.make_dirs(folder)
        temporary = f"{path}.tmp"
        try:
            # A file left by a crash may be readable by other users.
            if private:
                self.remove(temporary)
            mode = 0o600 if private else 0o666
            with open(temporary, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
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

    def append(self, path: str, data: bytes, *, private: bool = False) -> None:
        folder = os.path.dirname(os.path.abspath(path))
        new = not os.path.exists(path)
        if new:
            self.make_dirs(folder)
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | OPEN_FLAGS, 0o600 if private else 0o666)
        try:
            size_bytes = os.fstat(fd).st_size
            try:
                left = memoryview(data)
                while left:
                    left = left[os.write(fd, left) :]
                os.fsync(fd)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(fd, size_bytes)
                    if new:
                        os.unlink(path)
                raise
        finally:
            os.close(fd)
        if new:
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
        self,
        path: str,
        size_bytes: int,
        *,
        create: bool = False,
        durable: bool = True,
        private: bool = False,
    ) -> Segment:
        require_linux()
        from orbitmq.runtime.store_files import SystemSegment

        folder = os.path.dirname(os.path.abspath(path))
        new = create and not os.path.exists(path)
        if new and durable:
            self.make_dirs(folder)
        elif new:
            os.makedirs(folder, exist_ok=True)
        if not new:
            return SystemSegment(path, size_bytes, create=create, private=private)
        segment: Segment | None = None
        try:
            segment = SystemSegment(path, size_bytes, create=True, private=private)
            if durable:
                _sync_folder(folder)
        except OSError:
            # Otherwise the next call would find the file, and a power cut could remove it with all bytes
            # flushed into it.
            if segment is not None:
                segment.close()
            with contextlib.suppress(OSError):
                os.unlink(path)
            raise
        return segment

    def sync_all(self, path: str) -> None:
        require_linux()
        from orbitmq.runtime.store_files import sync_all

        sync_all(path)

    def lock(self, path: str) -> Callable[[], None]:
        from orbitmq.runtime.file_lock import FileLock

        self.make_dirs(os.path.dirname(os.path.abspath(path)))
        return FileLock(path)

    def disk_used_ratio(self, path: str) -> float:
        require_linux()
        from orbitmq.runtime.store_files import disk_used_ratio

        return disk_used_ratio(path)

    def disk_bytes(self, path: str) -> tuple[int, int]:
        require_linux()
        from orbitmq.runtime.store_files import disk_bytes

        return disk_bytes(path)


def _sync_folder(path: str) -> None:
    """Bring the names in a folder to the device; nothing where a folder cannot be opened (Windows)."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | OPEN_FLAGS)
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
        # wait_closed() would wait for the open connections, too, since Python 3.12.
        self._server.close()


class SystemNetwork:
    """TCP of the running event loop, asyncio's own or uvloop. Both set TCP_NODELAY themselves."""

    async def resolve(self, host: str) -> str:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        found.sort(key=lambda one: one[0] != socket.AF_INET)
        return str(found[0][4][0])

    async def resolve_all(self, host: str) -> list[str]:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return sorted({str(one[4][0]) for one in found})

    async def listen(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Listener:
        require_linux()
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
