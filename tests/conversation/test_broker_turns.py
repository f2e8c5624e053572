"""Long loops over data yield: a new leader keeps answering, and keeps its lease."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.conversation.broker_peer import BrokerPeer
from tests.conversation.test_broker_pop import pop
from tests.conversation.turns import Turns

from orbitmq.broker.broker import Broker
from orbitmq.broker.inspection.progress import PAIRS_PER_TURN, ConsumeProgress
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.broker.pop import hand_over, revived
from orbitmq.broker.pop.in_flight import InFlight
from orbitmq.broker.pop.redelivery import Redeliveries
from orbitmq.broker.pop.revive import PopRevive
from orbitmq.broker.role import Role
from orbitmq.broker.timers import inspection
from orbitmq.broker.transactions import forms, reading
from orbitmq.broker.transactions.service import Transactions
from orbitmq.message import property_names, sysflag
from orbitmq.message.properties import encode_properties
from orbitmq.store import NewMessage
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.pop import MessageRequestMode, PopCheckPoint, SetMessageRequestModeRequestBody
from orbitmq.wire.bodies.topic import TopicConfig
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.headers.transaction import EndTransactionRequest

# The largest number of records read, or changes made, in one turn of the event loop: 2 or 3 ms.
AT_ONCE = 300
MANY = 3000


async def put(
    broker: Broker, topic: str, count: int, message: Callable[[int], tuple[bytes, dict[str, str]]]
) -> None:
    """Store messages directly in the log."""
    services = broker.services
    if topic not in services.topics:
        services.topics.update(TopicConfig(topic, 1, 1))
    for number in range(count):
        body, properties = message(number)
        services.store.put_many(
            [
                NewMessage(
                    topic,
                    0,
                    body,
                    encode_properties(properties),
                    born_timestamp=services.runtime.clock.now_ms(),
                    born_host=services.store.config.store_host,
                )
            ]
        )
        if number % 100 == 99:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)


async def lead_anew(broker: Broker) -> None:
    await broker.change_role(Role.SLAVE)
    await broker.change_role(Role.MASTER)


@pytest.mark.behaviour("PE-10")
async def test_a_new_leader_reads_redeliveries_in_slices(
    broker: Broker, peer: BrokerPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One redelivery has been refused for hours, so the search reads all redeliveries since then to
    find it.
    """
    await peer.sent(b"one")
    await peer.sent(b"two")
    assert (await pop(peer, invisible_time=1000)).bodies == [b"one", b"two"]
    state = broker.part(PopRevive).state

    def refuse(*_: object) -> None:
        raise RemotingError(ResponseCode.MESSAGE_ILLEGAL, "as a record it is too large")

    with monkeypatch.context() as refused:
        refused.setattr(broker.services.sink, "hand", refuse)
        await asyncio.sleep(5)
        place = broker.services.store.entry("T", 0, 0)
        assert place is not None

        def redelivery(number: int) -> tuple[bytes, dict[str, str]]:
            of = place[0] if number == MANY - 1 else 1 << 40 | number
            return b"one" if number == MANY - 1 else b"other", {property_names.POP_REVIVED_FROM: str(of)}

        await put(broker, "%RETRY%cg_T", MANY, redelivery)
        turns = Turns(monkeypatch, revived, "record_of")
        await lead_anew(broker)
        await asyncio.sleep(5)
    assert turns.total >= MANY
    assert turns.longest <= AT_ONCE
    [left] = [each.left for queue in state.in_flight for each in queue.deliveries.values()]
    assert left == {1}
    await asyncio.sleep(60)
    bodies: list[bytes] = []
    while popped := (await pop(peer)).bodies:
        bodies += popped
    assert [body for body in bodies if body != b"other"] == [b"one", b"two"]


@pytest.mark.behaviour("PE-10")
@pytest.mark.parametrize("groups", [1, MANY])
async def test_a_new_leader_looks_at_overdue_deliveries_in_slices(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, groups: int
) -> None:
    """The overdue deliveries are the commits of one group, or one commit of each of many groups."""
    await put(broker, "T", MANY, lambda _: (b"one", {}))
    state = broker.part(PopRevive).state
    await broker.change_role(Role.SLAVE)
    now = broker.services.runtime.clock.now_ms()
    for number in range(MANY):
        queue = state.in_flight.queue("T", f"g{number % groups}", 0)
        state.in_flight.take(queue, number, [number], number + 1, now_ms=now - 60_000, invisible_ms=1)
    turns = Turns(monkeypatch, Redeliveries, "_retry_topic")
    await broker.change_role(Role.MASTER)
    await asyncio.sleep(1)
    assert turns.total >= MANY
    assert turns.longest <= 1000


