"""Transactions between producers and a broker, in virtual time."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, Self

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config, hang

from orbitmq.broker.broker import Broker
from orbitmq.broker.events import CutAhead, LogCut
from orbitmq.broker.transactions import forms
from orbitmq.broker.transactions.service import Transactions
from orbitmq.message import property_names
from orbitmq.message.properties import decode_properties, properties_text
from orbitmq.message.record import Record, decode_record, iter_records
from orbitmq.store import NewMessage
from orbitmq.testing import SimulatedLoop
from orbitmq.testing.machine.simulated import SimulatedRuntime, run, simulated_runtime
from orbitmq.wire.bodies.client import HeartbeatData, ProducerData
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.send import SendMessageResponse, SendMessageV2Request
from orbitmq.wire.headers.transaction import (
    CheckTransactionStateRequest,
    EndTransactionRequest,
    ResumeCheckHalfMessageRequest,
)

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OP = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


class Half:
    """A half message as its producer knows it."""

    def __init__(self, sent: SendMessageResponse) -> None:
        self.sent = sent
        self.offset = sent.queue_offset
        self.physical = int(sent.msg_id[16:], 16)


class TransactionPeer(BrokerPeer):
    """A producer of transactions; ``checks`` are the checks that the broker has sent to it."""

    def __init__(self, broker: Broker, group: str = "pg") -> None:
        super().__init__(broker.runtime)
        self.broker = broker
        self.group = group
        self.checks: list[tuple[float, CheckTransactionStateRequest, Record]] = []
        self.answer: int | None = None

    async def __aenter__(self) -> Self:
        await self.beat()
        return self

    def _note(self, _connection: object, command: Command) -> None:
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            return
        assert command.is_oneway
        header = CheckTransactionStateRequest.from_ext(command.ext)
        self.checks.append((self.broker.runtime.clock.monotonic(), header, decode_record(command.body)))
        if self.answer is not None:
            end = end_request(
                header.tran_state_table_offset,
                header.commit_log_offset,
                self.answer,
                group=self.group,
                check=True,
            )
            asyncio.ensure_future(self.client.oneway(self.broker.address, end.command(), 3000))  # noqa: RUF006

    async def beat(self) -> None:
        body = HeartbeatData(f"client-{id(self)}", [ProducerData(self.group)], []).encode()
        assert (await self.ask(Command(RequestCode.HEART_BEAT, body=body))).code == 0

    async def prepare(self, body: bytes = b"paid", *, sys_flag: int = 4, **properties: str) -> Half:
        answer = await self.ask(prepared(self.broker, self.group, sys_flag, properties).command(body))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return Half(SendMessageResponse.from_ext(answer.ext))

    async def end(self, half: Half, state: int, **changes: Any) -> Command:
        values = {"group": self.group, **changes}
        return await self.ask(end_request(half.offset, half.physical, state, **values).command())


def prepared(
    broker: Broker, group: str, sys_flag: int, properties: dict[str, str], topic: str = "Orders"
) -> SendMessageV2Request:
    marked = {
        property_names.TRANSACTION_PREPARED: "true",
        property_names.PRODUCER_GROUP: group,
        property_names.TAGS: "a",
        **properties,
    }
    return SendMessageV2Request(
        producer_group=group,
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=2,
        sys_flag=sys_flag,
        born_timestamp=broker.runtime.clock.now_ms(),
        flag=7,
        properties=properties_text(marked),
    )


def end_request(
    offset: int, physical: int, state: int, *, group: str = "pg", check: bool = False
) -> EndTransactionRequest:
    return EndTransactionRequest(
        producer_group=group,
        tran_state_table_offset=offset,
        commit_log_offset=physical,
        commit_or_rollback=state,
        from_transaction_check=check,
        msg_id="unused",
    )


def stored(broker: Broker, topic: str, queue_id: int = 0) -> list[Record]:
    found = broker.services.store.get(topic, queue_id, 0, 1024)
    return list(iter_records(found.body))


def marks(broker: Broker) -> list[int]:
    return [int(part) for record in stored(broker, OP) for part in record.body.decode().split(",") if part]


# -- ending ------------------------------------------------------------------------------------------------


@pytest.fixture
def peer(broker: Broker, orbitmq_loop: SimulatedLoop) -> TransactionPeer:
    return orbitmq_loop.enter(TransactionPeer(broker))


async def test_a_prepared_message_is_seen_by_nobody_until_it_is_committed(
    broker: Broker, peer: TransactionPeer
) -> None:
    half = await peer.prepare(UNIQ_KEY="U1", KEYS="k")
    [lying] = stored(broker, HALF)
    properties = decode_properties(lying.properties)
    assert (lying.sys_flag & 12, lying.queue_id, lying.body) == (0, 0, b"paid")
    assert properties[property_names.REAL_TOPIC] == "Orders"
    assert properties[property_names.REAL_QUEUE_ID] == "2"
    assert properties[property_names.TRANSACTION_ID] == "U1"
    assert half.sent.transaction_id == "U1"
    assert stored(broker, "Orders", 2) == []

    assert (await peer.end(half, COMMIT)).code == ResponseCode.SUCCESS
    [final] = stored(broker, "Orders", 2)
    assert (final.body, final.flag, final.sys_flag & 12, final.queue_offset) == (b"paid", 7, 8, 0)
    assert final.prepared_transaction_offset == half.physical == lying.physical_offset
    assert final.born_timestamp == lying.born_timestamp
    assert decode_properties(final.properties) == properties
    await asyncio.sleep(0.1)
    [mark] = stored(broker, OP)
    assert (mark.body, decode_properties(mark.properties)["TAGS"]) == (b"0,", "d")
    await asyncio.sleep(120)
    assert peer.checks == []


async def test_without_transactions_nobody_commits_offsets_for_them(
    broker: Broker, peer: TransactionPeer
) -> None:
    offsets = broker.services.offsets
    await asyncio.sleep(120)
    assert offsets.topics_of("CID_RMQ_SYS_TRANS") == set()
    # An open transaction keeps its broker from committing progress, too.
    half = await peer.prepare()
    await asyncio.sleep(5)
    assert offsets.topics_of("CID_RMQ_SYS_TRANS") == set()
    await peer.end(half, ROLLBACK)
    await asyncio.sleep(5)
    assert offsets.topics_of("CID_RMQ_SYS_TRANS") == {HALF, OP}


async def test_a_rollback_leaves_nothing_but_its_mark(broker: Broker, peer: TransactionPeer) -> None:
    half = await peer.prepare()
    assert (await peer.end(half, ROLLBACK)).code == ResponseCode.SUCCESS
    await asyncio.sleep(120)
    assert stored(broker, "Orders", 2) == []
    assert marks(broker) == [0]
    assert peer.checks == []
    offsets = broker.services.offsets
    assert offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == 1
    assert offsets.query("CID_RMQ_SYS_TRANS", OP, 0) == 1


async def test_marks_of_one_turn_share_a_message(broker: Broker, peer: TransactionPeer) -> None:
    halves = [await peer.prepare(b"%d" % n) for n in range(20)]
    for half in halves:
        await peer.client.oneway(
            broker.address, end_request(half.offset, half.physical, COMMIT).command(), 3000
        )
    await asyncio.sleep(5)
    assert sorted(marks(broker)) == list(range(20))
    assert len(stored(broker, OP)) < 20
    assert [r.body for r in stored(broker, "Orders", 2)] == [b"%d" % n for n in range(20)]


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"group": "other"}, "The producer group wrong"),
        ({"offset": 5}, "The transaction state table offset wrong"),
        ({"physical": 3}, "Find prepared transaction message failed"),
    ],
)
async def test_an_end_that_does_not_fit_is_refused(
    broker: Broker, peer: TransactionPeer, change: dict[str, Any], remark: str
) -> None:
    half = await peer.prepare()
    values = {"offset": half.offset, "physical": half.physical, "group": "pg", **change}
    answer = await peer.ask(
        end_request(values["offset"], values["physical"], COMMIT, group=values["group"]).command()
    )
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert answer.remark.startswith(remark)
    assert stored(broker, "Orders", 2) == []


@pytest.mark.broker(flush_disk_type="SYNC_FLUSH", sync_flush_timeout_ms=1000)
async def test_a_commit_that_waits_too_long_for_the_disk_is_a_success_other_than_a_send(
    broker: Broker, peer: TransactionPeer
) -> None:
    # As in EndTransactionProcessor.sendFinalMessage, the message is written and the transaction has ended.
    half = await peer.prepare()
    hang(broker.runtime)
    loop = asyncio.get_running_loop()
    began = loop.time()
    answer = await peer.end(half, COMMIT)
    assert answer.code == ResponseCode.SUCCESS
    assert answer.remark is None
    assert 1 <= loop.time() - began < 2
    assert [record.body for record in stored(broker, "Orders", 2)] == [b"paid"]
    late = await peer.ask(prepared(broker, "pg", 4, {}).command(b"later"))
    assert late.code == ResponseCode.FLUSH_DISK_TIMEOUT


@pytest.mark.behaviour("TX-12")
@pytest.mark.parametrize("state", [COMMIT, ROLLBACK])
async def test_an_end_is_answered_when_its_mark_is_on_the_device(
    broker: Broker, peer: TransactionPeer, state: int
) -> None:
    """This also holds if another message began the write batch, so that the mark gets into the next one."""
    broker.runtime.threads.max_delay_s = 0.05  # type: ignore[attr-defined]
    store = broker.services.store
    await peer.sent(b"x")

    async def flushed_when_answered(half: Half) -> int:
        assert (await peer.end(half, state)).code == ResponseCode.SUCCESS
        return store.flushed_offset

    for _ in range(20):
        half = await peer.prepare()
        _, flushed = await asyncio.gather(peer.sent(b"x"), flushed_when_answered(half))
        (mark,) = [
            record for record in stored(broker, OP) if str(half.offset) in record.body.decode().split(",")
        ]
        assert mark.physical_offset + mark.total_size <= flushed


@pytest.mark.behaviour("TX-12")
async def test_an_end_whose_mark_is_refused_is_no_success(broker: Broker, peer: TransactionPeer) -> None:
    half = await peer.prepare()
    ending = asyncio.ensure_future(peer.end(half, ROLLBACK))
    while not broker.part(Transactions)._unmarked:
        await asyncio.sleep(0)
    broker.services.events.publish(LogCut(broker.services.store.end))
    assert (await ending).code == ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.mark.behaviour("TX-01")
@pytest.mark.broker(broker_role="SLAVE", broker_id=1)
async def test_a_slave_ends_no_transaction(broker: Broker, peer: TransactionPeer) -> None:
    answer = await peer.ask(end_request(0, 0, COMMIT).command())
    assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE
    await asyncio.sleep(10)
    assert broker.services.offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) is None


async def test_an_undecided_producer_changes_nothing(broker: Broker, peer: TransactionPeer) -> None:
    half = await peer.prepare()
    await peer.end(half, UNKNOWN)
    await asyncio.sleep(10)
    assert len(peer.checks) == 1
    assert marks(broker) == [0]  # the mark of the half message that a copy has replaced
    assert stored(broker, "Orders", 2) == []


async def test_a_topic_deleted_meanwhile_leaves_the_transaction_open(
    broker: Broker, peer: TransactionPeer
) -> None:
    half = await peer.prepare()
    broker.services.topics.delete("Orders")
    answer = await peer.end(half, COMMIT)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    broker.services.topics.create_if_absent("Orders", 4)
    assert (await peer.end(half, COMMIT)).code == ResponseCode.SUCCESS
    assert len(stored(broker, "Orders", 2)) == 1


async def test_ending_twice_stores_one_message(broker: Broker, peer: TransactionPeer) -> None:
    half = await peer.prepare()
    await peer.end(half, COMMIT)
    again = await peer.end(half, COMMIT)
    assert again.code == ResponseCode.SYSTEM_ERROR
    assert "has ended already" in (again.remark or "")
    await asyncio.sleep(3)
    assert (await peer.end(half, COMMIT)).code == ResponseCode.SYSTEM_ERROR
    assert len(stored(broker, "Orders", 2)) == 1


@pytest.mark.broker(reject_transaction_message=True)
async def test_a_broker_may_refuse_transactions(broker: Broker, peer: TransactionPeer) -> None:
    answer = await peer.ask(prepared(broker, "pg", 4, {}).command(b"x"))
    assert answer.code == ResponseCode.NO_PERMISSION
    assert answer.remark == "the broker[127.0.0.1] sending transaction message is forbidden"


async def test_a_delay_begins_when_the_transaction_is_committed(
    broker: Broker, peer: TransactionPeer
) -> None:
    half = await peer.prepare(DELAY="2")
    await asyncio.sleep(5.5)
    assert len(stored(broker, HALF)) == 1
    await peer.end(half, COMMIT)
    await asyncio.sleep(4)
    assert stored(broker, "Orders", 2) == []
    await asyncio.sleep(2)
    assert [record.body for record in stored(broker, "Orders", 2)] == [b"paid"]


# -- checks ------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("TX-07")
async def test_an_open_transaction_is_asked_about_after_6_s_then_every_30_s_15_times(
    broker: Broker, peer: TransactionPeer
) -> None:
    started = broker.runtime.clock.monotonic()
    half = await peer.prepare(UNIQ_KEY="U1")
    for _ in range(20):
        await asyncio.sleep(30)
        await peer.beat()
    times = [round(at - started) for at, _, _ in peer.checks]
    assert len(times) == 15
    assert 6 <= times[0] <= 8
    assert all(30 <= later - earlier <= 32 for earlier, later in itertools.pairwise(times))
    _, header, message = peer.checks[-1]
    assert (header.msg_id, header.transaction_id, header.bname) == ("U1", "U1", "broker-a")
    assert (message.topic, message.queue_id, message.body) == ("Orders", 2, b"paid")
    assert message.queue_offset == header.tran_state_table_offset != half.offset
    assert message.physical_offset == header.commit_log_offset
    assert decode_properties(message.properties)[property_names.TRANSACTION_CHECK_TIMES] == "15"

    [given_up] = stored(broker, GIVEN_UP)
    assert decode_properties(given_up.properties)[property_names.REAL_TOPIC] == "Orders"
    assert given_up.body == b"paid"
    assert stored(broker, "Orders", 2) == []
    high = broker.services.store.max_offset(HALF, 0)
    assert broker.services.offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == high == 16


@pytest.mark.parametrize(("answer", "delivered"), [(COMMIT, [b"paid"]), (ROLLBACK, [])])
async def test_the_answer_to_a_check_ends_the_transaction(
    broker: Broker, peer: TransactionPeer, answer: int, delivered: list[bytes]
) -> None:
    peer.answer = answer
    await peer.prepare()
    await asyncio.sleep(90)
    assert len(peer.checks) == 1
    assert [record.body for record in stored(broker, "Orders", 2)] == delivered


async def test_a_producer_that_is_slow_ends_its_transaction_after_a_check_with_the_first_offsets(
    broker: Broker, peer: TransactionPeer
) -> None:
    half = await peer.prepare(UNIQ_KEY="U1")
    await asyncio.sleep(10)
    assert len(peer.checks) == 1
    assert (await peer.end(half, COMMIT)).code == ResponseCode.SUCCESS
    _, header, _ = peer.checks[0]
    late = end_request(header.tran_state_table_offset, header.commit_log_offset, COMMIT, check=True)
    assert (await peer.ask(late.command())).code == ResponseCode.SYSTEM_ERROR
    await asyncio.sleep(120)
    assert len(peer.checks) == 1
    assert len(stored(broker, "Orders", 2)) == 1


async def test_messages_with_the_same_unique_key_are_told_apart(
    broker: Broker, peer: TransactionPeer
) -> None:
    halves = [await peer.prepare(b"%d" % n, UNIQ_KEY="same") for n in range(3)]
    await asyncio.sleep(10)
    assert len(peer.checks) == 3
    await peer.end(halves[0], COMMIT)
    await peer.end(halves[1], ROLLBACK)
    await asyncio.sleep(30)
    assert [message.body for _, _, message in peer.checks[3:]] == [b"2"]
    assert [record.body for record in stored(broker, "Orders", 2)] == [b"0"]


async def test_a_late_answer_to_the_check_before_the_last_counts(
    broker: Broker, peer: TransactionPeer
) -> None:
    await peer.prepare()
    await asyncio.sleep(80)
    assert len(peer.checks) == 3
    _, header, _ = peer.checks[1]
    late = end_request(header.tran_state_table_offset, header.commit_log_offset, COMMIT, check=True)
    assert (await peer.ask(late.command())).code == ResponseCode.SUCCESS
    await asyncio.sleep(100)
    assert len(peer.checks) == 3
    assert len(stored(broker, "Orders", 2)) == 1


async def test_the_properties_of_a_half_message_leave_room_for_those_of_its_copies(
    broker: Broker, peer: TransactionPeer
) -> None:
    answer = await peer.ask(prepared(broker, "pg", 4, {"k": "v" * 32_500}).command(b"x"))
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "limit 32667 bytes" in (answer.remark or "")
    await peer.prepare(k="v" * 32_400)
    for _ in range(6):
        await asyncio.sleep(90)
        await peer.beat()
    assert len(peer.checks) == 15
    assert len(stored(broker, GIVEN_UP)) == 1


async def test_many_that_nobody_can_be_asked_about_are_one_line_in_the_log(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    lonely = TransactionPeer(broker, "lonely")
    for _ in range(50):
        await lonely.prepare()
    await asyncio.sleep(10)
    await lonely.client.close()
    lines = [r.getMessage() for r in caplog.records if "no producer of group lonely" in r.getMessage()]
    assert 1 <= len(lines) <= 2
    assert "and 49 more" in lines[0] or len(lines) == 2


async def test_only_one_producer_of_the_group_is_asked(broker: Broker, peer: TransactionPeer) -> None:
    other = TransactionPeer(broker)
    await other.beat()
    stranger = TransactionPeer(broker, "another")
    await stranger.beat()
    await peer.prepare()
    await asyncio.sleep(40)
    assert sorted([len(peer.checks), len(other.checks)]) == [1, 1]
    assert stranger.checks == []
    await other.client.close()
    await stranger.client.close()


async def test_nobody_is_asked_during_the_immunity_that_a_producer_chose(
    broker: Broker, peer: TransactionPeer
) -> None:
    started = broker.runtime.clock.monotonic()
    half = await peer.prepare(CHECK_IMMUNITY_TIME_IN_SECONDS="45")
    await asyncio.sleep(60)
    assert [round(at - started) // 3 for at, _, _ in peer.checks] == [15]
    late = await peer.end(half, COMMIT)
    assert late.code == ResponseCode.ILLEGAL_OPERATION
    _, header, _ = peer.checks[0]
    answer = end_request(header.tran_state_table_offset, header.commit_log_offset, COMMIT, check=True)
    assert (await peer.ask(answer.command())).code == ResponseCode.SUCCESS
    assert len(stored(broker, "Orders", 2)) == 1


async def test_a_long_immunity_does_not_hold_up_the_progress(broker: Broker, peer: TransactionPeer) -> None:
    half = await peer.prepare(CHECK_IMMUNITY_TIME_IN_SECONDS="1500", UNIQ_KEY="U1")
    await asyncio.sleep(700)
    assert broker.services.offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == 1
    copy = decode_properties(stored(broker, HALF)[1].properties)
    assert copy[property_names.TRANSACTION_PREPARED_QUEUE_OFFSET] == "0"
    assert peer.checks == []
    assert (await peer.end(half, COMMIT)).code == ResponseCode.SUCCESS
    await asyncio.sleep(1500)
    assert peer.checks == []
    assert broker.services.offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == 2


async def test_each_check_asks_another_producer(broker: Broker, peer: TransactionPeer) -> None:
    """A round number of open transactions must not give each the same producer again; one producer leaves
    later.
    """
    async with TransactionPeer(broker) as other:
        for number in range(2):
            await peer.prepare(b"%d" % number)
        await asyncio.sleep(8)
        first = [message.body for _, _, message in peer.checks]
        await asyncio.sleep(30)
        again = [message.body for _, _, message in peer.checks[len(first) :]]
        assert (len(first), len(again), set(first) & set(again)) == (1, 1, set())
        assert len(other.checks) == 2
        await other.client.close()
    await asyncio.sleep(30)
    assert len(peer.checks) == 4


# -- restarts ----------------------------------------------------------------------------------------------


def in_two_lives(
    first: Callable[[Broker, TransactionPeer], Awaitable[Any]],
    second: Callable[[Broker, TransactionPeer, Any], Awaitable[None]],
) -> None:
    async def main() -> None:
        runtime: SimulatedRuntime = simulated_runtime()
        async with Broker(runtime, broker_config()) as broker:
            peer = TransactionPeer(broker)
            await peer.beat()
            known = await first(broker, peer)
            await peer.client.close()
        async with Broker(runtime, broker_config()) as broker:
            peer = TransactionPeer(broker)
            await peer.beat()
            await second(broker, peer, known)
            await peer.client.close()

    run(main())


def test_a_restart_knows_what_is_open_and_what_has_ended() -> None:
    async def first(broker: Broker, peer: TransactionPeer) -> None:
        halves = [await peer.prepare(b"%d" % n) for n in range(5)]
        await peer.end(halves[1], COMMIT)
        await peer.end(halves[3], ROLLBACK)

    async def second(broker: Broker, peer: TransactionPeer, _known: Any) -> None:
        await asyncio.sleep(20)
        assert sorted(message.body for _, _, message in peer.checks) == [b"0", b"2", b"4"]

    in_two_lives(first, second)


@pytest.mark.behaviour("TX-09")
@pytest.mark.parametrize("open_ones", [(), (1,), (2, 4)])
def test_a_half_progress_that_goes_back_alone_reopens_nothing(open_ones: tuple[int, ...]) -> None:
    """Seed 7184: a slave that is behind and acted passes on an older half progress, and none of the marks."""

    async def first(broker: Broker, peer: TransactionPeer) -> None:
        halves = [await peer.prepare(b"%d" % n) for n in range(5)]
        for number, half in enumerate(halves):
            if number not in open_ones:
                await peer.end(half, COMMIT)
        await asyncio.sleep(4)
        offsets = broker.services.offsets
        done = min(open_ones, default=5)
        assert offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == done
        assert (offsets.query("CID_RMQ_SYS_TRANS", OP, 0) or 0) == done
        offsets.commit("CID_RMQ_SYS_TRANS", HALF, 0, 0)

    async def second(broker: Broker, peer: TransactionPeer, _known: Any) -> None:
        await asyncio.sleep(20)
        assert sorted(message.body for _, _, message in peer.checks) == [b"%d" % n for n in open_ones]

    in_two_lives(first, second)


@pytest.mark.behaviour("TX-10")
@pytest.mark.parametrize(("cut", "done"), [(0, 0), (2, 1), (4, 3), (5, 5)])
async def test_halves_are_open_again_whose_marks_are_about_to_be_cut_off(
    broker: Broker, peer: TransactionPeer, cut: int, done: int
) -> None:
    halves = [await peer.prepare(b"%d" % n) for n in range(5)]
    for number in (0, 2, 1, 4, 3):
        await peer.end(halves[number], COMMIT)
        await asyncio.sleep(0.1)
    services = broker.services
    # A mark without an offset is left by a broker that fails while it writes.
    services.append.put_many([NewMessage(OP, 0, b"", b"")])
    services.append.write()
    await services.store.flush()
    await asyncio.sleep(4)
    ends = [record.physical_offset for record in stored(broker, OP)]
    services.events.publish(CutAhead(ends[cut]))
    assert services.offsets.query("CID_RMQ_SYS_TRANS", HALF, 0) == done


def test_a_restart_knows_how_often_was_asked_and_which_copy_is_open() -> None:
    async def first(broker: Broker, peer: TransactionPeer) -> Half:
        half = await peer.prepare(UNIQ_KEY="U1")
        await asyncio.sleep(45)
        assert len(peer.checks) == 2
        return half

    async def second(broker: Broker, peer: TransactionPeer, half: Half) -> None:
        await asyncio.sleep(35)
        [(_, _, message)] = peer.checks
        assert decode_properties(message.properties)[property_names.TRANSACTION_CHECK_TIMES] == "3"
        assert (await peer.end(half, COMMIT)).code == ResponseCode.SUCCESS
        await asyncio.sleep(100)
        assert len(peer.checks) == 1
        assert len(stored(broker, "Orders", 2)) == 1

    in_two_lives(first, second)


@pytest.mark.behaviour("TX-13")
def test_a_copy_whose_original_has_no_mark_is_checked_alone() -> None:
    """A power loss cuts the log between the copy of a half message and the mark of its original."""

    async def first(broker: Broker, peer: TransactionPeer) -> None:
        half = await peer.prepare(b"once")
        [record] = stored(broker, HALF)
        properties = decode_properties(record.properties)
        properties[property_names.TRANSACTION_PREPARED_QUEUE_OFFSET] = str(half.offset)
        properties[property_names.TRANSACTION_CHECK_TIMES] = "1"
        broker.services.append.put_many([forms.renewed(record, properties)])

    async def second(broker: Broker, peer: TransactionPeer, _known: None) -> None:
        assert len(stored(broker, HALF)) == 2
        assert marks(broker) == []
        peer.answer = COMMIT
        await asyncio.sleep(100)
        assert len(peer.checks) == 1
        assert [record.body for record in stored(broker, "Orders", 2)] == [b"once"]
        # The original, its copy, and the copy that the check made have a mark each.
        assert sorted(marks(broker)) == [0, 1, 2]

    in_two_lives(first, second)


@pytest.mark.broker(transaction_check_max=2)
async def test_checks_of_a_discarded_message_can_begin_anew(broker: Broker, peer: TransactionPeer) -> None:
    await peer.prepare()
    await asyncio.sleep(100)
    assert len(peer.checks) == 2
    [given_up] = stored(broker, GIVEN_UP)
    request = ResumeCheckHalfMessageRequest(topic="Orders", msg_id=given_up.message_id)
    peer.answer = COMMIT
    assert (await peer.ask(request.command())).code == ResponseCode.SUCCESS
    await asyncio.sleep(10)
    assert len(peer.checks) == 3
    assert len(stored(broker, "Orders", 2)) == 1
