"""Limits of pop and their refusals: code, field, limit; retry topics, dead letters, policies, the quota."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.test_broker_pop import Popped, ack, pop

from orbitmq.broker.broker import Broker
from orbitmq.message import property_names
from orbitmq.message.properties import decode_properties
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire import all_headers as headers
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command


async def change(peer: BrokerPeer, receipt: tuple[int, int, str], invisible_time: int) -> Command:
    queue_id, offset, info = receipt
    return await peer.ask(
        headers.ChangeMessageInvisibletimeRequest(
            consumer_group="cg",
            topic="T",
            queue_id=queue_id,
            extra_info=info,
            offset=offset,
            invisible_time=invisible_time,
        ).command()
    )


async def drained(peer: BrokerPeer, count: int, **values: Any) -> list[Popped]:
    """Pop until this many messages have arrived."""
    found: list[Popped] = []
    while sum(len(each.records) for each in found) < count:
        popped = await pop(peer, poll_time=20_000, **values)
        assert popped.code == ResponseCode.SUCCESS, popped.remark
        found.append(popped)
    return found


# -- bad input -------------------------------------------------------------------------------------------


@pytest.mark.behaviour("PP-06")
@pytest.mark.parametrize(
    ("values", "code", "words"),
    [
        ({"max_msg_nums": 0}, ResponseCode.INVALID_PARAMETER, ("maxMsgNums 0", "1 to 32")),
        ({"max_msg_nums": 33}, ResponseCode.INVALID_PARAMETER, ("maxMsgNums 33", "1 to 32")),
        ({"invisible_time": 0}, ResponseCode.INVALID_PARAMETER, ("invisibleTime 0", "1 to 259200000")),
        (
            {"invisible_time": 365 * 86_400_000},
            ResponseCode.INVALID_PARAMETER,
            ("invisibleTime 31536000000", "1 to 259200000"),
        ),
        ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER, ("queueId[4]", "readQueueNums:[4]")),
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST, ("unknown",)),
        (
            {"exp": "a >", "exp_type": "SQL92"},
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
            ("parse the consumer's subscription failed",),
        ),
        ({"exp": "x", "exp_type": "XPATH"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, ("XPATH",)),
        ({"born_time": 1}, ResponseCode.POLLING_TIMEOUT, ("timeout too much",)),
    ],
)
async def test_a_pop_that_is_refused(
    broker: Broker, peer: BrokerPeer, values: dict[str, Any], code: int, words: tuple[str, ...]
) -> None:
    await peer.sent(b"one")
    refused = await pop(peer, **values)
    assert refused.code == code
    for word in words:
        assert word in (refused.remark or "")
    assert (await pop(peer)).bodies == [b"one"], "others are served on"


@pytest.mark.behaviour("PP-05", "PP-06")
async def test_receipts_that_are_no_good(broker: Broker, peer: BrokerPeer) -> None:
    await peer.sent(b"one")
    popped = await pop(peer)
    queue_id, offset, info = popped.receipt()
    cut = await ack(peer, (queue_id, offset, info[:10]))
    assert cut.code == ResponseCode.SYSTEM_ERROR
    assert "extraInfo" in (cut.remark or "")
    foreign = await ack(peer, (queue_id, offset, info.replace("broker-a", "broker-b")))
    assert foreign.code == ResponseCode.INVALID_PARAMETER
    assert "broker-b" in (foreign.remark or "")
    other_group = await ack(peer, (queue_id, offset, info), group="other")
    assert other_group.code == ResponseCode.NO_MESSAGE
    outside = await ack(peer, (queue_id, 7, info))
    assert outside.code == ResponseCode.NO_MESSAGE
    assert "store:0~1" in (outside.remark or "")
    no_queue = await ack(peer, (9, offset, info))
    assert no_queue.code == ResponseCode.MESSAGE_ILLEGAL
    assert "queueId[9]" in (no_queue.remark or "")
    for seconds in (0, 365 * 86_400):
        refused = await change(peer, (queue_id, offset, info), seconds * 1000)
        assert refused.code == ResponseCode.INVALID_PARAMETER
        assert "1 to 259200000" in (refused.remark or "")
    changed = await change(peer, (queue_id, offset, info), 60_000)
    assert changed.code == ResponseCode.SUCCESS
    await asyncio.sleep(1)
    old = await ack(peer, (queue_id, offset, info))
    assert old.code == ResponseCode.NO_MESSAGE
    assert "replaced" in (old.remark or "")
    fields = headers.ChangeMessageInvisibletimeResponse.from_ext(changed.ext)
    now = f"{offset} {fields.pop_time} {fields.invisible_time} {fields.revive_qid} 0 broker-a {queue_id} 0"
    assert (await ack(peer, (queue_id, offset, now))).code == ResponseCode.SUCCESS
    twice = await ack(peer, (queue_id, offset, now))
    assert twice.code == ResponseCode.NO_MESSAGE
    assert "it is done" in (twice.remark or "")


async def test_an_acknowledgement_after_the_time_is_over(broker: Broker, peer: BrokerPeer) -> None:
    await peer.sent(b"one")
    popped = await pop(peer, invisible_time=2000)
    await asyncio.sleep(5)
    late = await ack(peer, popped.receipt())
    assert late.code == ResponseCode.NO_MESSAGE
    assert "invisible time of 2000 ms is over" in (late.remark or "")
    assert (await pop(peer)).bodies == [b"one"]


async def test_batches_that_are_partly_or_wholly_no_good(broker: Broker, peer: BrokerPeer) -> None:
    for number in range(3):
        await peer.sent(str(number).encode())
    popped = await pop(peer, invisible_time=30_000)
    assert popped.header is not None

    async def batch(*offsets: int, bits: str | None = None) -> Command:
        assert popped.header is not None
        one = bodies.BatchAck(
            consumer_group="cg",
            topic="T",
            retry="0",
            start_offset=0,
            queue_id=0,
            revive_queue_id=popped.header.revive_qid,
            pop_time=popped.header.pop_time,
            invisible_time=30_000,
            bit_set=bodies.BatchAck.bits(offsets) if bits is None else bits,
        )
        body = bodies.BatchAckMessageRequestBody(broker_name="broker-a", acks=[one])
        return await peer.call(RequestCode.BATCH_ACK_MESSAGE, body.encode())

    assert (await batch(0)).code == ResponseCode.SUCCESS
    partly = await batch(0, 1)
    assert partly.code == ResponseCode.SUCCESS
    assert partly.ext["missedOffsets"] == "0 0"
    wholly = await batch(0, 1)
    assert wholly.code == ResponseCode.NO_MESSAGE
    assert "none of 2" in (wholly.remark or "")
    broken = await batch(bits="%%%")
    assert broken.code == ResponseCode.SYSTEM_ERROR
    assert "Base64" in (broken.remark or "")
    empty = await peer.call(RequestCode.BATCH_ACK_MESSAGE, b"{}")
    assert empty.code == ResponseCode.NO_MESSAGE


# -- redelivery ------------------------------------------------------------------------------------------


@pytest.mark.behaviour("PE-03", "PE-04")
@pytest.mark.parametrize(
    ("v2", "topic"),
    [
        pytest.param("no", "%RETRY%cg_T", marks=pytest.mark.broker()),
        pytest.param("yes", "%RETRY%cg+T", marks=pytest.mark.broker(enable_retry_topic_v2=True)),
    ],
)
async def test_a_redelivery_is_the_message_itself_counted_once_more(
    broker: Broker, peer: BrokerPeer, v2: str, topic: str
) -> None:
    await peer.sent(b"one", properties={"TAGS": "new", "a": "5"}, queue_id=2)
    first = await pop(peer, invisible_time=3000)
    [again] = await drained(peer, 1)
    assert first.header is not None
    record = again.records[0]
    properties = decode_properties(record.properties)
    assert (record.topic, record.queue_id, record.reconsume_times) == ("T", 0, 1)
    assert (properties["TAGS"], properties["a"]) == ("new", "5")
    assert properties[property_names.FIRST_POP_TIME] == str(first.header.pop_time)
    receipt = properties[property_names.POP_CK]
    assert receipt.split(" ")[4] == ("2" if v2 == "yes" else "1")
    done = await ack(peer, (0, record.queue_offset, receipt), topic=topic)
    assert done.code == ResponseCode.SUCCESS, done.remark
    assert broker.services.topics.get(topic) is not None
    assert (await pop(peer, poll_time=30_000)).code == ResponseCode.POLLING_TIMEOUT


@pytest.mark.behaviour("PP-08")
async def test_a_message_that_is_never_handled_becomes_a_dead_letter(
    broker: Broker, peer: BrokerPeer
) -> None:
    group = bodies.SubscriptionGroupConfig(group_name="cg", retry_max_times=2)
    await peer.ok(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group.encode())
    await peer.sent(b"one")
    for deliveries in range(3):
        [popped] = await drained(peer, 1, invisible_time=1000)
        assert popped.records[0].reconsume_times == deliveries
    assert (await pop(peer, poll_time=10_000)).code == ResponseCode.POLLING_TIMEOUT
    dead = await pop(peer, topic="%DLQ%cg", consumer_group="undertaker")
    properties = decode_properties(dead.records[0].properties)
    assert dead.bodies == [b"one"]
    assert properties[property_names.DLQ_ORIGIN_TOPIC] == "T"
    assert properties[property_names.RETRY_TOPIC] == "T"


@pytest.mark.behaviour("PP-09")
@pytest.mark.parametrize(
    ("policy", "delays_s"),
    [
        (
            bodies.GroupRetryPolicy(
                bodies.GroupRetryPolicyType.EXPONENTIAL,
                exponential_retry_policy=bodies.ExponentialRetryPolicy(initial=4000, max=9000, multiplier=2),
            ),
            (4, 8, 9),
        ),
        (
            bodies.GroupRetryPolicy(
                bodies.GroupRetryPolicyType.CUSTOMIZED,
                customized_retry_policy=bodies.CustomizedRetryPolicy(next=[1, 2, 5000, 7000]),
            ),
            (5, 7, 7),
        ),
    ],
)
async def test_the_policy_of_a_group_is_the_delay_behind_the_invisible_time(
    broker: Broker, peer: BrokerPeer, policy: bodies.GroupRetryPolicy, delays_s: tuple[int, ...]
) -> None:
    group = bodies.SubscriptionGroupConfig(group_name="cg", group_retry_policy=policy)
    await peer.ok(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, group.encode())
    await peer.sent(b"one")
    [popped] = await drained(peer, 1, invisible_time=2000)
    for delay_s in delays_s:
        [again] = await drained(peer, 1, invisible_time=2000)
        assert again.header is not None
        assert popped.header is not None
        waited_ms = again.header.pop_time - popped.header.pop_time
        assert 0 <= waited_ms - 2000 - 1000 * delay_s <= 1000
        popped = again


# -- limits ----------------------------------------------------------------------------------------------


@pytest.mark.broker(pop_threshold_enable=True, pop_in_flight_threshold=10)
async def test_a_group_with_too_much_in_flight_must_finish_some_first(
    broker: Broker, peer: BrokerPeer
) -> None:
    for number in range(30):
        await peer.sent(str(number).encode())
    first = await pop(peer, max_msg_nums=11, invisible_time=60_000)
    assert len(first.records) == 11
    waiting = asyncio.ensure_future(pop(peer, poll_time=30_000))
    await asyncio.sleep(5)
    assert not waiting.done()
    await ack(peer, first.receipt())
    assert len((await waiting).records) == 19


@pytest.mark.broker(pop_polling_size=1)
async def test_too_many_pops_that_wait(broker: Broker, peer: BrokerPeer) -> None:
    await peer.sent(b"one")
    await pop(peer)
    waiting = asyncio.ensure_future(pop(peer, poll_time=15_000))
    await asyncio.sleep(1)
    assert (await pop(peer, poll_time=15_000)).code == ResponseCode.POLLING_FULL
    await peer.sent(b"two")
    assert (await waiting).bodies == [b"two"]


# -- without delivery ------------------------------------------------------------------------------------


async def test_peek_takes_nothing(broker: Broker, peer: BrokerPeer) -> None:
    await peer.sent(b"one")
    ask = {"topic": "T", "queueId": -1, "maxMsgNums": 32, "consumerGroup": "cg"}
    for _ in range(2):
        seen = Popped(await peer.ok(RequestCode.PEEK_MESSAGE, **ask))
        assert seen.bodies == [b"one"]
    assert (await pop(peer)).bodies == [b"one"]
    assert (await peer.call(RequestCode.PEEK_MESSAGE, **ask)).code == ResponseCode.PULL_NOT_FOUND
    refused = await peer.call(RequestCode.PEEK_MESSAGE, **{**ask, "maxMsgNums": 33})
    assert "1 to 32" in (refused.remark or "")


async def test_a_notice_comes_when_a_pop_would_find_something(broker: Broker, peer: BrokerPeer) -> None:
    await peer.sent(b"one")
    ask: dict[str, str | int] = {"topic": "T", "queueId": -1, "consumerGroup": "cg", "pollTime": 20_000}

    async def notice() -> str:
        answer = await peer.ok(RequestCode.NOTIFICATION, **ask, bornTime=peer.now())
        return answer.ext["hasMsg"]

    assert await notice() == "true"
    await pop(peer, invisible_time=5000)
    started = peer.now()
    assert await notice() == "true"
    assert 5000 <= peer.now() - started <= 6000
    await pop(peer, invisible_time=600_000)
    assert await notice() == "false"


async def test_a_reset_moves_a_group_that_pops(broker: Broker, peer: BrokerPeer) -> None:
    for number in range(4):
        await peer.sent(str(number).encode())
    popped = await pop(peer, invisible_time=3000)
    assert len(popped.records) == 4
    await ack(peer, popped.receipt(0))
    await peer.ok(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        group="cg",
        topic="T",
        timestamp=-1,
        isForce="true",
        queueId=0,
        offset=2,
    )
    again = [body for each in await drained(peer, 3) for body in each.bodies]
    assert sorted(again) == [b"1", b"2", b"3"], (
        "what lies beyond comes at once, what lies before when it is due"
    )


@pytest.mark.behaviour("PP-12")
@pytest.mark.parametrize("behind_ms", [-30_000, 0, 30_000])
async def test_a_client_whose_clock_is_wrong_gets_messages_too(
    broker: Broker, peer: BrokerPeer, behind_ms: int
) -> None:
    """A clock that is half a second off must not keep the client's pops empty for ever."""
    await peer.sent(b"one")
    assert (await pop(peer, born_time=peer.now() - behind_ms)).bodies == [b"one"]
    began = peer.now()
    waiting = await pop(peer, born_time=peer.now() - behind_ms, poll_time=5000)
    assert waiting.code == ResponseCode.POLLING_TIMEOUT
    assert 4900 <= peer.now() - began <= 5600
    late = await pop(peer, born_time=peer.now() - behind_ms - 2000)
    assert "timeout too much" in (late.remark or ""), "what came late is nobody's any more"


@pytest.mark.behaviour("PP-12")
async def test_a_clock_that_is_set_while_a_client_pops_and_asks_for_notices(
    broker: Broker, peer: BrokerPeer
) -> None:
    """Pops are late sooner than notices: a step of 0.7 s must not let all later pops count as late."""
    behind_ms = 700
    ask: dict[str, str | int] = {"topic": "T", "queueId": -1, "consumerGroup": "cg", "pollTime": 20_000}
    await peer.sent(b"before")
    assert (await pop(peer, born_time=peer.now())).bodies == [b"before"]
    await peer.sent(b"after")
    for _ in range(4):
        await peer.ok(RequestCode.NOTIFICATION, **ask, bornTime=peer.now() - behind_ms)
        popped = await pop(peer, born_time=peer.now() - behind_ms)
        if popped.bodies:
            break
        await asyncio.sleep(0.4)
    assert popped.bodies == [b"after"]
