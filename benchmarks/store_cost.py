"""The costs of a store apart from sends: a start after a kill, many topics, a follower's copy of a record.

``python -m benchmarks.store_cost recover --records 2400000`` writes a log, loses the checkpoint's newest part
as with kill -9, and times the next start. ``python -m benchmarks.store_cost topics --topics 2000`` puts a
message into each queue of that many topics and times first messages, clean start and start after a kill.
``python -m benchmarks.store_cost follow --records 400000 --body 128`` feeds a second store with pieces of the
first store's log, like a follower, and prints the CPU time per record: written to the log, checked, and
dispatched to its queue. Each prints one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable

from orbitmq.message.properties import encode_properties
from orbitmq.runtime.system import system_runtime
from orbitmq.store import MessageStore, NewMessage, StoreConfig

QUEUES = 8
# The size of a follower's reads from its link under load.
PIECE_BYTES = 128 * 1024


async def _opened(config: StoreConfig) -> tuple[MessageStore, float]:
    store = MessageStore(system_runtime(), config)
    begin = time.perf_counter()
    await store.start()
    return store, time.perf_counter() - begin


def _set_topics(store: MessageStore, count: int) -> float:
    begin = time.perf_counter()
    for number in range(count):
        store.set_topic(f"topic-{number}", read_queues=QUEUES, write_queues=QUEUES, perm=6)
    return time.perf_counter() - begin


def _killed(work: Callable[[], None]) -> None:
    """Run ``work`` in a separate process that ends without cleaning up."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _fill(store: MessageStore, records: int, body_bytes: int) -> None:
    """Store messages in the form of clients' sends, in turn to all queues of two topics."""
    properties = encode_properties(
        {"UNIQ_KEY": "AC1100011D7A18B4AAC2870D5EC40000", "TAGS": "TagA", "KEYS": "k1"}
    )
    body = b"x" * body_bytes
    for number in range(records):
        store.put(NewMessage(f"topic-{number & 1}", number % QUEUES, body, properties, tags_code=1))
    store.write()


def recover(root: str, records: int, body_bytes: int) -> dict[str, object]:
    """Measure the rate, in records per second, of dispatching the log to the consume queues after a kill."""
    config = StoreConfig(root=root, sync_flush=False, index=False, checkpoint_interval_ms=3_600_000)

    async def write() -> None:
        store, _ = await _opened(config)
        _set_topics(store, 2)
        _fill(store, records, body_bytes)

    _killed(lambda: asyncio.run(write()))

    async def start() -> dict[str, object]:
        store, seconds = await _opened(config)
        _set_topics(store, 2)
        found = store.recovered
        assert found is not None
        assert found.records == records, found
        await store.stop()
        return {"records": records, "start_s": round(seconds, 3), "records_per_s": round(records / seconds)}

    return asyncio.run(start())


def topics(root: str, count: int) -> dict[str, object]:
    """Measure first messages, memory, and starts with ``count`` topics of 8 queues with a message each."""
    config = StoreConfig(root=root, sync_flush=False, index=False)
    result: dict[str, object] = {"topics": count}

    async def fill() -> None:
        store, _ = await _opened(config)
        result["set_topics_s"] = round(_set_topics(store, count), 3)
        begin = time.perf_counter()
        for number in range(count):
            for queue_id in range(QUEUES):
                store.put(NewMessage(f"topic-{number}", queue_id, b"x", b""))
            if number % 16 == 0:
                await asyncio.sleep(0)
        result["first_messages_per_s"] = round(count * QUEUES / (time.perf_counter() - begin))
        begin = time.perf_counter()
        await store.stop()
        result["stop_s"] = round(time.perf_counter() - begin, 3)

    async def reopen(*, stop: bool) -> float:
        store, seconds = await _opened(config)
        seconds += _set_topics(store, count)
        assert store.get(f"topic-{count - 1}", 0, 0, 1).count == 1
        if stop:
            await store.stop()
        return seconds

    asyncio.run(fill())
    result["clean_start_s"] = round(asyncio.run(reopen(stop=True)), 3)
    _killed(lambda: print(end=str(asyncio.run(reopen(stop=False)))[:0]))
    result["start_after_kill_s"] = round(asyncio.run(reopen(stop=True)), 3)
    result["max_memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return result


def follow(root: str, records: int, body_bytes: int) -> dict[str, object]:
    """Measure the CPU time of a follower's store for each record of its master's log."""

    async def opened(name: str) -> MessageStore:
        store, _ = await _opened(StoreConfig(root=f"{root}/{name}", sync_flush=False, index=False))
        _set_topics(store, 2)
        return store

    async def copy() -> dict[str, object]:
        master = await opened("master")
        _fill(master, records, body_bytes)
        pieces, at = [], 0
        while piece := master.raw.data(at, PIECE_BYTES):
            pieces.append((at, piece))
            at += len(piece)
        await master.stop()
        follower = await opened("follower")
        before = resource.getrusage(resource.RUSAGE_SELF)
        for offset, piece in pieces:
            follower.append_raw(offset, piece)
        after = resource.getrusage(resource.RUSAGE_SELF)
        copied = sum(follower.max_offset(f"topic-{n}", queue) for n in range(2) for queue in range(QUEUES))
        assert copied == records, copied
        await follower.stop()
        return {
            "records": records,
            "body_bytes": body_bytes,
            "us_a_record": round((after.ru_utime - before.ru_utime) / records * 1e6, 3),
            # The kernel's time for new pages of the log's files.
            "kernel_us_a_record": round((after.ru_stime - before.ru_stime) / records * 1e6, 3),
        }

    return asyncio.run(copy())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("recover", "topics", "follow"))
    parser.add_argument("--records", type=int, default=2_400_000)
    parser.add_argument("--body", type=int, default=100)
    parser.add_argument("--topics", type=int, default=2000)
    parser.add_argument("--folder", help="where the store is made; a temporary folder when not given")
    args = parser.parse_args()
    root = tempfile.mkdtemp(prefix="orbitmq-store-", dir=args.folder)
    try:
        if args.what == "topics":
            result = topics(root, args.topics)
        else:
            measured = recover if args.what == "recover" else follow
            result = measured(root, args.records, args.body)
        print(json.dumps(result))
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
