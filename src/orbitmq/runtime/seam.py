"""The machine as the rest of OrbitMQ sees it: protocols without any implementation."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    """Wall time for times that are stored and shown, monotonic time for measurements."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def local_time(self, epoch_ms: int) -> datetime:
        """The time that the machine's wall clock shows at an instant (milliseconds since the epoch); no time
        zone."""
        ...

    def epoch_ms(self, local: datetime) -> int:
        """The instant at which the machine's wall clock shows ``local``."""
        ...


@dataclass(frozen=True, slots=True)
class Usage:
    """The processor time and the memory of one process.

    Attributes:
        cpu_seconds: processor time since its start.
        resident_bytes: its part of the machine's memory.
    """

    cpu_seconds: float
    resident_bytes: int


class HostFacts(Protocol):
    """Facts about the machine, this process and its user."""

    @property
    def name(self) -> str:
        """The machine's name in the network."""
        ...

    @property
    def pid(self) -> int:
        """The number of this process, after a fork that of the child."""
        ...

    @property
    def home(self) -> str:
        """The user's home folder."""
        ...

    @property
    def cores(self) -> int:
        """How many processors this process may use."""
        ...

    @property
    def memory_bytes(self) -> int:
        """The size of the machine's memory."""
        ...

    def usage(self) -> Usage:
        """The processor time and the memory of this process."""
        ...

    def variable(self, name: str) -> str:
        """A variable of this process's environment; empty when it is not set."""
        ...

    def give_back_memory(self) -> None:
        """Give memory that this process does not use any more back to the machine; to be called in a
        thread."""
        ...


class Segment(Protocol):
    """One file of fixed size, written by offset and read through a map."""

    @property
    def path(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    def pwrite(self, data: Buffer, offset: int) -> None:
        """Write all of ``data`` at ``offset``.

        Raises:
            OSError: the disk refused (ENOSPC, EIO). How much was written is then unknown.
        """
        ...

    def view(self) -> memoryview:
        """The whole file as a read-only memory map. Bytes written by :meth:`pwrite` are visible at once."""
        ...

    def preallocate(self, up_to: int) -> None:
        """Make disk blocks exist for the bytes below ``up_to``, so that a write cannot hit ENOSPC."""
        ...

    def read_ahead(self, start: int, end: int) -> None:
        """Begin to bring the bytes from ``start`` to ``end`` into memory; does not wait for them."""
        ...

    def data_end(self, start: int) -> int:
        """The end of the written bytes: from there on the file has only zeros that were never written. At
        least ``start``.

        Bytes count as written if the system does not show whether they were.
        """
        ...

    def sync(self) -> None:
        """Return when everything written is on the device (fdatasync). May be called from another thread."""
        ...

    @property
    def descriptor(self) -> int:
        """The open file for the system's calls, -1 for a file in memory.

        Raises:
            OSError: the segment is closed.
        """
        ...

    def close(self) -> None:
        """Release the file. Views handed out stay valid until they are dropped."""
        ...


class Files(Protocol):
    """The file system. Paths are ``str``; every error is an ``OSError`` subclass."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def list_dir(self, path: str) -> list[str]:
        """Names in ``path``, sorted; empty when the folder does not exist."""
        ...

    def make_dirs(self, path: str) -> None: ...

    def size_bytes(self, path: str) -> int: ...

    def read_bytes(self, path: str) -> bytes: ...

    def read_parts(self, path: str, offsets: Iterable[int], count: int) -> tuple[int, list[bytes]]:
        """The size of a file in bytes, and ``count`` bytes from each offset on, fewer where the file ends."""
        ...

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, private: bool = False) -> None:
        """Replace ``path`` as a whole: temporary file, fsync, rename, fsync of the folder.

        Args:
            private: only this user may read it.
        """
        ...

    def append(self, path: str, data: bytes, *, private: bool = False) -> None:
        """Add to the end of a file; it is on the device on return. Makes the file and its folders.

        Args:
            private: only this user may read a new file.

        Raises:
            OSError: the disk refused; a part that was added is removed again, unless the disk refuses that
                too.
        """
        ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove one file; no error when it is gone already."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a folder and what is in it; no error when it is gone already."""
        ...

    def open_segment(
        self,
        path: str,
        size_bytes: int,
        *,
        create: bool = False,
        durable: bool = True,
        private: bool = False,
    ) -> Segment:
        """Open a file of fixed size; ``create`` makes the file (zeros) and its folders when missing, or none
        of them when it fails.

        A shorter existing file is extended with zeros to ``size_bytes``. Without ``durable`` a new file may
        be gone after a crash until :meth:`sync_all`. With ``private`` only this user may read a new file.
        """
        ...

    def sync_all(self, path: str) -> None:
        """Bring all that was written to the file system of ``path``, names of files too, to the device."""
        ...

    def lock(self, path: str) -> Callable[[], None]:
        """Take the exclusive lock of ``path`` and return the function that releases it.

        Raises:
            BlockingIOError: another process (or runtime) holds it.
        """
        ...

    def disk_used_ratio(self, path: str) -> float:
        """Used share, 0.0 to 1.0, of the file system that holds ``path``."""
        ...

    def disk_bytes(self, path: str) -> tuple[int, int]:
        """Size of the file system that holds ``path`` and what is free of it, both in bytes."""
        ...


class Threads(Protocol):
    """Runs blocking work off the event loop."""

    def run(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Run ``function(*args)`` off the event loop; the future has its result or its error.

        StopIteration, and errors that are not an Exception, become the cause of a RuntimeError.
        """
        ...

    def sync(self, segments: Sequence[Segment], done: Callable[[BaseException | None], object]) -> None:
        """Bring files to the device off the event loop (``Segment.sync``), then call ``done(error)`` on it.

        Every durable message takes this way, because it has fewer hand-overs than :meth:`run`. The segments
        must stay open until ``done`` is called.

        Raises:
            OSError: a segment is closed; ``done`` is not called.
        """
        ...

    def mutex(self) -> AbstractContextManager[object]:
        """A new reentrant lock for state that the event loop and threads both change."""
        ...

    def pool(self, max_threads: int) -> Threads:
        """Threads apart from these, for work that may take long; the caller closes them."""
        ...

    def close(self, *, wait: bool = True) -> None:
        """Finish the running calls, and drop the waiting ones. Without ``wait`` return before the running
        ones end."""
        ...


class Listener(Protocol):
    """An open server socket."""

    @property
    def port(self) -> int: ...

    async def close(self) -> None:
        """Stop accepting. Connections already open stay open."""
        ...


class Network(Protocol):
    """Byte streams between hosts, delivered to asyncio protocols (``Protocol`` or ``BufferedProtocol``)."""

    async def resolve(self, host: str) -> str:
        """The IP address of a host name or address; an IPv4 address if there are several.

        Raises:
            OSError: the name cannot be resolved.
        """
        ...

    async def resolve_all(self, host: str) -> list[str]:
        """All IP addresses of a host name, sorted; of an address, itself.

        Raises:
            OSError: the name cannot be resolved.
        """
        ...

    async def listen(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Listener:
        """Listen on ``host:port`` (port 0: any free one).

        Raises:
            OSError: the address is in use, or is not one of this machine.
        """
        ...

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, local_host: str = ""
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Open a connection, from the address ``local_host`` if one is given. TCP_NODELAY is set.

        Raises:
            OSError: refused or unreachable.
        """
        ...


@dataclass(frozen=True, slots=True)
class Runtime:
    """Everything a room may need from the machine. Passed down from the composition, never global."""

    clock: Clock
    random: random.Random
    files: Files
    network: Network
    threads: Threads
    host: HostFacts
