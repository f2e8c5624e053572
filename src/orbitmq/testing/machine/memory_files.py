"""A file system in memory that distinguishes synced from unsynced bytes: a crash keeps the synced ones."""

from __future__ import annotations

import errno
import mmap
import os
import posixpath
import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from orbitmq.runtime.seam import Buffer, Segment

DEFAULT_CAPACITY_BYTES = 100 * 1024**3
# Like a kernel, write back the oldest unsynced bytes beyond this size.
WRITE_BACK_BYTES = 64 * 1024 * 1024
SPARSE_FROM_BYTES = 1024 * 1024
# The units that devices write atomically: of one write a unit has all or nothing, and no later write without
# the earlier ones.
BLOCK_BYTES = (512, 4096)


class Keep(Enum):
    """Which unsynced writes survive a crash."""

    NOTHING = "nothing"
    PREFIX = "prefix"  # the writes before some moment, and a torn one
    ANY = "any"  # for each block of the device, the writes before some moment


@dataclass(slots=True)
class _Fault:
    operation: str
    path_part: str
    error: int
    skip: int
    times: int


def _zeros(size_bytes: int) -> bytearray | mmap.mmap:
    """Zeroed memory; of a large, sparse file only the touched parts occupy memory."""
    return bytearray(size_bytes) if size_bytes < SPARSE_FROM_BYTES else mmap.mmap(-1, size_bytes)


class _File:
    """The content as programs see it, the content on the device, and the writes in between."""

    def __init__(self, size_bytes: int) -> None:
        self.lock = threading.Lock()
        self.content = _zeros(size_bytes)
        self.durable = _zeros(size_bytes)
        self.dirty: list[tuple[int, bytes]] = []
        self.dirty_bytes = 0
        # The number of bytes with allocated blocks, and the end of the furthest write.
        self.allocated = 0
        self.written = 0
        # The file that a crash brings back if this file replaced it without a sync.
        self.replaced: _File | None = None
        self.unsynced_replacement = False

    def extend(self, size_bytes: int) -> None:
        for name in ("content", "durable"):
            longer = _zeros(size_bytes)
            old = getattr(self, name)
            longer[: len(old)] = old
            setattr(self, name, longer)

    def write(self, data: bytes, offset: int) -> None:
        with self.lock:
            end = offset + len(data)
            self.content[offset:end] = data
            self.allocated = max(self.allocated, end)
            self.written = max(self.written, end)
            self.dirty.append((offset, data))
            self.dirty_bytes += len(data)
            while self.dirty_bytes > WRITE_BACK_BYTES:
                position, oldest = self.dirty.pop(0)
                self.durable[position : position + len(oldest)] = oldest
                self.dirty_bytes -= len(oldest)

    def sync(self) -> None:
        with self.lock:
            for offset, data in self.dirty:
                self.durable[offset : offset + len(data)] = data
            self._clean()

    def lose_dirty(self) -> None:
        """A failed sync: the pages count as clean, although the device never got them."""
        with self.lock:
            self._clean()

    def _clean(self) -> None:
        self.dirty = []
        self.dirty_bytes = 0

    def crash(self, keep: Keep, source: random.Random) -> None:
        with self.lock:
            for offset, data in _survivors(self.dirty, keep, source):
                self.durable[offset : offset + len(data)] = data
            self._clean()
            content = _zeros(len(self.durable))
            content[: self.allocated] = self.durable[: self.allocated]
            self.content = content


def _survivors(dirty: list[tuple[int, bytes]], keep: Keep, source: random.Random) -> list[tuple[int, bytes]]:
    if keep is Keep.NOTHING or not dirty:
        return []
    if keep is Keep.ANY:
        return _survivors_by_block(dirty, source.choice(BLOCK_BYTES), source)
    whole = source.randrange(len(dirty) + 1)
    kept = dirty[:whole]
    if whole < len(dirty):
        offset, data = dirty[whole]
        kept.append((offset, data[: source.randrange(len(data) + 1)]))
    return kept


