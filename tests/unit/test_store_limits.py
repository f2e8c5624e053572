"""Messages too large for a record are refused on every way into the store, and the buffers that the store
enlarges.
"""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.store import MessageStore, NewMessage, RecordTooLongError, StoreClosedError, StoreConfig
from orbitmq.testing.machine.simulated import SimulatedRuntime

pytestmark = pytest.mark.usefixtures("orbitmq_loop")

LIMIT = 32_767


async def opened(runtime: SimulatedRuntime, **changes: Any) -> MessageStore:
    store = MessageStore(runtime, StoreConfig(root="/store", commit_log_file_bytes=1 << 20, **changes))
    await store.start()
    store.set_topic("orders", read_queues=1, write_queues=1, perm=6)
    return store


@pytest.mark.behaviour("MV-14")
async def test_longer_properties_than_a_record_can_hold_are_refused(runtime: SimulatedRuntime) -> None:
    store = await opened(runtime)
    fits = NewMessage("orders", 0, b"fits", b"p" * LIMIT)
    store.put(fits)
    end = store.end
    with pytest.raises(RecordTooLongError, match="properties of 32768 bytes, limit 32767 bytes"):
        store.put_many([NewMessage("orders", 0, b"short", b""), NewMessage("orders", 0, b"x", b"p" * 32_768)])
    assert store.end == end
    assert store.accepting
    store.put(fits)
    await store.stop()
    again = await opened(runtime)
    assert (again.end, again.max_offset("orders", 0)) == (2 * end, 2)
    await again.stop()


@pytest.mark.behaviour("DL-11")
async def test_the_buffer_grows_for_one_message_and_not_for_many(runtime: SimulatedRuntime) -> None:
    store = await opened(runtime, batch_bytes=50_000, largest_bytes=200_000)
    half = NewMessage("orders", 0, b"x" * 90_000, b"")
    with pytest.raises(StoreClosedError, match="larger than the store's limit of 50000 bytes"):
        store.put_many([half, half])
    with pytest.raises(StoreClosedError, match="larger than the store's limit of 50000 bytes"):
        store.put(NewMessage("orders", 0, b"x" * 200_000, b""))
    store.put(half)
    store.put(NewMessage("orders", 0, b"x" * 190_000, b""))
    store.write()
    assert store.max_offset("orders", 0) == 2
    await store.stop()
