"""What a store's start costs: records recovered a second, and starts with many topics.

``python -m benchmarks.store_cost recover --records 2400000`` writes a log, forgets the checkpoint's newest
part as a kill -9 does, and times the next start. ``python -m benchmarks.store_cost topics --topics 2000``
puts a message into each queue of that many topics and times first messages, clean start and start after a
kill. One JSON line each.
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
    """Run ``work`` in a process of its own that ends without cleaning up."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def recover(root: str, records: int, body_bytes: int) -> dict[str, object]:
    """Records a second from the log into the consume queues, after a kill."""
    config = StoreConfig(root=root, sync_flush=False, index=False, checkpoint_interval_ms=3_600_000)
    properties = encode_properties(
        {"UNIQ_KEY": "AC1100011D7A18B4AAC2870D5EC40000", "TAGS": "TagA", "KEYS": "k1"}
    )

    async def write() -> None:
        store, _ = await _opened(config)
        _set_topics(store, 2)
        body = b"x" * body_bytes
        for number in range(records):
            store.put(NewMessage(f"topic-{number & 1}", number % QUEUES, body, properties, tags_code=1))
        store.write()

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
    """First messages, memory, and starts with ``count`` topics of 8 queues with a message each."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("recover", "topics"))
    parser.add_argument("--records", type=int, default=2_400_000)
    parser.add_argument("--body", type=int, default=100)
    parser.add_argument("--topics", type=int, default=2000)
    parser.add_argument("--folder", help="where the store is made; a temporary folder when not given")
    args = parser.parse_args()
    root = tempfile.mkdtemp(prefix="orbitmq-store-", dir=args.folder)
    try:
        result = (
            recover(root, args.records, args.body) if args.what == "recover" else topics(root, args.topics)
        )
        print(json.dumps(result))
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
