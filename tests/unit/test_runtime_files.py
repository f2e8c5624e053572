"""One suite for both file systems: the real one and the one in memory."""

from __future__ import annotations

import errno
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.runtime import Files, system_runtime
from orbitmq.testing.machine.simulated import simulated_runtime


@pytest.fixture(params=["system", "memory"])
def files(request: pytest.FixtureRequest) -> Files:
    if request.param == "system":
        return system_runtime().files
    return simulated_runtime(seed=1).files


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path)


def test_a_segment_is_written_by_offset_and_read_through_its_view(files: Files, root: str) -> None:
    segment = files.open_segment(f"{root}/a/b/00000", 10_000, create=True)
    view = segment.view()
    assert (len(view), view.readonly, segment.size_bytes) == (10_000, True, 10_000)
    assert bytes(view[:4]) == bytes(4)
    segment.pwrite(b"hello", 100)
    segment.pwrite(bytearray(b"HE"), 100)
    segment.pwrite(memoryview(b"end"), 9_997)
    assert bytes(view[99:106]) == b"\0HEllo\0"
    segment.sync()
    segment.close()
    assert bytes(view[9_997:]) == b"end"
    again = files.open_segment(f"{root}/a/b/00000", 10_000)
    assert bytes(again.view()[100:105]) == b"HEllo"
    again.close()
    assert files.list_dir(f"{root}/a/b") == ["00000"]
    assert files.size_bytes(f"{root}/a/b/00000") == 10_000


@pytest.mark.parametrize("offset", [-1, 98, 1000])
def test_a_write_outside_the_segment_is_refused(files: Files, root: str, offset: int) -> None:
    segment = files.open_segment(f"{root}/s", 100, create=True)
    with pytest.raises(ValueError, match="do not fit"):
        segment.pwrite(b"abc", offset)
    segment.close()


def test_a_closed_segment_refuses(files: Files, root: str) -> None:
    segment = files.open_segment(f"{root}/s", 100, create=True)
    segment.close()
    segment.close()
    with pytest.raises(OSError):
        segment.pwrite(b"abc", 0)
    with pytest.raises(OSError):
        segment.sync()


def test_a_shorter_file_is_extended(files: Files, root: str) -> None:
    files.write_atomic(f"{root}/s", b"abc")
    segment = files.open_segment(f"{root}/s", 8)
    assert bytes(segment.view()) == b"abc\0\0\0\0\0"
    segment.close()
    assert files.size_bytes(f"{root}/s") == 8


def test_a_missing_segment(files: Files, root: str) -> None:
    with pytest.raises(FileNotFoundError):
        files.open_segment(f"{root}/none", 100)


def test_preallocation_keeps_what_is_there(files: Files, root: str) -> None:
    segment = files.open_segment(f"{root}/s", 40_000_000, create=True)
    segment.pwrite(b"x", 0)
    segment.preallocate(1000)
    segment.preallocate(20_000_000)
    segment.preallocate(999_999_999)
    assert bytes(segment.view()[:2]) == b"x\0"
    assert segment.size_bytes == 40_000_000
    segment.close()


def test_an_empty_segment(files: Files, root: str) -> None:
    segment = files.open_segment(f"{root}/s", 0, create=True)
    assert len(segment.view()) == 0
    segment.sync()
    segment.close()


def test_atomic_writes(files: Files, root: str) -> None:
    path = f"{root}/config/topics.json"
    files.write_atomic(path, b"one")
    files.write_atomic(path, b"second", sync=False)
    assert files.read_bytes(path) == b"second"
    assert files.list_dir(f"{root}/config") == ["topics.json"]
    with pytest.raises(OSError):
        files.write_atomic(f"{root}/config", b"a folder is in the way")
    assert files.list_dir(root) == ["config"]


@pytest.mark.behaviour("AZ-22")
def test_what_is_added_to_a_file(files: Files, root: str) -> None:
    path = f"{root}/logs/audit.log"
    files.append(path, b"one\n", private=True)
    files.append(path, b"two\n")
    assert files.read_bytes(path) == b"one\ntwo\n"
    files.rename(path, f"{path}.1")
    files.append(path, b"three\n", private=True)
    assert files.read_bytes(path) == b"three\n"
    assert files.read_bytes(f"{path}.1") == b"one\ntwo\n"
    with pytest.raises(OSError):
        files.append(f"{root}/logs", b"a folder is in the way")