@pytest.mark.behaviour("PE-10")
async def test_a_group_that_pulls_from_now_on_gets_what_waits_for_pops_in_slices(
    broker: Broker, peer: BrokerPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await peer.sent(b"one")
    await pop(peer)
    await put(broker, "%RETRY%cg_T", 32 * MANY // 10, lambda number: (b"%d" % number, {}))
    turns = Turns(monkeypatch, InFlight, "take")
    mode = SetMessageRequestModeRequestBody("T", "cg", MessageRequestMode.PULL)
    await peer.ok(RequestCode.SET_MESSAGE_REQUEST_MODE, mode.encode())
    for _ in range(3):
        await asyncio.sleep(0)
    # Messages that remain when the broker loses the lead are delivered when it leads again.
    await lead_anew(broker)
    await asyncio.sleep(10)
    assert turns.total >= MANY // 10
    assert turns.longest <= AT_ONCE // 2
    assert broker.services.store.max_offset("%RETRY%cg", 0) >= 32 * MANY // 10


@pytest.mark.behaviour("PE-10")
async def test_a_new_leader_reads_the_check_points_of_another_make_in_slices(
    broker: Broker, peer: BrokerPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await peer.sent(b"one")
    topic = "rmq_sys_REVIVE_LOG_DefaultCluster"
    now = broker.services.runtime.clock.now_ms()

    def check_point(number: int) -> tuple[bytes, dict[str, str]]:
        point = PopCheckPoint(
            start_offset=number, pop_time=now, invisible_time=3_600_000, num=1, queue_id=0, topic="T",
            cid="cg", queue_offset_diff=[0], broker_name="broker-a",
        )  # fmt: skip
        return point.encode(), {property_names.TAGS: hand_over.CHECK_POINT}

    await broker.change_role(Role.SLAVE)
    await put(broker, topic, MANY, check_point)
    turns = Turns(monkeypatch, hand_over, "record_of")
    await broker.change_role(Role.MASTER)
    await asyncio.sleep(5)
    assert turns.total >= MANY
    assert turns.longest <= AT_ONCE
    assert len(broker.part(PopRevive).state.in_flight) >= MANY


@pytest.mark.behaviour("TX-11")
async def test_a_new_leader_reads_the_marks_of_transactions_in_slices(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = broker.services.runtime.clock.now_ms()

    def half(_number: int) -> tuple[bytes, dict[str, str]]:
        return b"half", {property_names.REAL_TOPIC: "T", property_names.PRODUCER_GROUP: "pg"}

    await put(broker, reading.HALF, MANY, half)
    [host] = {broker.services.store.config.store_host}
    for number in range(MANY):
        [(message, _)] = forms.op_messages([number], 4096, now, host)
        broker.services.append.put_many([message])
        if number % 100 == 0:
            await asyncio.sleep(0.01)
    await asyncio.sleep(1)
    turns = Turns(monkeypatch, forms, "marked_offsets")
    await broker.change_role(Role.SLAVE)
    leads = asyncio.ensure_future(broker.change_role(Role.MASTER))
    while not turns.total:
        await asyncio.sleep(0)
    commit = EndTransactionRequest(
        producer_group="pg",
        tran_state_table_offset=0,
        commit_log_offset=0,
        commit_or_rollback=sysflag.TRANSACTION_COMMIT,
        msg_id="",
    )
    with pytest.raises(RemotingError, match="which transactions have ended"):
        broker.part(Transactions).end(commit)
    await leads
    assert turns.total >= MANY
    assert turns.longest <= AT_ONCE


@pytest.mark.behaviour("TX-11")
async def test_a_new_leader_reads_open_transactions_in_slices(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(broker, reading.HALF, MANY, lambda _: (b"half", {property_names.REAL_TOPIC: "T"}))
    await asyncio.sleep(1)
    turns = Turns(monkeypatch, reading.HalfQueue, "half")
    await lead_anew(broker)
    await asyncio.sleep(5)
    assert turns.total >= MANY
    assert turns.longest <= AT_ONCE


ASKED: tuple[tuple[RequestCode, object, str, dict[str, str]], ...] = (
    (RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsets, "kept_queues", {}),
    (RequestCode.GET_CONSUME_STATS, ConsumeProgress, "_in_queue", {"consumerGroup": "g"}),
    (RequestCode.GET_BROKER_CONSUME_STATS, ConsumeProgress, "_in_queue", {"isOrder": "false"}),
    (RequestCode.GET_BROKER_CONSUME_STATS, ConsumeProgress, "_sum", {"isOrder": "false", "sumBy": "topic"}),
    (
        RequestCode.QUERY_CORRECTION_OFFSET,
        ConsumerOffsets,
        "queues",
        {"compareGroup": "g", "filterGroups": "", "topic": "hot"},
    ),
    (RequestCode.GET_TIMER_METRICS, inspection.forms, "topic_hash", {}),
)


@pytest.mark.behaviour("HB-11")
@pytest.mark.parametrize(
    ("code", "owner", "name", "ext"), ASKED, ids=[f"{code.name}-{name}" for code, _, name, _ in ASKED]
)
async def test_long_answers_about_all_topics_and_groups_are_made_in_slices(
    broker: Broker,
    peer: BrokerPeer,
    monkeypatch: pytest.MonkeyPatch,
    code: RequestCode,
    owner: object,
    name: str,
    ext: dict[str, str],
) -> None:
    services = broker.services
    services.topics.update(TopicConfig("hot", 1, 1))
    for number in range(MANY):
        topic, group = f"t{number}", f"g{number}"
        services.topics.update(TopicConfig(topic, 1, 1))
        services.groups.update(SubscriptionGroupConfig(group_name=group))
        for reader, read in (("g", topic), (group, topic), (group, "hot")):
            services.offsets.commit(reader, read, 0, 0)
    turns = Turns(monkeypatch, owner, name)
    await peer.ok(code, b"", **ext)
    assert turns.total >= MANY
    assert turns.longest <= (PAIRS_PER_TURN if name == "_sum" else 2 * AT_ONCE)
