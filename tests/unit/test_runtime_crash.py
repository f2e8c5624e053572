"""Data that the disk in memory loses in a crash, and the failures that a test can inject."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.testing.machine.memory_files import WRITE_BACK_BYTES, Keep, MemoryFiles
from orbitmq.testing.machine.simulated import simulated_runtime


def new_files(seed: int = 0) -> MemoryFiles:
    return simulated_runtime(seed).files


def test_only_what_was_synced_is_left() -> None:
    files = new_files()
    segment = files.open_segment("/log/0", 1000, create=True)
    segment.pwrite(b"kept", 0)
    segment.sync()
    segment.pwrite(b"lost", 100)
    segment.pwrite(b"K", 0)
    files.crash()
    assert files.read_bytes("/log/0") == b"kept" + bytes(996)


def test_a_segment_of_before_the_crash_is_void() -> None:
    files = new_files()
    segment = files.open_segment("/log/0", 1000, create=True)
    files.lock("/lock")
    files.crash()
    with pytest.raises(OSError):
        segment.pwrite(b"from the dead", 0)
    files.lock("/lock")()


def test_a_crash_of_one_folder_leaves_the_others() -> None:
    files = new_files()
    one = files.open_segment("/a/log", 10, create=True)
    other = files.open_segment("/ab/log", 10, create=True)
    one.pwrite(b"1", 0)
    other.pwrite(b"2", 0)
    files.crash("/a")
    assert files.read_bytes("/a/log")[:1] == b"\0"
    other.sync()
    files.crash()
    assert files.read_bytes("/ab/log")[:1] == b"2"


def test_an_unsynced_replacement_falls_back_to_the_last_synced_one() -> None:
    files = new_files()
    files.write_atomic("/t.json", b"one")
    files.write_atomic("/t.json", b"two", sync=False)
    files.write_atomic("/t.json", b"three", sync=False)
    files.write_atomic("/new.json", b"new", sync=False)
    files.crash()
    assert files.read_bytes("/t.json") == b"one"
    assert not files.exists("/new.json")


def test_synced_replacement_and_folder_changes_survive() -> None:
    files = new_files()
    files.write_atomic("/t", b"one", sync=False)
    files.write_atomic("/t", b"two")
    files.rename("/t", "/u")
    files.open_segment("/empty", 5, create=True)
    files.crash()
    assert files.read_bytes("/u") == b"two"
    assert files.read_bytes("/empty") == bytes(5)
    assert not files.exists("/t")


@given(st.integers(0, 2**32), st.lists(st.binary(min_size=1, max_size=20), max_size=8), st.integers(0, 8))
def test_a_prefix_crash_leaves_a_torn_prefix(seed: int, writes: list[bytes], synced: int) -> None:
    files = new_files(seed)
    segment = files.open_segment("/log", 200, create=True)
    position = durable = 0
    for index, data in enumerate(writes):
        segment.pwrite(data, position)
        position += len(data)
        if index + 1 == synced:
            segment.sync()
            durable = position
    whole = b"".join(writes)
    files.crash(keep=Keep.PREFIX)
    left = files.read_bytes("/log")[: len(whole)]
    kept = next((at for at in range(len(whole)) if left[at] != whole[at]), len(whole))
    assert kept >= durable
    assert not any(left[at] for at in range(kept, len(whole)))


@given(st.integers(0, 2**32), st.lists(st.integers(1, 3000), min_size=1, max_size=12), st.integers(0, 12))
def test_any_crash_leaves_of_each_block_what_it_had_at_some_moment(
    seed: int, sizes: list[int], synced: int
) -> None:
    """A device never keeps a later write of a block without an earlier one."""
    files = new_files(seed)
    segment = files.open_segment("/log", 40_000, create=True)
    moments = [bytes(40_000)]
    durable = position = 0
    for number, size in enumerate(sizes, 1):
        segment.pwrite(bytes([number]) * size, position)
        position += size
        moments.append(files.read_bytes("/log").ljust(40_000, b"\0"))
        if number == synced:
            segment.sync()
            durable = number
    files.crash(keep=Keep.ANY)
    left = files.read_bytes("/log").ljust(40_000, b"\0")
    for at in range(0, 40_000, 512):
        assert left[at : at + 512] in {moment[at : at + 512] for moment in moments[durable:]}


def test_one_seed_one_crash() -> None:
    def content(seed: int) -> bytes:
        files = new_files(seed)
        segment = files.open_segment("/log", 64 * 4096, create=True)
        for index in range(64):
            segment.pwrite(b"x", index * 4096)
        files.crash(keep=Keep.ANY)
        return files.read_bytes("/log")

    assert content(1) == content(1)
    assert len({content(seed) for seed in range(10)}) > 5


def test_unsynced_bytes_beyond_the_limit_are_written_back() -> None:
    files = new_files()
    piece = 16 * 1024 * 1024
    segment = files.open_segment("/log", 6 * piece, create=True)
    for index in range(6):
        segment.pwrite(b"x" * piece, index * piece)
    files.crash()
    content = files.read_bytes("/log")
    assert content.count(b"x") == 6 * piece - WRITE_BACK_BYTES
    assert content[0:1] == b"x"


def test_a_failed_sync_is_final_for_its_bytes() -> None:
    files = new_files()
    segment = files.open_segment("/log", 10, create=True)
    segment.pwrite(b"a", 0)
    files.fail("sync")
    with pytest.raises(OSError) as caught:
        segment.sync()
    assert caught.value.errno == errno.EIO
    segment.sync()
    segment.pwrite(b"b", 1)
    segment.sync()
    assert bytes(segment.view()[:2]) == b"ab"
    files.crash()
    assert files.read_bytes("/log")[:2] == b"\0b"


def test_ordered_failures_skip_count_and_heal() -> None:
    files = new_files()
    segment = files.open_segment("/broker-a/log", 10, create=True)
    other = files.open_segment("/broker-b/log", 10, create=True)
    files.fail("pwrite", "broker-a", error=errno.ENOSPC, skip=1, times=2)
    segment.pwrite(b"1", 0)
    for _ in range(2):
        with pytest.raises(OSError) as caught:
            segment.pwrite(b"2", 1)
        assert caught.value.errno == errno.ENOSPC
        other.pwrite(b"2", 1)
    segment.pwrite(b"3", 2)
    assert bytes(segment.view()[:3]) == b"1\0" + b"3"
    files.fail("*", times=-1)
    for _ in range(3):
        with pytest.raises(OSError):
            files.read_bytes("/broker-a/log")
    files.heal()
    files.read_bytes("/broker-a/log")


def test_a_full_disk() -> None:
    files = new_files()
    files.capacity_bytes = 1000
    segment = files.open_segment("/log", 5000, create=True)
    segment.preallocate(600)
    segment.pwrite(b"x" * 600, 0)
    assert files.disk_used_ratio("/") == 0.6
    with pytest.raises(OSError) as caught:
        segment.pwrite(b"x" * 401, 600)
    assert caught.value.errno == errno.ENOSPC
    segment.pwrite(b"x" * 400, 600)
    with pytest.raises(OSError):
        files.write_atomic("/t", b"y")
    files.remove("/log")
    files.write_atomic("/t", b"y")