def _survivors_by_block(
    dirty: list[tuple[int, bytes]], block_bytes: int, source: random.Random
) -> list[tuple[int, bytes]]:
    """The writes that a crash leaves: half of the blocks keep all their writes, the others fewer or none."""
    blocks: dict[int, list[tuple[int, bytes]]] = {}
    for offset, data in dirty:
        at = 0
        while at < len(data):
            block = (offset + at) // block_bytes
            end = min(len(data), (block + 1) * block_bytes - offset)
            blocks.setdefault(block, []).append((offset + at, data[at:end]))
            at = end
    kept: list[tuple[int, bytes]] = []
    for _, parts in sorted(blocks.items()):
        kept += parts if source.random() < 0.5 else parts[: source.randrange(len(parts))]
    return kept


class MemorySegment:
    """A segment of :class:`MemoryFiles`. After a crash of the machine all its methods fail."""

    def __init__(self, files: MemoryFiles, path: str, file: _File, size_bytes: int) -> None:
        self._files = files
        self._path = path
        self._file: _File | None = file
        self._size_bytes = size_bytes
        self._view: memoryview | None = None

    @property
    def path(self) -> str:
        return self._path

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def pwrite(self, data: Buffer, offset: int) -> None:
        copy = bytes(data)
        end = offset + len(copy)
        if offset < 0 or end > self._size_bytes:
            raise ValueError(
                f"{len(copy)} bytes at {offset} do not fit {self._path} of {self._size_bytes} bytes"
            )
        file = self._open()
        self._files.check_fault("pwrite", self._path)
        self._files.reserve(file, end)
        file.write(copy, offset)

    def view(self) -> memoryview:
        if self._view is None:
            self._view = memoryview(self._open().content).toreadonly()[: self._size_bytes]
        return self._view

    def preallocate(self, up_to: int) -> None:
        file = self._open()
        self._files.check_fault("preallocate", self._path)
        up_to = min(up_to, self._size_bytes)
        self._files.reserve(file, up_to)
        file.allocated = max(file.allocated, up_to)

    def read_ahead(self, start: int, end: int) -> None:
        pass

    def data_end(self, start: int) -> int:
        return max(start, min(self._open().written, self._size_bytes))

    def sync(self) -> None:
        file = self._open()
        try:
            self._files.check_fault("sync", self._path)
        except OSError:
            file.lose_dirty()
            raise
        file.sync()

    @property
    def descriptor(self) -> int:
        self._open()
        return -1

    def close(self) -> None:
        self._file = None
        self._view = None
        self._files.closed(self)

    def _open(self) -> _File:
        if self._file is None:
            raise OSError(errno.EBADF, "the segment is closed", self._path)
        return self._file


