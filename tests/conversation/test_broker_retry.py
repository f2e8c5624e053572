"""Messages that consumers send back: commands and responses, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from tests.conversation.broker_peer import HANGS_S, BrokerPeer, hang, records, send_request

from orbitmq.broker.broker import Broker
from orbitmq.message.model import MessageQueue
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import Record
from orbitmq.testing import SimulatedLoop, SimulatedRuntime
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.send import ConsumerSendMsgBackRequest, SendMessageResponse
from orbitmq.wire.versions import V3_4_9

SCHEDULE = "SCHEDULE_TOPIC_XXXX"
RETRY = "%RETRY%cg"
DEAD = "%DLQ%cg"
LADDER_S = [10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200]


class Peer(BrokerPeer):
    """A consumer of group ``cg``, and a producer."""

    async def put(
        self, body: bytes = b"x", properties: dict[str, str] | None = None, topic: str = "T", **values: Any
    ) -> Command:
        version = values.pop("version", None)
        request = send_request(topic, 0, default_topic_queue_nums=1, properties=properties, **values)
        command = request.command(body)
        if version is not None:
            command.version = version
        return await self.ask(command)

    async def read(self, topic: str, offset: int = 0, queue_id: int = 0, wait_ms: int = 0) -> list[Record]:
        answer = await self.pull(
            offset,
            topic=topic,
            queue_id=queue_id,
            consumer_group="TOOLS_CONSUMER",
            sys_flag=6 if wait_ms else 4,
            suspend_timeout_millis=wait_ms,
        )
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND), answer.remark
        return records(answer)

    async def one(self, topic: str, offset: int = 0) -> Record:
        """The message at ``offset``, once it exists."""
        while not (found := await self.read(topic, offset, wait_ms=15_000)):
            pass
        return found[0]

    async def back(
        self, record: Record, level: int = 0, version: int | None = None, **values: Any
    ) -> Command:
        header = ConsumerSendMsgBackRequest(
            **{"offset": record.physical_offset, "group": "cg", "delay_level": level, **values}
        )
        command = header.command()
        if version is not None:
            command.version = version
        return await self.ask(command)

    async def delivered(self) -> Record:
        """A message of topic T that the broker has just delivered."""
        answer = SendMessageResponse.from_ext((await self.put(b"body", {"TAGS": "a", "k": "v"})).ext)
        return await self.one("T", answer.queue_offset)


@pytest.fixture
def peer(broker: Broker, orbitmq_loop: SimulatedLoop) -> Peer:
    return orbitmq_loop.enter(Peer(broker.runtime))


def group(broker: Broker, **values: Any) -> None:
    broker.services.groups.update(SubscriptionGroupConfig(group_name="cg", **values))


@pytest.mark.behaviour("TW-14")
async def test_a_message_sent_back_with_a_delay_in_time_comes_when_it_is_over(
    broker: Broker, peer: Peer
) -> None:
    first = await peer.delivered()
    start = peer.now()
    answer = await peer.back(first, level=3, delay_ms=2500)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    again = await peer.one(RETRY)
    assert start + 2500 <= again.store_timestamp <= start + 2600
    # The message has waited for a timer once; that must not keep it from a second one.
    start = peer.now()
    assert (await peer.back(again, level=3, delay_ms=700)).code == ResponseCode.SUCCESS
    again = await peer.one(RETRY, 1)
    assert start + 700 <= again.store_timestamp <= start + 800
    assert again.reconsume_times == 2
    # A message sent back with a delay level loses its timer.
    start = peer.now()
    assert (await peer.back(again, level=2)).code == ResponseCode.SUCCESS
    assert (await peer.one(RETRY, 2)).store_timestamp >= start + 5000


@pytest.mark.behaviour("SB-01")
@pytest.mark.behaviour("SB-04")
@pytest.mark.behaviour("SB-08")
@pytest.mark.behaviour("SB-09")
@pytest.mark.behaviour("SB-10")
async def test_a_message_sent_back_comes_again_later(broker: Broker, peer: Peer) -> None:
    first = await peer.delivered()
    assert (await peer.back(first, origin_topic="T")).code == ResponseCode.SUCCESS
    topic = broker.services.topics.get(RETRY)
    assert topic is not None
    assert (topic.perm, topic.read_queue_nums, topic.write_queue_nums) == (6, 1, 1)

    [waiting] = await peer.read(SCHEDULE, 0, 2)
    properties = decode_properties(waiting.properties)
    assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == (RETRY, "0")

    second = await peer.one(RETRY)
    assert abs(second.store_timestamp - first.store_timestamp - 10_000) <= 100
    kept = ("body", "flag", "sys_flag", "born_timestamp", "born_host", "store_host")
    assert [getattr(second, name) for name in kept] == [getattr(first, name) for name in kept]
    assert second.reconsume_times == 1
    before, after = decode_properties(first.properties), decode_properties(second.properties)
    assert before.items() <= after.items()
    assert after["RETRY_TOPIC"] == "T"
    assert after["ORIGIN_MESSAGE_ID"] == first.message_id != second.message_id
    assert after["UNIQ_KEY"] == before["UNIQ_KEY"]
    assert after["WAIT"] == "false"

    await peer.back(second)
    third = decode_properties((await peer.one(RETRY, 1)).properties)
    assert third["RETRY_TOPIC"] == "T"
    assert third["ORIGIN_MESSAGE_ID"] == first.message_id


@pytest.mark.behaviour("SB-06")
@pytest.mark.behaviour("SB-07")
@pytest.mark.behaviour("SB-11")
@pytest.mark.behaviour("DQ-01")
@pytest.mark.behaviour("DQ-02")
@pytest.mark.behaviour("DQ-04")
@pytest.mark.behaviour("DQ-05")
async def test_sixteen_retries_with_growing_delays_and_then_a_dead_letter(broker: Broker, peer: Peer) -> None:
    first = record = await peer.delivered()
    for place, delay_s in enumerate(LADDER_S):
        sent_back = peer.runtime.clock.now_ms()
        assert (await peer.back(record)).code == ResponseCode.SUCCESS
        assert await peer.read(SCHEDULE, 0, place + 2)
        record = await peer.one(RETRY, place)
        assert 0 <= record.store_timestamp - sent_back - delay_s * 1000 <= 100
        assert record.reconsume_times == place + 1
    assert len(LADDER_S) == 16
    assert sum(LADDER_S) == 17140
    assert broker.services.topics.get(DEAD) is None
    assert (await peer.back(record)).code == ResponseCode.SUCCESS
    [dead] = await peer.read(DEAD)
    assert dead.reconsume_times == 17
    assert dead.body == b"body"
    properties = decode_properties(dead.properties)
    assert (properties["RETRY_TOPIC"], properties["ORIGIN_MESSAGE_ID"]) == ("T", first.message_id)
    topic = broker.services.topics.get(DEAD)
    assert topic is not None
    assert (topic.perm, topic.read_queue_nums, topic.write_queue_nums) == (6, 1, 1)
    await broker.services.store.stop()
    assert peer.runtime.files.list_dir(f"/store/consumequeue/{DEAD}/0") == ["0" * 20]


@pytest.mark.behaviour("SB-06")
@pytest.mark.behaviour("SB-07")
async def test_the_consumer_may_choose_the_level_or_give_up(peer: Peer) -> None:
    record = await peer.delivered()
    await peer.back(record, 1)
    assert (await peer.one(RETRY)).store_timestamp - record.store_timestamp < 1200
    await peer.back(record, -1)
    [dead] = await peer.read(DEAD)
    assert dead.reconsume_times == 1


@pytest.mark.behaviour("SB-05")
async def test_whose_limit_counts_depends_on_the_clients_version(broker: Broker, peer: Peer) -> None:
    group(broker, retry_max_times=0)
    record = await peer.delivered()
    await peer.back(record, max_reconsume_times=5)
    await peer.back(record, max_reconsume_times=5, version=V3_4_9)
    assert broker.services.topics.get(DEAD) is None
    await peer.back(record, max_reconsume_times=5, version=V3_4_9 - 1)
    await peer.back(record)
    assert len(await peer.read(DEAD)) == 2


@pytest.mark.behaviour("SB-02")
async def test_the_retry_queue_is_drawn_among_those_of_the_group(broker: Broker, peer: Peer) -> None:
    group(broker, retry_queue_nums=3)
    record = await peer.delivered()
    for _ in range(20):
        await peer.back(record, 1)
    await peer.runtime.clock.sleep(2)
    found = [len(await peer.read(RETRY, 0, queue_id)) for queue_id in range(3)]
    assert sum(found) == 20
    assert all(found)
    # The topic exists with three queues when the group is set to more.
    group(broker, retry_queue_nums=9)
    for _ in range(10):
        assert (await peer.back(record, 1)).code == ResponseCode.SUCCESS


@pytest.mark.behaviour("SB-03")
@pytest.mark.broker(auto_create_subscription_group=False)
async def test_what_cannot_be_sent_back_says_why(broker: Broker, peer: Peer) -> None:
    record = await peer.delivered()
    answer = await peer.back(record)
    assert (answer.code, "cg" in (answer.remark or "")) == (26, True)
    group(broker, retry_queue_nums=0)
    assert (await peer.back(record)).code == ResponseCode.SUCCESS
    assert broker.services.topics.get(RETRY) is None
    group(broker)
    answer = await peer.back(record, offset=record.physical_offset + 1)
    assert (answer.code, answer.remark) == (
        1,
        f"look message by offset failed, {record.physical_offset + 1}",
    )
    broker.services.topics.create_if_absent(DEAD, 1, perm=4)
    assert (await peer.back(record, -1)).code == ResponseCode.NO_PERMISSION
    broker.config.broker_permission = 4
    assert (await peer.back(record)).code == ResponseCode.NO_PERMISSION
    assert await peer.read(SCHEDULE, 0, 2) == []


@pytest.mark.behaviour("SB-21")
async def test_another_message_at_the_place_does_not_come_back(broker: Broker, peer: Peer) -> None:
    group(broker)
    ours, other = "7F000001048121D6852A47B7668A87F2", "7F000001048121D6852A47B77ADF8859"
    sent = SendMessageResponse.from_ext((await peer.put(b"body", {"UNIQ_KEY": ours})).ext)
    record = await peer.one("T", sent.queue_offset)
    assert (await peer.back(record, origin_msg_id=ours)).code == ResponseCode.SUCCESS
    assert (await peer.back(record, origin_msg_id="")).code == ResponseCode.SUCCESS
    answer = await peer.back(record, origin_msg_id=other)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"originMsgId is {other}, stored there is {ours}" in (answer.remark or "")
    # Some consumers name a message by its log offset only.
    assert (await peer.back(record, origin_msg_id=record.message_id)).code == ResponseCode.SUCCESS


@pytest.mark.behaviour("SB-12")
@pytest.mark.broker(flush_disk_type="SYNC_FLUSH", sync_flush_timeout_ms=1000)
async def test_only_a_stored_copy_is_a_success(broker: Broker, peer: Peer, runtime: SimulatedRuntime) -> None:
    record = await peer.delivered()
    sync = runtime.threads.sync
    hang(runtime)
    answer = await peer.back(record)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "FLUSH_DISK_TIMEOUT")
    runtime.threads.sync = sync  # type: ignore[method-assign]
    await runtime.clock.sleep(HANGS_S)
    assert (await peer.back(record)).code == ResponseCode.SUCCESS
    broker.services.store.refuse("the disk of the test is full")
    answer = await peer.back(record)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "full" in (answer.remark or "")


@pytest.mark.behaviour("SB-13")
@pytest.mark.broker(broker_role="SLAVE", broker_id=1)
async def test_a_slave_takes_nothing_back(peer: Peer) -> None:
    answer = await peer.ask(ConsumerSendMsgBackRequest(offset=0, group="cg", delay_level=0).command())
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark == "no master available along with 127.0.0.1"


@pytest.mark.behaviour("SB-14")
@pytest.mark.behaviour("SB-15")
async def test_a_normal_send_to_the_retry_topic_is_delayed_or_dead(broker: Broker, peer: Peer) -> None:
    properties = {"DELAY": "3", "RETRY_TOPIC": "T"}
    assert (await peer.put(b"16", properties, RETRY, reconsume_times=16)).code == ResponseCode.SUCCESS
    assert broker.services.topics.get(DEAD) is None
    assert len(await peer.read(SCHEDULE, 0, 2)) == 1
    answer = await peer.put(b"17", properties, RETRY, reconsume_times=17)
    assert answer.code == ResponseCode.SUCCESS
    [dead] = await peer.read(DEAD)
    assert (dead.body, dead.reconsume_times) == (b"17", 17)
    assert decode_properties(dead.properties)["DELAY"] == "-1"
    # The limit in the request, which old clients do not send.
    await peer.put(b"3", properties, RETRY, reconsume_times=3, max_reconsume_times=2)
    await peer.put(b"3", properties, RETRY, reconsume_times=3, max_reconsume_times=2, version=V3_4_9 - 1)
    assert len(await peer.read(DEAD)) == 2
    assert (await peer.one(RETRY)).body == b"16"


@pytest.mark.behaviour("SB-16")
async def test_a_group_that_consumes_in_order_sends_dead_letters_at_once(broker: Broker, peer: Peer) -> None:
    broker.services.locks.lock("cg", "client", [MessageQueue("T", "broker-a", 0)])
    await peer.put(b"x", {"DELAY": "3"}, RETRY, reconsume_times=1)
    assert [record.body for record in await peer.read(DEAD)] == [b"x"]
    await peer.runtime.clock.sleep(61)
    await peer.put(b"y", {"DELAY": "3"}, RETRY, reconsume_times=1)
    assert (await peer.one(RETRY)).body == b"y"
    assert len(await peer.read(DEAD)) == 1


@pytest.mark.broker(auto_create_subscription_group=False)
async def test_a_send_to_the_retry_topic_of_an_unknown_group_is_refused(peer: Peer) -> None:
    answer = await peer.put(b"x", {}, RETRY)
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