@pytest.mark.behaviour("AZ-20")
def test_a_line_that_does_not_fit_leaves_nothing(root: str) -> None:
    """This runs in a process of its own, since the limit on a file's size is that of the process."""
    program = f"""
import os, resource, signal
from orbitmq.runtime import system_runtime
files = system_runtime().files
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
files.append({root!r} + "/old", b"1234\\n")
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
for name in ("old", "new"):
    try:
        files.append({root!r} + "/" + name, b"x" * 20)
    except OSError:
        pass
    else:
        raise SystemExit(name)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert files_of(root) == {"old": b"1234\n"}


def files_of(root: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path(root).iterdir()}


def test_folders(files: Files, root: str) -> None:
    files.make_dirs(f"{root}/x/y")
    files.make_dirs(f"{root}/x/y")
    files.write_atomic(f"{root}/x/b", b"")
    files.write_atomic(f"{root}/x/a", b"1")
    assert files.list_dir(f"{root}/x") == ["a", "b", "y"]
    assert files.list_dir(f"{root}/none") == []
    assert files.is_dir(f"{root}/x/y")
    assert not files.is_dir(f"{root}/x/a")
    assert files.exists(f"{root}/x/a")
    assert not files.exists(f"{root}/x/c")
    files.remove_tree(f"{root}/x")
    files.remove_tree(f"{root}/x")
    assert not files.exists(f"{root}/x")
    assert files.exists(root) or files.list_dir(root) == []


def test_rename_and_remove(files: Files, root: str) -> None:
    files.write_atomic(f"{root}/one", b"1")
    files.write_atomic(f"{root}/two", b"2")
    files.rename(f"{root}/one", f"{root}/two")
    assert files.list_dir(root) == ["two"]
    assert files.read_bytes(f"{root}/two") == b"1"
    files.make_dirs(f"{root}/folder")
    files.rename(f"{root}/two", f"{root}/folder/three")
    files.rename(f"{root}/folder", f"{root}/moved")
    assert files.read_bytes(f"{root}/moved/three") == b"1"
    files.remove(f"{root}/moved/three")
    files.remove(f"{root}/moved/three")
    assert files.list_dir(f"{root}/moved") == []
    for action in (files.read_bytes, files.size_bytes):
        with pytest.raises(FileNotFoundError):
            action(f"{root}/moved/three")
    with pytest.raises(FileNotFoundError):
        files.rename(f"{root}/nothing", f"{root}/x")


def test_an_open_segment_survives_its_removal(files: Files, root: str) -> None:
    segment = files.open_segment(f"{root}/s", 100, create=True)
    files.remove(f"{root}/s")
    segment.pwrite(b"still", 0)
    segment.sync()
    assert bytes(segment.view()[:5]) == b"still"
    segment.close()
    assert not files.exists(f"{root}/s")


def test_the_lock_is_exclusive(files: Files, root: str) -> None:
    release = files.lock(f"{root}/store/lock")
    with pytest.raises(BlockingIOError):
        files.lock(f"{root}/store/lock")
    release()
    release()
    second = files.lock(f"{root}/store/lock")
    release()
    with pytest.raises(BlockingIOError):
        files.lock(f"{root}/store/lock")
    second()


@pytest.mark.behaviour("ST-03")
def test_the_lock_and_that_of_a_jvm_exclude_each_other(root: str) -> None:
    # This is the lock of FileChannel.tryLock(0, 1, false).
    jvm = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)"
    waits = f"{jvm}; print('locked', flush=True); sys.stdin.read()"
    files, path = system_runtime().files, f"{root}/lock"
    files.lock(path)()
    with subprocess.Popen(
        [sys.executable, "-c", waits, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(BlockingIOError, match="another process"):
            files.lock(path)
        other.communicate()
    release = files.lock(path)
    refused = subprocess.run([sys.executable, "-c", jvm, path], capture_output=True, check=False)
    assert b"BlockingIOError" in refused.stderr
    release()
    assert subprocess.run([sys.executable, "-c", jvm, path], check=False).returncode == 0


def test_the_used_share_of_the_disk(files: Files, root: str) -> None:
    assert 0.0 <= files.disk_used_ratio(f"{root}/not/there/yet") <= 1.0
    size, free = files.disk_bytes(f"{root}/not/there/yet")
    assert 0 <= free <= size


def test_what_is_made_in_a_folder_that_is_not_synced_is_made_anew(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next try must not find the file and skip the sync of its folder, or a power cut loses its flushed
    data.
    """
    files, fsync = system_runtime().files, os.fsync
    refused, synced = list[str](), list[str]()

    def sync(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path in refused:
            refused.remove(path)
            raise OSError(errno.EIO, "injected")
        synced.append(path)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    for folder in (root, f"{root}/log"):
        refused.append(folder)
        with pytest.raises(OSError, match="injected"):
            files.open_segment(f"{root}/log/0", 100, create=True)
        assert not files.exists(f"{root}/log/0")
    synced.clear()
    files.open_segment(f"{root}/log/0", 100, create=True).close()
    assert synced == [f"{root}/log"]
    monkeypatch.undo()
    # The file is larger than this process may write; file systems differ in their limits.
    before, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, most))
    try:
        with pytest.raises(OSError):
            files.open_segment(f"{root}/log/1", 1 << 20, create=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, most))
    assert files.list_dir(f"{root}/log") == ["0"]


