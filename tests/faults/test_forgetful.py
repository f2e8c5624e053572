"""A forgetful disk keeps flushed data at a kill, and loses the rest."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.faults.forgetful import ForgetfulDisks, library

Forget = Callable[[str], None]

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the library needs a C compiler")

PROGRAM = """
import os, shutil, signal, sys
from orbitmq.runtime.system import SystemFiles, _sync_folder
files = SystemFiles()
{}
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def preload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library(tmp_path_factory.mktemp("library"))


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


@pytest.fixture
def after(tmp_path: Path, preload: Path, disk: Path) -> Forget:
    """Runs these lines with the disk as current folder, kills their process, and lets the disk forget."""

    def run(lines: str) -> None:
        disks = ForgetfulDisks(tmp_path / "notes")
        env = {**os.environ, "LD_PRELOAD": str(preload), **disks.environment("disk", disk)}
        command = [sys.executable, "-c", PROGRAM.format(lines)]
        ended = subprocess.run(command, env=env, cwd=disk, check=False, capture_output=True, text=True)
        assert ended.returncode == -9, ended.stderr
        disks.forget("disk")

    return run


def content(disk: Path) -> dict[str, bytes]:
    """Every file by its path."""
    files = (path for path in sorted(disk.rglob("*")) if path.is_file())
    return {str(path.relative_to(disk)): path.read_bytes() for path in files}


def test_writes_stay_up_to_the_last_flush_of_their_file(after: Forget, disk: Path) -> None:
    after(
        "log, other = (files.open_segment(name, 100, create=True) for name in ('log', 'other'))\n"
        "log.preallocate(100)\n"
        "log.pwrite(b'flushed', 0); log.sync(); log.pwrite(b'LOST', 3); other.pwrite(b'lost', 0)\n"
        "log.pwrite(b'lost', 50); other.pwrite(b'lost too', 2)\n"
        # The process itself sees all its writes.
        "assert bytes(log.view()[:7]) == b'fluLOST' and bytes(other.view()[:10]) == b'lolost too'"
    )
    assert content(disk) == {"log": b"flushed" + bytes(93), "other": b""}


def test_a_flush_is_of_one_file_and_of_what_was_written_before_it(after: Forget, disk: Path) -> None:
    after(
        "old, new = (files.open_segment(name, 8, create=True) for name in ('old', 'new'))\n"
        "old.pwrite(b'end', 0); new.pwrite(b'begins', 0); new.sync(); new.pwrite(b'?', 7)"
    )
    assert content(disk) == {"new": b"begins\0\0", "old": b""}


def test_a_file_is_cut_off_grown_and_appended_to_in_vain(after: Forget, disk: Path) -> None:
    (disk / "a").write_bytes(b"0123456789")
    (disk / "b").write_bytes(b"0123456789")
    (disk / "c").write_bytes(b"0123456789")
    after(
        "open('a', 'wb').write(b'new')\n"
        "os.truncate(os.open('b', os.O_RDWR), 4)\n"
        "with open('c', 'ab') as file: file.write(b'x' * 10)\n"
        "assert open('c', 'rb').read()[10:] == b'x' * 10"
    )
    assert content(disk) == dict.fromkeys("abc", b"0123456789")


@pytest.mark.parametrize(
    ("flushes", "kept"),
    [
        ("", {"x": b"old"}),
        ("os.fsync(file)", {"x": b"old"}),
        # A file with a name and no content, as write_atomic without its fsync leaves it.
        ("_sync_folder('.')", {"x": b""}),
        ("os.fsync(file); _sync_folder('.')", {"x": b"new"}),
        ("files.sync_all('.')", {"x": b"new"}),
    ],
)
def test_a_file_that_is_replaced(after: Forget, disk: Path, flushes: str, kept: dict[str, bytes]) -> None:
    (disk / "x").write_bytes(b"old")
    after(
        f"file = os.open('t', os.O_RDWR | os.O_CREAT); os.write(file, b'new'); os.rename('t', 'x'); {flushes}"
    )
    assert content(disk) == kept


def test_names_stay_up_to_the_flush_of_their_folder(after: Forget, disk: Path) -> None:
    for name in ("gone", "back"):
        (disk / name).write_bytes(b"1")
    (disk / "tree" / "below").mkdir(parents=True)
    (disk / "tree" / "below" / "file").write_bytes(b"3")
    after(
        "os.mkdir('made'); os.unlink('gone'); _sync_folder('.'); os.unlink('back')\n"
        "shutil.rmtree('tree'); os.mkdir('lost'); open('lost/file', 'w').write('4')\n"
        # A file in a folder that was flushed, but whose own name was not.
        "files.write_atomic('lost/table', b'5')"
    )
    assert content(disk) == {"back": b"1", "tree/below/file": b"3"}
    assert sorted(path.name for path in disk.iterdir()) == ["back", "made", "tree"]


def test_a_move_between_folders_is_flushed_by_both(after: Forget, disk: Path) -> None:
    for name in ("a", "b"):
        (disk / name).mkdir()
        (disk / "a" / name).write_bytes(name.encode())
    after("os.rename('a/a', 'b/a'); files.rename('a/b', 'b/b'); _sync_folder('b')")
    assert content(disk) == {"b/a": b"a", "b/b": b"b"}


def test_a_move_is_lost_as_a_whole(after: Forget, disk: Path) -> None:
    (disk / "a").mkdir()
    (disk / "b").mkdir()
    (disk / "a" / "x").write_bytes(b"x")
    after("os.rename('a/x', 'b/x'); _sync_folder('b')")
    assert content(disk) == {"a/x": b"x"}


def test_what_cannot_be_taken_back_ends_the_process(tmp_path: Path, preload: Path, disk: Path) -> None:
    disks = ForgetfulDisks(tmp_path / "notes")
    env = {**os.environ, "LD_PRELOAD": str(preload), **disks.environment("disk", disk)}
    program = (
        "import mmap; file = open('x', 'w+b'); file.write(b'1'); file.flush(); mmap.mmap(file.fileno(), 1)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], env=env, cwd=disk, check=False, capture_output=True, text=True
    )
    assert ended.returncode == 99
    assert "forgetful_disk: a writable map" in ended.stderr
