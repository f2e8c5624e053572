"""Messages that are collected into one batch; ``make test`` runs this compiled and as plain Python."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq import Message
from orbitmq.client.model import SendResult, SendStatus
from orbitmq.client.producer.open_batch import (
    PLAIN_ITEM_BYTES,
    PLAIN_PROPERTIES,
    Item,
    OpenBatch,
    encode_plain,
    plain_body,
    share,
)
from orbitmq.message.batch import iter_batch
from orbitmq.message.ids import UniqueIds
from orbitmq.message.model import MessageQueue
from orbitmq.testing.machine.simulated import simulated_runtime

HEAD = "7F000001" + "5E4B63947C6B" + "00112233"


@pytest.mark.behaviour("BA-04")
@given(st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=40), st.integers(0, 1 << 20))
def test_bare_bodies_become_what_items_become(bodies: list[bytes], first: int) -> None:
    size = len(bodies) * PLAIN_ITEM_BYTES + sum(map(len, bodies))
    encoded, ids = encode_plain(bodies, size, HEAD, first)
    assert ids == [f"{HEAD}{(first + n) & 0xFFFF:04X}" for n in range(len(bodies))]
    items = [Item(body, 0, PLAIN_PROPERTIES, None) for body in bodies]
    assert encoded == b"".join(item.encoded(name) for item, name in zip(items, ids, strict=True))
    assert [item.body for item in iter_batch(encoded)] == bodies


def test_what_does_not_fit_its_size_is_refused_before_a_byte_is_written() -> None:
    for bodies, size in (([b"ab"], PLAIN_ITEM_BYTES + 1), ([b"ab"], PLAIN_ITEM_BYTES + 3), ([], 0)):
        with pytest.raises(ValueError, match=r"do not take|no message"):
            encode_plain(bodies, size, HEAD, 0)
    with pytest.raises(ValueError, match="ids of 31 characters"):
        encode_plain([b"a"], PLAIN_ITEM_BYTES + 1, HEAD[1:], 0)


def test_ids_of_a_series_are_nobody_elses() -> None:
    ids = UniqueIds(simulated_runtime(seed=3))
    head, first = ids.series(3)
    after = ids.next()
    assert len(head) == 28
    assert int(after[28:], 16) == (first + 3) & 0xFFFF


@pytest.mark.parametrize(
    "message",
    [
        Message("t", b"x", tags="a"),
        Message("t", b"x", flag=1),
        Message("t", b""),
        Message("t", bytearray(b"x")),  # type: ignore[arg-type]  # users do
        type("Own", (Message,), {})("t", b"x"),
    ],
)
def test_only_the_plainest_need_no_look(message: Message) -> None:
    assert plain_body(message) is None
    assert plain_body(Message("t", "x")) == b"x"


def test_a_batch_takes_what_fits_and_gives_each_its_own_result() -> None:
    loop = asyncio.new_event_loop()
    try:
        batch = OpenBatch(loop.create_future, 2 * PLAIN_ITEM_BYTES + 5, 2)
        one = batch.add_plain(Message("t", b"abc"))
        assert batch.add_plain(Message("t", b"abc")) is None
        assert not batch.full
        two = batch.add_plain(Message("t", b"de"))
        assert (batch.plain, batch.full, batch.items) == (True, True, [b"abc", b"de"])
        assert one is not None
        assert two is not None
        queue = MessageQueue("t", "broker-a", 1)
        one.cancel()
        share(SendResult(SendStatus.SEND_OK, "i,j", "p,q", queue, 7), batch.waiting, ["i", "j"])
        assert two.result() == SendResult(SendStatus.SEND_OK, "j", "q", queue, 8)
        batch.put(Item(b"x", 0, b"", None), PLAIN_ITEM_BYTES)
        assert not batch.plain
    finally:
        loop.close()
