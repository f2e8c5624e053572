"""Transactions and recalls of gRPC clients."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config, records
from tests.conversation.grpc_rpc import RpcClient, Stream, message

from orbitmq.broker.broker import Broker
from orbitmq.gateway import schema
from orbitmq.gateway.attach import attach as gateway
from orbitmq.gateway.messages import milliseconds, timestamp
from orbitmq.gateway.schema import ClientType, MessageType, TransactionResolution
from orbitmq.gateway.status import Code
from orbitmq.gateway.transaction_id import TransactionId
from orbitmq.testing.machine.simulated import SimulatedRuntime, run, simulated_runtime
from orbitmq.wire.codes import RequestCode

COMMIT, ROLLBACK = TransactionResolution.COMMIT, TransactionResolution.ROLLBACK


async def bodies(rpc: RpcClient) -> list[bytes]:
    """The bodies that consumers get at this moment."""
    found = []
    while received := (await rpc.receive()).bodies:
        found += received
    return found


async def asked(stream: Stream, timeout_s: float = 30) -> schema.RecoverOrphanedTransactionCommand:
    """The next check of a transaction."""
    command = await stream.next(timeout_s)
    assert command.HasField("recover_orphaned_transaction_command"), command
    return command.recover_orphaned_transaction_command


async def not_asked(stream: Stream, for_s: float) -> None:
    with pytest.raises(TimeoutError):
        await stream.next(for_s)


# -- ending --------------------------------------------------------------------------------------------


@pytest.mark.behaviour("GW-31")
async def test_consumers_get_what_is_committed(grpc_broker: Broker, rpc: RpcClient) -> None:
    await rpc.route()
    await bodies(rpc)
    first = await rpc.begin(b"committed", tag="a", keys=["k"], message_group="g")
    second = await rpc.begin(b"rolled back")
    assert await bodies(rpc) == []
    assert (await rpc.end(second, ROLLBACK)).status.code == Code.OK
    assert (await rpc.end(first)).status.code == Code.OK
    (got,) = (await rpc.receive()).messages
    system = got.system_properties
    assert (got.body, system.tag, list(system.keys), system.message_group) == (b"committed", "a", ["k"], "g")
    assert system.message_type == MessageType.TRANSACTION
    assert dict(got.user_properties) == {}
    assert await bodies(rpc) == []


@pytest.mark.behaviour("GW-31")
async def test_a_transaction_ends_at_another_client_and_by_another_connection(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    half = await rpc.begin()
    async with RpcClient(grpc_broker.runtime, client_id="other") as other:
        assert (await other.end(half)).status.code == Code.OK
    assert await bodies(rpc) == [b"paid"]


@pytest.mark.behaviour("GW-31")
@pytest.mark.parametrize("recovery_ms", [None, 20_000])
async def test_a_late_commit_counts(grpc_broker: Broker, rpc: RpcClient, recovery_ms: int | None) -> None:
    """It counts long after the recovery time that the producer chose, and after a check, too."""
    stream = await rpc.start(ClientType.PRODUCER)
    half = await rpc.begin(recovery_ms=recovery_ms)
    for _ in range(10):
        await asyncio.sleep(20)
        await rpc.heartbeat(ClientType.PRODUCER)
    await asked(stream)
    assert (await rpc.end(half)).status.code == Code.OK
    assert await bodies(rpc) == [b"paid"]


def in_two_lives(
    first: Callable[[Broker, RpcClient], Awaitable[list[schema.SendResultEntry]]],
    second: Callable[[Broker, RpcClient, list[schema.SendResultEntry]], Awaitable[None]],
) -> None:
    async def main() -> None:
        runtime: SimulatedRuntime = simulated_runtime()
        async with (
            Broker(runtime, broker_config(), extensions=[gateway]) as broker,
            RpcClient(broker.runtime) as rpc,
        ):
            halves = await first(broker, rpc)
        async with (
            Broker(runtime, broker_config(), extensions=[gateway]) as broker,
            RpcClient(broker.runtime) as rpc,
        ):
            await second(broker, rpc, halves)

    run(main())


@pytest.mark.behaviour("GW-31")
@pytest.mark.behaviour("GW-32")
def test_a_commit_counts_after_a_restart_of_the_broker() -> None:
    async def first(_broker: Broker, rpc: RpcClient) -> list[schema.SendResultEntry]:
        await rpc.route()
        await bodies(rpc)
        halves = [await rpc.begin(b"%d" % number) for number in range(3)]
        assert (await rpc.end(halves[0])).status.code == Code.OK
        return halves

    async def second(_broker: Broker, rpc: RpcClient, halves: list[schema.SendResultEntry]) -> None:
        assert (await rpc.end(halves[1])).status.code == Code.OK
        assert (await rpc.end(halves[2], ROLLBACK)).status.code == Code.OK
        assert sorted(await bodies(rpc)) == [b"0", b"1"]

    in_two_lives(first, second)


@pytest.mark.behaviour("GW-31")
async def test_without_a_resolution_a_transaction_stays_open(grpc_broker: Broker, rpc: RpcClient) -> None:
    half = await rpc.begin()
    answer = await rpc.end(half, TransactionResolution.UNSPECIFIED)
    assert answer.status.code == Code.OK
    assert "stays open" in answer.status.message
    assert (await rpc.end(half, 7)).status.code == Code.BAD_REQUEST
    assert (await rpc.end(half)).status.code == Code.OK
    assert await bodies(rpc) == [b"paid"]


# -- invalid transactions ------------------------------------------------------------------------------


@pytest.mark.behaviour("GW-32")
@pytest.mark.parametrize("again", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
async def test_a_transaction_ends_once(
    grpc_broker: Broker, rpc: RpcClient, first: TransactionResolution, again: TransactionResolution
) -> None:
    half = await rpc.begin()
    assert (await rpc.end(half, first)).status.code == Code.OK
    answer = await rpc.end(half, again)
    assert answer.status.code == Code.INVALID_TRANSACTION_ID
    assert "has ended already" in answer.status.message
    assert await bodies(rpc) == ([b"paid"] if first == COMMIT else [])


def changed(half: schema.SendResultEntry, position: int, word: str) -> str:
    """A transaction id with one word replaced."""
    words = base64.urlsafe_b64decode(half.transaction_id).decode().split(" ")
    words[position] = word
    return base64.urlsafe_b64encode(" ".join(words).encode()).decode()


@pytest.mark.behaviour("GW-32")
async def test_an_id_that_is_forged_foreign_or_of_another_message_ends_nothing(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    half = await rpc.begin(b"mine", id="id-1")
    other = await rpc.begin(b"other", id="id-2")
    await rpc.begin(b"elsewhere", id="id-3", topic="T2")
    words = base64.urlsafe_b64decode(half.transaction_id).decode().split(" ")
    bad = {
        "": "is none",
        "nonsense": "is none",
        "é": "is none",
        half.message_id: "is none",
        half.transaction_id[:-8]: "is none",
        half.transaction_id * 100: "characters, limit 1024",
        changed(half, 0, "v2"): "is none",
        changed(half, 1, "broker-b"): "of broker broker-b, this is broker broker-a",
        changed(half, 2, "T2"): "group",
        changed(half, 3, "77"): "offset",
        changed(half, 3, "-1"): "is none",
        changed(half, 4, str(int(words[4]) + 1)): "commitLogOffset",
        changed(half, 4, str(2**62)): "commitLogOffset",
        other.transaction_id: "message id 'id-1'",
    }
    for text, why in bad.items():
        answer = await rpc.end(half, transaction_id=text)
        assert answer.status.code == Code.INVALID_TRANSACTION_ID, text
        assert answer.status.message.startswith("transaction_id: "), answer.status.message
        assert why in answer.status.message, answer.status.message
    assert (await rpc.end(half, topic="T2")).status.code == Code.INVALID_TRANSACTION_ID
    assert (await rpc.end(half, topic="a b")).status.code == Code.ILLEGAL_TOPIC
    assert (await rpc.end(half, message_id="")).status.code == Code.ILLEGAL_MESSAGE_ID
    assert await bodies(rpc) == []
    assert (await rpc.end(half)).status.code == Code.OK
    assert await bodies(rpc) == [b"mine"]


@pytest.mark.behaviour("GW-32")
async def test_an_id_of_a_message_that_is_no_half_message_ends_nothing(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    half = await rpc.begin()
    sent = (await rpc.send(message(b"plain", id="id-9"))).entries[0]
    assert sent.transaction_id == ""
    async with BrokerPeer(grpc_broker.runtime) as peer:
        pulled = [await peer.pull(topic="T", queue_id=queue_id) for queue_id in range(8)]
    (stored,) = [record for answer in pulled if answer.body for record in records(answer)]
    forged = TransactionId("broker-a", "T", stored.queue_offset, stored.physical_offset)
    answer = await rpc.end(half, transaction_id=forged.encode(), message_id="id-9")
    assert answer.status.code == Code.INVALID_TRANSACTION_ID


@pytest.mark.behaviour("GW-32")
async def test_transactional_messages_of_two_topics_are_refused(grpc_broker: Broker, rpc: RpcClient) -> None:
    half = message(message_type=MessageType.TRANSACTION)
    answer = await rpc.send(half, message(topic="T2", message_type=MessageType.TRANSACTION))
    assert answer.status.code == Code.MESSAGE_CORRUPTED
    assert "2 topics, limit 1: T, T2" in answer.status.message
    assert (await rpc.send(half, message(topic="T2"))).status.code == Code.MESSAGE_CORRUPTED
    answer = await rpc.send(half, message(b"again", message_type=MessageType.TRANSACTION))
    assert answer.status.code == Code.OK
    assert len({entry.transaction_id for entry in answer.entries}) == 2


@pytest.mark.behaviour("GW-32")
@pytest.mark.parametrize("late", [COMMIT, ROLLBACK])
async def test_a_commit_into_a_topic_that_was_deleted_says_so_and_is_possible_later(
    grpc_broker: Broker, rpc: RpcClient, late: TransactionResolution
) -> None:
    half = await rpc.begin(b"kept", topic="gone")
    async with BrokerPeer(grpc_broker.runtime) as peer:
        await peer.ok(RequestCode.DELETE_TOPIC_IN_BROKER, topic="gone")
    answer = await rpc.end(half, topic="gone")
    assert answer.status.code == Code.TOPIC_NOT_FOUND
    assert "orbitmq topic create gone" in answer.status.message
    if late == COMMIT:
        await rpc.route("gone")
    assert (await rpc.end(half, late, topic="gone")).status.code == Code.OK
    if late == COMMIT:
        assert (await rpc.receive("gone")).bodies == [b"kept"]


@pytest.mark.behaviour("GW-32")
async def test_of_ends_that_come_at_once_one_counts(grpc_broker: Broker, rpc: RpcClient) -> None:
    half = await rpc.begin()
    async with RpcClient(grpc_broker.runtime, client_id="client-2") as other:
        answers = await asyncio.gather(
            rpc.end(half), other.end(half, ROLLBACK), rpc.end(half, ROLLBACK), other.end(half)
        )
    codes = sorted(answer.status.code for answer in answers)
    assert codes == [Code.OK, *[Code.INVALID_TRANSACTION_ID] * 3]


@pytest.mark.broker(reject_transaction_message=True)
async def test_a_broker_that_takes_no_transactions_says_so(grpc_broker: Broker, rpc: RpcClient) -> None:
    answer = await rpc.send(message(message_type=MessageType.TRANSACTION))
    assert answer.status.code == Code.FORBIDDEN


@pytest.mark.behaviour("GW-10")
async def test_a_half_message_whose_properties_are_too_long_is_told_so(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    """The names of the properties that the half message gets in addition are not part of the earlier
    check.
    """
    half = message(message_type=MessageType.TRANSACTION, id="i" * 15_000)
    answer = await rpc.send(half, message(message_type=MessageType.TRANSACTION, id="i" * 16_300))
    assert [entry.status.code for entry in answer.entries] == [
        Code.OK,
        Code.MESSAGE_PROPERTIES_TOO_LARGE,
    ]
    assert "properties of" in answer.entries[1].status.message


# -- check-backs ---------------------------------------------------------------------------------------


@pytest.mark.behaviour("GW-33")
async def test_the_producer_is_asked_how_a_transaction_ends(grpc_broker: Broker, rpc: RpcClient) -> None:
    stream = await rpc.start(ClientType.PRODUCER)
    half = await rpc.begin(b"paid", tag="a", properties={"colour": "red"})
    await not_asked(stream, 4)
    command = await asked(stream)
    got = command.message
    assert (got.topic.name, got.body, dict(got.user_properties)) == ("T", b"paid", {"colour": "red"})
    system = got.system_properties
    assert (system.message_id, system.tag, system.message_type) == (half.message_id, "a", 4)
    assert not system.HasField("receipt_handle")
    answer = await rpc.end(half, transaction_id=command.transaction_id)
    assert answer.status.code == Code.OK
    assert await bodies(rpc) == [b"paid"]
    await not_asked(stream, 38)


@pytest.mark.behaviour("GW-33")
@pytest.mark.parametrize(("recovery_ms", "least", "most"), [(0, 0, 3), (15_000, 14, 18), (None, 5, 9)])
async def test_the_first_question_comes_when_the_client_has_said(
    grpc_broker: Broker, rpc: RpcClient, recovery_ms: int | None, least: float, most: float
) -> None:
    stream = await rpc.start(ClientType.PRODUCER)
    loop = asyncio.get_running_loop()
    now = timestamp(grpc_broker.runtime.clock.now_ms())
    await rpc.begin(recovery_ms=recovery_ms, born_timestamp=now)
    began = loop.time()
    command = await asked(stream)
    assert least <= loop.time() - began <= most
    if recovery_ms is not None:
        recovery = command.message.system_properties.orphaned_transaction_recovery_duration
        assert milliseconds(recovery) == recovery_ms


@pytest.mark.behaviour("GW-33")
async def test_any_living_producer_of_the_topic_is_asked(grpc_broker: Broker, rpc: RpcClient) -> None:
    """The checked producer has not said goodbye, has an open stream and sends to the topic."""
    runtime = grpc_broker.runtime
    async with (
        RpcClient(runtime, client_id="cut") as cut,
        RpcClient(runtime, client_id="gone") as gone,
        RpcClient(runtime, client_id="consumer") as consumer,
        RpcClient(runtime, client_id="elsewhere") as elsewhere,
    ):
        lost = await cut.start(ClientType.PRODUCER)
        half = await cut.begin()
        await gone.start(ClientType.PRODUCER)
        await gone.goodbye()
        others = [await consumer.start(ClientType.PUSH_CONSUMER)]
        stream = elsewhere.telemetry()
        await stream.send(elsewhere.settings(ClientType.PRODUCER, ["T2"]))
        await stream.next()
        others.append(stream)
        lost.reset()
        alive = await rpc.start(ClientType.PRODUCER)
        await cut.heartbeat(ClientType.PRODUCER)
        command = await asked(alive)
        assert command.message.system_properties.message_id == half.message_id
        assert (await rpc.end(half, ROLLBACK, transaction_id=command.transaction_id)).status.code == Code.OK
        for each in others:
            await not_asked(each, 1)


@pytest.mark.behaviour("GW-33")
async def test_a_producer_that_comes_back_is_asked_on_its_new_stream(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    first = await rpc.start(ClientType.PRODUCER)
    await rpc.begin()
    # The broker does not know yet that the first stream is dead.
    second = await rpc.start(ClientType.PRODUCER)
    await asked(second)
    await not_asked(first, 1)


@pytest.mark.behaviour("GW-33")
async def test_a_producer_is_asked_about_topics_that_its_settings_do_not_name(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    stream = await rpc.start(ClientType.PRODUCER)
    half = await rpc.begin(topic="named-later")
    command = await asked(stream)
    assert command.message.topic.name == "named-later"
    answer = await rpc.end(half, topic="named-later", transaction_id=command.transaction_id)
    assert answer.status.code == Code.OK


@pytest.mark.behaviour("GW-14")
@pytest.mark.behaviour("GW-33")
async def test_a_producer_that_does_not_read_its_stream_holds_up_no_question_to_others(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    async with RpcClient(grpc_broker.runtime, client_id="deaf", reads=False) as deaf:
        await deaf.start(ClientType.PRODUCER)
        stream = await rpc.start(ClientType.PRODUCER)
        halves = [await rpc.begin(bytes(40_000), id=f"id-{number}", recovery_ms=0) for number in range(8)]
        left = {half.message_id: half for half in halves}
        # Every second check goes to the other producer; an unanswered check is repeated.
        while left:
            await rpc.heartbeat(ClientType.PRODUCER)
            command = await asked(stream, 39)
            half = left.pop(command.message.system_properties.message_id)
            assert (await rpc.end(half, ROLLBACK)).status.code == Code.OK


@pytest.mark.behaviour("GW-32")
@pytest.mark.broker(transaction_check_max=2)
async def test_a_transaction_that_was_given_up_cannot_be_ended(grpc_broker: Broker, rpc: RpcClient) -> None:
    stream = await rpc.start(ClientType.PRODUCER)
    half = await rpc.begin()
    for _ in range(2):
        await asked(stream, 39)
        await rpc.heartbeat(ClientType.PRODUCER)
    await not_asked(stream, 39)
    answer = await rpc.end(half)
    assert answer.status.code == Code.INVALID_TRANSACTION_ID
    assert await bodies(rpc) == []


# -- recalls -------------------------------------------------------------------------------------------

RECALL = pytest.mark.broker(recall_message_enable=True)


def later(broker: Broker, delay_ms: int = 30_000) -> dict[str, Any]:
    return {"delivery_timestamp": timestamp(broker.runtime.clock.now_ms() + delay_ms)}


@RECALL
@pytest.mark.behaviour("GW-38")
async def test_a_recalled_message_does_not_come(grpc_broker: Broker, rpc: RpcClient) -> None:
    answer = await rpc.send(
        message(b"recalled", id="id-1", **later(grpc_broker)),
        message(b"kept", id="id-2", **later(grpc_broker)),
    )
    assert answer.status.code == Code.OK
    handle = answer.entries[0].recall_handle
    recalled = await rpc.recall(handle)
    assert (recalled.status.code, recalled.message_id) == (Code.OK, "id-1")
    again = await rpc.recall(handle)
    assert again.status.code == Code.BAD_REQUEST
    assert "recalled already" in again.status.message
    await asyncio.sleep(35)
    assert await bodies(rpc) == [b"kept"]
    delivered = await rpc.recall(answer.entries[1].recall_handle)
    assert delivered.status.code == Code.BAD_REQUEST
    assert "was delivered" in delivered.status.message


@RECALL
@pytest.mark.behaviour("GW-38")
async def test_a_handle_that_is_broken_or_foreign_recalls_nothing(
    grpc_broker: Broker, rpc: RpcClient
) -> None:
    answer = await rpc.send(message(b"kept", id="id-1", **later(grpc_broker)))
    handle = answer.entries[0].recall_handle
    words = base64.urlsafe_b64decode(handle).decode().split(" ")

    def forged(position: int, word: str) -> str:
        return base64.urlsafe_b64encode(
            " ".join([*words[:position], word, *words[position + 1 :]]).encode()
        ).decode()

    bad = {
        "": "recall_handle is empty",
        "x" * 70_000: "70000 characters, limit 65536",
        "nonsense!": "not Base64",
        handle[:-12]: "handle",
        forged(0, "v9"): "version 'v9'",
        forged(1, "T2"): "of topic 'T2'",
        forged(2, "broker-b"): "broker-b",
        forged(3, "soon"): "timestamp",
        forged(4, "id-7"): "no message id-7",
    }
    for text, why in bad.items():
        refused = await rpc.recall(text)
        assert refused.status.code == Code.BAD_REQUEST, (text, refused)
        assert why in refused.status.message, refused.status.message
    assert (await rpc.recall(handle, topic="a b")).status.code == Code.ILLEGAL_TOPIC
    assert (await rpc.recall(handle, topic="unknown")).status.code == Code.TOPIC_NOT_FOUND
    await asyncio.sleep(35)
    assert await bodies(rpc) == [b"kept"]


@pytest.mark.behaviour("GW-38")
async def test_a_broker_that_does_not_allow_recalls_says_how_to(grpc_broker: Broker, rpc: RpcClient) -> None:
    answer = await rpc.send(message(**later(grpc_broker)))
    refused = await rpc.recall(answer.entries[0].recall_handle)
    assert refused.status.code == Code.FORBIDDEN
    assert "recallMessageEnable is false" in refused.status.message
