"""A thread of its own syncs files to the device, in order, and reports each failure."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from orbitmq.runtime import system_runtime
from orbitmq.runtime.flush_thread import Done, FlushThread


@pytest.fixture
def thread() -> Iterator[FlushThread]:
    made = FlushThread()
    yield made
    made.close()


async def outcome(thread: FlushThread, *descriptors: int) -> OSError | None:
    told: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    thread.sync(descriptors, told.set_result)
    return await asyncio.wait_for(told, 10)


def test_a_file_that_exists_and_one_that_does_not(thread: FlushThread, tmp_path: Path) -> None:
    async def main() -> None:
        with (tmp_path / "file").open("wb") as file:
            file.write(b"content")
            file.flush()
            assert await outcome(thread, file.fileno()) is None
            assert await outcome(thread) is None
            reading, writing = os.pipe()
            try:
                # The failure of one file is that of the request, whatever files come before and after it.
                error = await outcome(thread, file.fileno(), writing, file.fileno())
                assert error is not None
                assert error.errno == errno.EINVAL
            finally:
                os.close(reading)
                os.close(writing)
            assert await outcome(thread, *[file.fileno()] * 200) is None

    asyncio.run(main())


def test_requests_end_in_their_order_and_one_bad_listener_harms_no_other(
    thread: FlushThread, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        ended: list[int] = []

        def bad(_error: OSError | None) -> None:
            raise ValueError("of the listener's own")

        with (tmp_path / "file").open("wb") as file:
            for number in range(50):
                thread.sync([file.fileno()], bad if number == 20 else lambda _, n=number: ended.append(n))
            while len(ended) < 49:
                await asyncio.sleep(0.01)
        assert ended == [number for number in range(50) if number != 20]

    asyncio.run(asyncio.wait_for(main(), 30))
    assert "what follows a flush failed" in caplog.text


def test_one_loop_after_the_other(thread: FlushThread, tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        for _ in range(3):
            assert asyncio.run(outcome(thread, file.fileno())) is None


def test_a_flush_of_several_files_brings_each_of_them_to_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush over the end of a log file covers the end of that file and the start of the next."""
    runtime, synced = system_runtime(), list[int]()

    def sync(self: FlushThread, descriptors: Sequence[int], done: Done) -> None:
        synced.extend(descriptors)
        forward(self, descriptors, done)

    forward = FlushThread.sync
    monkeypatch.setattr(FlushThread, "sync", sync)

    async def main() -> None:
        paths = [str(tmp_path / name) for name in ("0", "1", "2")]
        segments = [runtime.files.open_segment(path, 4096, create=True) for path in paths]
        told: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        runtime.threads.sync(segments, told.set_result)
        assert await told is None
        assert synced == [segment.descriptor for segment in segments]
        runtime.threads.close()
        for segment in segments:
            segment.close()

    asyncio.run(main())


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_failure_of_any_of_several_files_is_the_failure_of_the_flush(place: int, tmp_path: Path) -> None:
    runtime = system_runtime()

    async def main() -> None:
        segments = [
            runtime.files.open_segment(str(tmp_path / f"{number}"), 4096, create=True) for number in range(3)
        ]
        # A pipe cannot be synced; the segment's descriptor refers to it from here on.
        reading, writing = os.pipe()
        os.dup2(writing, segments[place].descriptor)
        told: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        runtime.threads.sync(segments, told.set_result)
        error = await told
        assert isinstance(error, OSError)
        assert error.errno == errno.EINVAL
        runtime.threads.close()
        for segment in segments:
            segment.close()
        os.close(reading)
        os.close(writing)

    asyncio.run(main())


def test_a_closed_segment_and_a_closed_pool_are_refused(tmp_path: Path) -> None:
    runtime = system_runtime()

    async def main() -> None:
        segment = runtime.files.open_segment(str(tmp_path / "segment"), 4096, create=True)
        told: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        runtime.threads.sync([segment], told.set_result)
        assert await told is None
        runtime.threads.close()
        with pytest.raises(RuntimeError, match="closed"):
            runtime.threads.sync([segment], told.set_result)
        segment.close()
        with pytest.raises(OSError, match="the segment is closed"):
            runtime.threads.sync([segment], told.set_result)

    asyncio.run(main())