class MemoryFiles:
    """Files in memory with the semantics of the real ones.

    A change of a folder (create, rename, remove) is durable on return, like with the real files of
    :mod:`orbitmq.runtime`; bytes are durable after ``sync``, or after ``write_atomic`` with ``sync``.

    The written part of a segment occupies memory twice: for the content that programs see and for the content
    on the device.

    Attributes:
        capacity_bytes: size of the disk; a write beyond it fails with ENOSPC.
    """

    def __init__(self, source: random.Random, capacity_bytes: int = DEFAULT_CAPACITY_BYTES) -> None:
        self._random = source
        self.capacity_bytes = capacity_bytes
        self._files: dict[str, _File] = {}
        self._folders: set[str] = {"/"}
        self._locks: dict[str, object] = {}
        self._segments: dict[MemorySegment, None] = {}
        self._faults: list[_Fault] = []
        # An upper bound of the allocated bytes, recomputed only when it comes near the capacity.
        self._used_at_most = 0

    # -- faults ----------------------------------------------------------------------------------------

    def crash(self, under: str = "/", *, keep: Keep = Keep.NOTHING) -> None:
        """Stop the machine without warning: unsynced bytes are lost, segments and locks become invalid.

        Args:
            under: crash only the files below this folder, as if they belonged to a separate process.
            keep: which unsynced writes survive, chosen by the seed.
        """
        root = _clean(under)
        self.end_process(under)
        for path in sorted(self._files):
            if not _below(path, root):
                continue
            file = self._files[path]
            while file.unsynced_replacement:
                if file.replaced is None:
                    del self._files[path]
                    break
                file = file.replaced
                self._files[path] = file
            else:
                file.crash(keep, self._random)
        self._used_at_most = self.used_bytes()

    def end_process(self, under: str = "/") -> None:
        """End the process that has files below ``under`` open: segments and locks become invalid,
        bytes stay.
        """
        root = _clean(under)
        for segment in [one for one in self._segments if _below(one.path, root)]:
            segment.close()
        self._locks = {path: owner for path, owner in self._locks.items() if not _below(path, root)}

    def fail(
        self, operation: str, path_part: str = "", *, error: int = errno.EIO, skip: int = 0, times: int = 1
    ) -> None:
        """Make later operations fail with ``OSError(error)``.

        Args:
            operation: "pwrite", "sync", "preallocate", "open_segment", "read_bytes", "write_atomic",
                "append", "rename", "remove" or "*". The bytes of a failed sync never become durable.
            path_part: only paths that contain this text.
            skip: number of matching operations that still succeed first.
            times: number of operations that fail; -1 for all.
        """
        self._faults.append(_Fault(operation, path_part, error, skip, times))

    def heal(self) -> None:
        """Remove all failures that :meth:`fail` set up."""
        self._faults.clear()

    def check_fault(self, operation: str, path: str) -> None:
        """Raise the failure that :meth:`fail` set up for this operation."""
        for fault in self._faults:
            if fault.operation not in (operation, "*") or fault.path_part not in path or fault.times == 0:
                continue
            if fault.skip > 0:
                fault.skip -= 1
                continue
            fault.times -= 1
            raise OSError(fault.error, f"{os.strerror(fault.error)} (injected into {operation})", path)

    def reserve(self, file: _File, up_to: int) -> None:
        """Allocate the blocks of ``file`` below ``up_to``, or raise ENOSPC."""
        needed = up_to - file.allocated
        if needed <= 0:
            return
        if self._used_at_most + needed > self.capacity_bytes:
            self._used_at_most = self.used_bytes()
            if self._used_at_most + needed > self.capacity_bytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._used_at_most += needed

    @property
    def in_use(self) -> list[str]:
        """The files that a process has open or locked."""
        return sorted({*(segment.path for segment in self._segments), *self._locks})

    def used_bytes(self) -> int:
        """Bytes allocated by all files."""
        return sum(file.allocated for file in self._files.values())

    # -- the seam --------------------------------------------------------------------------------------

    def exists(self, path: str) -> bool:
        path = _clean(path)
        return path in self._files or path in self._folders

    def is_dir(self, path: str) -> bool:
        return _clean(path) in self._folders

    def list_dir(self, path: str) -> list[str]:
        inside = _clean(path).rstrip("/") + "/"
        names = [one[len(inside) :] for one in (*self._files, *self._folders) if one.startswith(inside)]
        return sorted(name for name in names if name and "/" not in name)

    def make_dirs(self, path: str) -> None:
        path = _clean(path)
        while path not in self._folders:
            if path in self._files:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            self._folders.add(path)
            path = posixpath.dirname(path)

    def size_bytes(self, path: str) -> int:
        return len(self._file(path).content)

    def read_bytes(self, path: str) -> bytes:
        self.check_fault("read_bytes", path)
        return bytes(self._file(path).content)

    def read_parts(self, path: str, offsets: Iterable[int], count: int) -> tuple[int, list[bytes]]:
        self.check_fault("read_bytes", path)
        content = self._file(path).content
        return len(content), [bytes(content[offset : offset + count]) for offset in offsets]

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True, private: bool = False) -> None:
        path = _clean(path)
        self.check_fault("write_atomic", path)
        self.make_dirs(posixpath.dirname(path))
        if path in self._folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        file = _File(len(data))
        self.reserve(file, len(data))
        file.write(bytes(data), 0)
        file.sync()
        if not sync:
            before = self._files.get(path)
            # One previous file is enough: of several unsynced replacements none survives a crash.
            file.replaced = before.replaced if before is not None and before.unsynced_replacement else before
            file.unsynced_replacement = True
        self._files[path] = file

    def append(self, path: str, data: bytes, *, private: bool = False) -> None:
        path = _clean(path)
        self.check_fault("append", path)
        self.make_dirs(posixpath.dirname(path))
        if path in self._folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        file = self._files.get(path) or _File(0)
        start = len(file.content)
        self.reserve(file, start + len(data))
        file.extend(start + len(data))
        file.write(bytes(data), start)
        file.sync()
        self._files[path] = file

    def rename(self, source: str, target: str) -> None:
        source, target = _clean(source), _clean(target)
        self.check_fault("rename", source)
        if posixpath.dirname(target) not in self._folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), target)
        if source in self._folders:
            self._rename_folder(source, target)
            return
        file = self._file(source)
        if target in self._folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
        del self._files[source]
        self._files[target] = file
        file.unsynced_replacement = False
        file.replaced = None

    def _rename_folder(self, source: str, target: str) -> None:
        if target in self._files or self.list_dir(target):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
        moved = {path: target + path[len(source) :] for path in self._files if _below(path, source)}
        for old, new in moved.items():
            self._files[new] = self._files.pop(old)
        self._folders = {
            target + path[len(source) :] if _below(path, source) else path for path in self._folders
        }

    def remove(self, path: str) -> None:
        path = _clean(path)
        self.check_fault("remove", path)
        if path in self._folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        self._files.pop(path, None)

    def remove_tree(self, path: str) -> None:
        path = _clean(path)
        self.check_fault("remove", path)
        for file in [one for one in self._files if _below(one, path)]:
            del self._files[file]
        self._folders = {one for one in self._folders if one == "/" or not _below(one, path)}

    def open_segment(
        self,
        path: str,
        size_bytes: int,
        *,
        create: bool = False,
        durable: bool = True,
        private: bool = False,
    ) -> Segment:
        path = _clean(path)
        self.check_fault("open_segment", path)
        file = self._files.get(path)
        if file is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            self.make_dirs(posixpath.dirname(path))
            file = self._files[path] = _File(size_bytes)
        elif len(file.content) < size_bytes:
            file.extend(size_bytes)
        segment = MemorySegment(self, path, file, size_bytes)
        self._segments[segment] = None
        return segment

    def sync_all(self, path: str) -> None:
        for name, file in list(self._files.items()):
            if file.dirty:
                try:
                    self.check_fault("sync", name)
                except OSError:
                    file.lose_dirty()
                    raise
                file.sync()

    def closed(self, segment: MemorySegment) -> None:
        """Note that a segment is closed."""
        self._segments.pop(segment, None)

    def lock(self, path: str) -> Callable[[], None]:
        path = _clean(path)
        if path in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, "another process holds the lock", path)
        self.make_dirs(posixpath.dirname(path))
        self._files.setdefault(path, _File(0))
        owner = self._locks[path] = object()

        def release() -> None:
            if self._locks.get(path) is owner:
                del self._locks[path]

        return release

    def disk_used_ratio(self, path: str) -> float:
        return min(1.0, self.used_bytes() / self.capacity_bytes)

    def disk_bytes(self, path: str) -> tuple[int, int]:
        return self.capacity_bytes, max(0, self.capacity_bytes - self.used_bytes())

    def _file(self, path: str) -> _File:
        path = _clean(path)
        if path in self._folders:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        file = self._files.get(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return file


@lru_cache(maxsize=10_000)
def _clean(path: str) -> str:
    return posixpath.normpath(posixpath.join("/", path))


def _below(path: str, root: str) -> bool:
    return root == "/" or path == root or path.startswith(root + "/")
