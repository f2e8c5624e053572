"""A broker that requires keys: clients with right and wrong keys, with and without rights."""

from __future__ import annotations

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.scripted import running as consuming
from tests.conversation.secured_broker import APP, NOBODY, ROOT, WRONG, Keys, admin, secured

from orbitmq import (
    Credentials,
    Message,
    NotPermittedError,
    ReceivedMessage,
    TransactionProducer,
    TransactionState,
)
from orbitmq.testing.world import World
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.bodies.auth import UserInfo
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.signing import Signer

__all__ = ["secured"]


@pytest.mark.behaviour("AU-13", "AZ-01")
async def test_every_kind_of_client_works_with_its_rights(secured: World) -> None:
    seen: list[bytes] = []
    asked: list[str] = []

    async def failing_once(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if message.reconsume_times == 0 and message.body == b"again":
            raise ValueError("once")

    async def check(message: ReceivedMessage) -> TransactionState:
        asked.append(message.topic)
        return TransactionState.COMMIT

    async with secured.producer(credentials=APP, trace=True) as producer:
        await producer.send(Message("orders", b"again"))
        await producer.send_batch([Message("orders", b"b1"), Message("orders", b"b2")])
        await producer.send_oneway(Message("orders", b"one-way"))
        async with consuming(
            secured.consumer("billing", credentials=APP, trace=True), failing_once, "orders"
        ):
            await secured.until(lambda: len(seen) >= 5, 200)
    async with TransactionProducer(
        "tx", check=check, name_servers=secured.name_server, runtime=secured.runtime, credentials=APP
    ) as transactions:
        async with transactions.transaction(Message("orders", b"tx")):
            pass
        async with transactions.transaction(Message("orders", b"open")) as transaction:
            transaction.leave_open()
        await secured.until(lambda: asked == ["orders"], 100)
        await secured.sleep(1)
    async with secured.pull_consumer("billing", credentials=APP) as pulling:
        pulling.subscribe("orders")
        assert await pulling.poll(timeout=30)
        await pulling.commit()
    async with secured.simple_consumer("billing", credentials=APP) as simple:
        simple.subscribe("orders")
        found = await simple.receive(wait=10)
        for message in found:
            await simple.ack(message)
    async with secured.reader("orders", credentials=APP) as reader:
        assert len([message async for message in reader]) == 6
    assert sorted(seen[:5]) == [b"again", b"again", b"b1", b"b2", b"one-way"]


@pytest.mark.behaviour("AU-13", "AU-15")
@pytest.mark.parametrize("credentials", [WRONG, NOBODY, None], ids=["wrong secret", "unknown", "none"])
async def test_others_are_refused_and_nothing_is_stored(
    secured: World, credentials: Credentials | None, caplog: pytest.LogCaptureFixture
) -> None:
    store = secured.brokers["broker-a"].services.store
    before = store.end
    text = "a client without credentials" if credentials is None else "or its secret key is wrong: check sig"
    async with secured.producer(credentials=credentials) as producer:
        with pytest.raises(NotPermittedError, match=text):
            await producer.send(Message("orders", b"x"))
        await producer.send_oneway(Message("orders", b"x"))
        await secured.sleep(1)
    async with secured.simple_consumer("billing", credentials=credentials) as simple:
        simple.subscribe("orders")
        with pytest.raises(NotPermittedError, match="POP_MESSAGE, topic orders, group billing"):
            await simple.receive(wait=1)
    assert store.end == before
    refused = [one.getMessage() for one in caplog.records if "is refused" in one.getMessage()]
    assert refused
    assert "app-secret" not in caplog.text


@pytest.mark.behaviour("AZ-01")
async def test_missing_rights_are_named(secured: World) -> None:
    async with admin(secured, ROOT) as client:
        await client.topics.create("invoices", queues=2)
    async with secured.producer(credentials=APP) as producer:
        with pytest.raises(
            NotPermittedError,
            match=r"topic invoices, group test_producer to 'app': User:app has no permission to access "
            r"Topic:invoices from 127.0.0.1, no matched policies.",
        ):
            await producer.send(Message("invoices", b"x"))
        await producer.send(Message("orders", b"x"))
    async with secured.simple_consumer("shipping", credentials=APP) as simple:
        simple.subscribe("orders")
        with pytest.raises(NotPermittedError, match=r"Group:shipping from 127\.0\.0\.1"):
            await simple.receive(wait=1)


@pytest.mark.behaviour("AU-13")
async def test_no_frame_passes_by_way_of_the_fast_path(secured: World) -> None:
    """Without required keys the fast path takes the same plain sends and pulls from any client."""
    peer = BrokerPeer(secured.runtime, secured.brokers["broker-a"].address)
    async with peer:
        for _ in range(3):
            answer = await peer.send(b"x", topic="orders")
            assert (answer.code, answer.remark) == (ResponseCode.NO_PERMISSION, "username cannot be null.")
            answer = await peer.pull(topic="orders")
            assert answer.code == ResponseCode.NO_PERMISSION


@pytest.mark.behaviour("AZ-06")
async def test_a_change_counts_from_the_next_request_on(secured: World) -> None:
    root, app = Keys(secured, ROOT), Keys(secured, APP)
    look = {"topic": "orders", "queueId": "0"}
    await app.ok(Code.GET_MAX_OFFSET, look)
    await root.allow("app", ("Topic:orders", "Pub"))
    assert (await app.ask(Code.GET_MAX_OFFSET, look)).code == ResponseCode.NO_PERMISSION
    await root.allow("app", ("Topic:*", "Get"))
    await app.ok(Code.GET_MAX_OFFSET, look)
    await root.ok(Code.AUTH_DELETE_ACL, {"subject": "User:app", "policyType": "", "resource": "Topic:*"})
    assert (await app.ask(Code.GET_MAX_OFFSET, look)).code == ResponseCode.NO_PERMISSION
    await root.allow("app", ("*", "All"))
    await app.ok(Code.GET_MAX_OFFSET, look)
    await root.ok(Code.AUTH_UPDATE_USER, {"username": "app"}, UserInfo(user_status="disable").encode())
    assert (await app.ask(Code.GET_MAX_OFFSET, look)).remark == "User:app is disabled."
    await root.ok(Code.AUTH_UPDATE_USER, {"username": "app"}, UserInfo(user_status="enable").encode())
    await app.ok(Code.GET_MAX_OFFSET, look)
    await root.ok(Code.AUTH_UPDATE_USER, {"username": "app"}, UserInfo(password="app-secret-2").encode())
    assert (await app.ask(Code.GET_MAX_OFFSET, look)).remark == "check signature failed."
    await root.ok(Code.AUTH_DELETE_USER, {"username": "app"})
    assert (await app.ask(Code.GET_MAX_OFFSET, look)).remark == "check signature failed."
    await root.make_user("app", password="app-secret-1")
    refusal = (await app.ask(Code.GET_MAX_OFFSET, look)).remark
    assert "no matched policies" in str(refusal), "his rules are gone with him"
    await root.close()
    await app.close()


@pytest.mark.behaviour("AU-13", "AZ-06")
async def test_each_request_of_a_connection_has_a_user_of_its_own(secured: World) -> None:
    """A signed request gives the unsigned ones after it no rights, and a user whose rights are withdrawn
    loses them on open connections, too.
    """
    root = Keys(secured, ROOT)
    await root.make_user("other", password="other-secret-1")
    client = RemotingClient(secured.runtime)
    address = secured.brokers["broker-a"].address

    async def remark(credentials: Credentials | None, sent_as: str = "") -> str | None:
        command = Command(Code.GET_MAX_OFFSET, {"topic": "orders", "queueId": "0"})
        if credentials is not None:
            Signer(credentials).sign(command, credentials)
        if sent_as:
            command.ext["AccessKey"] = sent_as
        return (await client.request(address, command, 5000)).remark

    other = Credentials("other", "other-secret-1")
    for _ in range(2):
        assert await remark(APP) is None
        assert await remark(ROOT) is None
        assert await remark(None) == "username cannot be null."
        assert "User:other has no permission" in str(await remark(other))
        assert await remark(APP, sent_as="root") == "check signature failed."
        assert await remark(WRONG) == "check signature failed."
    await root.ok(Code.AUTH_UPDATE_USER, {"username": "app"}, UserInfo(user_status="disable").encode())
    assert await remark(APP) == "User:app is disabled."
    assert await remark(ROOT) is None
    await client.close()
    await root.close()


@pytest.mark.behaviour("AZ-04")
async def test_a_message_is_not_read_by_way_of_ones_own_topic_or_group(secured: World) -> None:
    root, app = Keys(secured, ROOT), Keys(secured, APP)
    async with admin(secured, ROOT) as client:
        await client.topics.create("invoices", queues=1)
    async with secured.producer(credentials=ROOT) as producer:
        offsets = []
        for topic in ("orders", "invoices"):
            offsets.append(str(secured.brokers["broker-a"].services.store.end))
            await producer.send(Message(topic, b"of " + topic.encode()))
    mine, theirs = offsets
    await app.ok(Code.VIEW_MESSAGE_BY_ID, {"topic": "orders", "offset": mine})
    for fields in ({"topic": "orders", "offset": theirs}, {"offset": theirs}):
        answer = await app.ask(Code.VIEW_MESSAGE_BY_ID, fields)
        assert answer.remark == (
            "User:app has no permission to access Topic:invoices from 127.0.0.1, no matched policies."
        )
    back = {"group": "billing", "offset": theirs, "delayLevel": "1", "originTopic": "orders"}
    assert "Topic:invoices" in str((await app.ask(Code.CONSUMER_SEND_MSG_BACK, back)).remark)
    await root.ok(Code.VIEW_MESSAGE_BY_ID, {"offset": theirs})
    await root.close()
    await app.close()
