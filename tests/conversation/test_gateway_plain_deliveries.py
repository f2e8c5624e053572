"""Plain deliveries: a message gives the same response by the plain and by the ordinary way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.grpc_rpc import RpcClient, all_of, message

from orbitmq.broker.broker import Broker
from orbitmq.broker.pop.requests import Popped
from orbitmq.gateway import schema
from orbitmq.gateway.framing import prefixed
from orbitmq.gateway.messages import timestamp
from orbitmq.gateway.receives import Receives
from orbitmq.gateway.schema import MessageType

BORN = timestamp(1_700_000_000_123)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of messages that each pop delivered the plain way; 0 for the ordinary way."""
    found: list[int] = []
    responses = Receives._responses

    def noted(self: Receives, asked: Any, popped: Popped) -> list[bytes] | None:
        made = responses(self, asked, popped)
        if popped.count:
            found.append(len(made or ()))
        return made

    monkeypatch.setattr(Receives, "_responses", noted)
    return found


async def both(
    rpc: RpcClient, monkeypatch: pytest.MonkeyPatch, count: int, **values: Any
) -> tuple[list[schema.Message], list[schema.Message]]:
    """The messages that two groups receive, one the plain way and the other the ordinary one."""
    mine = await all_of(rpc, count, **values)
    with monkeypatch.context() as patch:
        patch.setattr(Receives, "_responses", lambda *_: None)
        rpc.group = "other"
        theirs = await all_of(rpc, count, **values)
    rpc.group = "cg"
    order = lambda each: (each.system_properties.queue_id, each.system_properties.queue_offset)  # noqa: E731
    return sorted(mine, key=order), sorted(theirs, key=order)


def check_equal(mine: list[schema.Message], theirs: list[schema.Message]) -> None:
    """Compare the messages, except the pop time in their handles."""
    assert len(mine) == len(theirs)
    for one, other in zip(mine, theirs, strict=True):
        words = [each.system_properties.receipt_handle.split(" ") for each in (one, other)]
        assert words[0][0] == words[1][0]
        assert words[0][4:] == words[1][4:]
        other.system_properties.receipt_handle = one.system_properties.receipt_handle
        assert one == other
        assert one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True)


PLAIN: dict[str, dict[str, Any]] = {
    "as it is": {},
    "with an empty time": {"born_timestamp": timestamp(1000)},
    "with times below a second": {"born_timestamp": timestamp(999)},
    "with a tag and keys": {"tag": "t", "keys": ["k1", "k-2"]},
    "with properties": {"properties": {"a": "1", "b": "x y", "long": "v" * 300}},
    "with a trace": {"trace_context": "00-abc"},
    "with a large body": {"body": b"x" * 100_000},
    "with a body of zeros": {"body": bytes(100)},
    "with a long id": {"id": "i" * 200},
}
ORDINARY: dict[str, dict[str, Any]] = {
    "of a group": {"message_group": "g", "message_type": MessageType.FIFO},
    "with a tag beyond ASCII": {"tag": "\u00fc"},
    "with a property beyond ASCII": {"properties": {"a": "\u00fc"}},
    "with many properties": {"properties": {f"p{number}": "v" for number in range(17)}},
    "with long properties": {"properties": {"a": "v" * 5000}},
}


@pytest.mark.behaviour("GW-57")
@pytest.mark.parametrize("name", [*PLAIN, *ORDINARY])
async def test_both_ways_give_the_same_message(
    grpc_broker: Broker,
    rpc: RpcClient,
    plain: list[int],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    async with BrokerPeer(grpc_broker.runtime) as peer:
        await peer.create("T", readQueueNums=2, writeQueueNums=2, attributes="+message.type=MIXED")
    for group in ("cg", "other"):
        rpc.group = group
        await rpc.receive()
    rpc.group = "cg"
    values = {"body": b"hello", "born_timestamp": BORN} | (PLAIN | ORDINARY)[name]
    for _ in range(4):
        await rpc.send(message(**values))
    check_equal(*await both(rpc, monkeypatch, 4))
    assert sum(plain) == (4 if name in PLAIN else 0)


@pytest.mark.behaviour("GW-57")
async def test_a_redelivered_message_takes_the_ordinary_way(
    grpc_broker: Broker, rpc: RpcClient, plain: list[int]
) -> None:
    await rpc.sent(b"again")
    await all_of(rpc, 1, invisible_ms=10_000)
    assert plain == [1]
    (again,) = await all_of(rpc, 1)
    assert again.system_properties.delivery_attempt == 2
    assert plain == [1, 0]


@pytest.mark.behaviour("GW-57")
async def test_another_tag_with_the_same_hash_is_not_delivered(
    grpc_broker: Broker, rpc: RpcClient, plain: list[int]
) -> None:
    await rpc.receive()
    await rpc.sent(b"wrong", tag="BB")
    await rpc.sent(b"right", tag="Aa")
    found = await all_of(rpc, 1, expression="Aa")
    assert [each.body for each in found] == [b"right"]


@pytest.mark.behaviour("GW-57")
async def test_messages_that_cannot_be_written_come_again(
    grpc_broker: Broker, rpc: RpcClient, plain: list[int]
) -> None:
    await rpc.receive()
    for _ in range(2):
        await rpc.sent(*(bytes((number,)) * 100_000 for number in range(12)))
    async with RpcClient(grpc_broker.runtime, client_id="client-2", reads=False) as deaf:
        stream = deaf.grpc.open("ReceiveMessage", headers=deaf.headers)
        await deaf.grpc.send(stream, prefixed(deaf.receive_request().SerializeToString()), end=True)
        await asyncio.sleep(2)
        begun = plain.copy()
        deaf.grpc.h2.reset_stream(stream)
        deaf.grpc.flush()
        await asyncio.sleep(1)
    assert sum(begun) > 0
    # This is long before the end of their invisible time of 10 s.
    async with asyncio.timeout(5):
        await all_of(rpc, 24)