class Disk:
    """The syncs and renames of files and folders, in order."""

    def __init__(self, root: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps: list[str] = []
        self._root = root
        fsync, replace, rename = os.fsync, os.replace, os.rename

        def note_sync(descriptor: int) -> None:
            fsync(descriptor)
            path = self._short(os.readlink(f"/proc/self/fd/{descriptor}"))
            folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            size = "" if folder else f", {os.fstat(descriptor).st_size} bytes"
            self.steps.append(f"sync {path}{size}")

        def note_replace(source: str, target: str) -> None:
            replace(source, target)
            self.steps.append(f"replace {self._short(target)}")

        def note_rename(source: str, target: str) -> None:
            rename(source, target)
            self.steps.append(f"rename {self._short(target)}")

        monkeypatch.setattr(os, "fsync", note_sync)
        monkeypatch.setattr(os, "replace", note_replace)
        monkeypatch.setattr(os, "rename", note_rename)

    def _short(self, path: str) -> str:
        return os.path.relpath(path, self._root)


def test_each_change_of_a_file_or_a_name_is_synced_before_the_call_returns(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without these syncs a power cut could lose a table, a checkpoint or a renamed file."""
    files = system_runtime().files
    for folder in ("a", "b"):
        files.make_dirs(f"{root}/{folder}")
    disk = Disk(root, monkeypatch)
    # The content is synced before the name, or the name may stand for an empty file.
    files.write_atomic(f"{root}/a/x.json", b"12345")
    assert disk.steps == ["sync a/x.json.tmp, 5 bytes", "replace a/x.json", "sync a"]
    disk.steps.clear()
    files.write_atomic(f"{root}/c/x.json", b"1")
    assert disk.steps == ["sync .", "sync c/x.json.tmp, 1 bytes", "replace c/x.json", "sync c"]
    disk.steps.clear()
    files.write_atomic(f"{root}/a/x.json", b"12345", sync=False)
    assert disk.steps == ["replace a/x.json"]
    disk.steps.clear()
    files.append(f"{root}/f/x.log", b"123")
    files.append(f"{root}/f/x.log", b"45")
    assert disk.steps == ["sync .", "sync f/x.log, 3 bytes", "sync f", "sync f/x.log, 5 bytes"]
    disk.steps.clear()
    files.rename(f"{root}/a/x.json", f"{root}/a/y.json")
    assert disk.steps == ["rename a/y.json", "sync a"]
    disk.steps.clear()
    files.rename(f"{root}/a/y.json", f"{root}/b/y.json")
    assert [disk.steps[0], *sorted(disk.steps[1:])] == ["rename b/y.json", "sync a", "sync b"]
    disk.steps.clear()
    files.remove(f"{root}/b/y.json")
    files.remove_tree(f"{root}/c")
    files.make_dirs(f"{root}/d/e")
    assert disk.steps == ["sync b", "sync .", "sync d", "sync ."]


@pytest.mark.behaviour("AU-18")
def test_nobody_else_may_read_a_private_segment(root: str) -> None:
    files = system_runtime().files
    for name, private, mode in (("private", True, 0o600), ("shared", False, 0o644)):
        before = os.umask(0o022)
        try:
            files.open_segment(f"{root}/{name}", 100, create=True, private=private).close()
            files.append(f"{root}/{name}.log", b"x", private=private)
        finally:
            os.umask(before)
        for path in (f"{root}/{name}", f"{root}/{name}.log"):
            assert stat.S_IMODE(os.stat(path).st_mode) == mode
