"""The services behind the handlers, called as by another protocol: without a command and a connection."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from orbitmq.broker.assembly import ports
from orbitmq.broker.broker import Broker
from orbitmq.broker.change_feed import TOPICS
from orbitmq.broker.clients.registry import Client
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.messaging.pulling import Pulled, PullRequest, PullStatus
from orbitmq.broker.messaging.send_back import ReturnedMessage
from orbitmq.broker.messaging.sending import Origin, SendRequest, Sent, Stored
from orbitmq.broker.parts import Ports
from orbitmq.message.batch import encode_batch
from orbitmq.message.model import Message
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import Record, decode_record, iter_records
from orbitmq.store import PutStatus
from orbitmq.testing import SimulatedLoop, SimulatedRuntime
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError

HERE = Origin(("10.1.2.3", 4567), 500)
MIB = 1024 * 1024


@pytest.fixture
def broker(orbitmq_loop: SimulatedLoop, orbitmq_runtime: SimulatedRuntime) -> Broker:
    config = BrokerConfig(listen_port=10911, store_path_root_dir="/store", mapped_file_size_commit_log=MIB)
    made = orbitmq_loop.enter(Broker(orbitmq_runtime, config))
    made.services.topics.create_if_absent("T", 4)
    return made


@pytest.fixture
def door(broker: Broker) -> Ports:
    return ports(broker.services)


async def finished(sent: Sent) -> Stored:
    return sent if isinstance(sent, Stored) else await sent


async def send(door: Ports, body: bytes = b"news", **values: object) -> Stored:
    values = {"topic": "T", "queue_id": 0, **values}
    return await finished(door.sending.send(HERE, SendRequest(body=body, **values)))  # type: ignore[arg-type]


def pull(offset: int = 0, **values: object) -> PullRequest:
    values = {"group": "g", "topic": "T", "queue_id": 0, "max_count": 32, "own_expression": True, **values}
    return PullRequest(offset=offset, **values)  # type: ignore[arg-type]


def records(pulled: Pulled | None) -> list[Record]:
    assert pulled is not None
    return list(iter_records(pulled.body))


@dataclass
class Waiting:
    """A client that waits for messages."""

    gone: bool = False
    heard: list[Pulled | RemotingError] = field(default_factory=list)

    def answer(self, pulled: Pulled) -> None:
        self.heard.append(pulled)

    def is_of(self, user: str) -> bool:
        return False

    def recheck(self) -> bool:
        return True

    def refuse(self, error: RemotingError) -> None:
        self.heard.append(error)


class Replying:
    """The connection of a client that waits for a reply."""

    remote_address = "10.1.2.9:1"

    def __init__(self, code: int = ResponseCode.SUCCESS) -> None:
        self.code = code
        self.asked: list[Command] = []

    def oneway(self, command: Command) -> None:
        raise AssertionError(f"a reply is a request, not {command}")

    async def request(self, command: Command, _timeout_ms: int) -> Command:
        self.asked.append(command)
        return command.reply(self.code, "as the test says")

    def close(self) -> None:
        raise AssertionError("nobody closes this client")


# -- sending -------------------------------------------------------------------------------------------------


async def test_a_message_is_completed_and_stored(broker: Broker, door: Ports) -> None:
    stored = await send(door, properties={"TAGS": "a"})
    assert (stored.queue_id, stored.queue_offset, stored.status) == (0, 0, PutStatus.OK)
    assert stored.end_offset == broker.services.store.flushed_offset
    (record,) = records(door.pulling.read(pull()))
    properties = decode_properties(record.properties)
    assert (record.body, record.born_host) == (b"news", HERE.born_host)
    assert properties["UNIQ_KEY"] == stored.transaction_id
    assert (properties["MSG_REGION"], properties["CLUSTER"]) == ("DefaultRegion", "DefaultCluster")


async def test_a_message_has_its_place_before_its_sender_waits(broker: Broker, door: Ports) -> None:
    await broker.services.metadata.save(TOPICS)
    first = door.sending.send(HERE, SendRequest("T", b"1", queue_id=0))
    second = door.sending.send(HERE, SendRequest("T", b"2", queue_id=0, properties={"WAIT": "false"}))
    assert not isinstance(first, Stored)
    assert isinstance(second, Stored)
    assert (second.queue_offset, (await first).queue_offset) == (1, 0)


async def test_a_batch_is_stored_as_a_whole(door: Ports) -> None:
    body = encode_batch([Message("T", b"one"), Message("T", b"two")])
    stored = await send(door, body, batch=True)
    assert stored.message_id.count(",") == 1
    assert [record.body for record in records(door.pulling.read(pull()))] == [b"one", b"two"]


async def test_a_topic_is_made_and_on_disk_before_its_first_message(broker: Broker, door: Ports) -> None:
    stored = await send(door, topic="New", queue_id=-1, default_topic_queue_nums=2)
    assert 0 <= stored.queue_id < 2
    assert broker.services.metadata.saved("New")


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"body": b""}, ResponseCode.MESSAGE_ILLEGAL),
        ({"topic": "a b"}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.NO_PERMISSION),
        ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER),
        ({"topic": "New", "default_topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"properties": {"k": "v" * 40_000}}, ResponseCode.MESSAGE_ILLEGAL),
        ({"body": b"not a batch", "batch": True}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
async def test_what_may_not_be_sent(door: Ports, values: dict[str, object], code: ResponseCode) -> None:
    with pytest.raises(RemotingError) as refused:
        await send(door, **{"body": b"x", **values})  # type: ignore[arg-type]
    assert refused.value.code == code


@pytest.mark.behaviour("SB-14")
async def test_a_message_sent_too_often_to_its_retry_topic_is_dead(broker: Broker, door: Ports) -> None:
    await send(door, topic="%RETRY%g", reconsume_times=3, max_reconsume_times=3)
    assert "%DLQ%g" not in broker.services.topics
    await send(door, topic="%RETRY%g", reconsume_times=4, max_reconsume_times=3)
    assert broker.services.store.max_offset("%DLQ%g", 0) == 1


# -- pulling -------------------------------------------------------------------------------------------------


async def test_a_pull_filters_and_commits(broker: Broker, door: Ports) -> None:
    for tag in ("a", "b", "a"):
        await send(door, properties={"TAGS": tag})
    pulled = door.pulling.read(pull(expression="b", commit_offset=2))
    assert pulled is not None
    assert (pulled.status, pulled.count, pulled.next_offset) == (PullStatus.FOUND, 1, 3)
    assert broker.services.offsets.query("g", "T", 0) == 2


async def test_a_pull_without_a_client_does_not_wait(broker: Broker, door: Ports) -> None:
    pulled = door.pulling.read(pull(suspend_ms=1000))
    assert pulled is not None
    assert pulled.status is PullStatus.NO_NEW_MSG
    assert len(broker.services.long_polling) == 0


async def test_a_pull_waits_for_what_its_filter_lets_pass(door: Ports) -> None:
    client = Waiting()
    assert door.pulling.read(pull(expression="b", suspend_ms=10_000), client) is None
    await send(door, properties={"TAGS": "a"})
    await asyncio.sleep(1)
    assert client.heard == []
    await send(door, b"for b", properties={"TAGS": "b"})
    await asyncio.sleep(0)
    (pulled,) = client.heard
    assert isinstance(pulled, Pulled)
    assert [record.body for record in records(pulled)] == [b"for b"]


async def test_a_pull_that_waited_in_vain_says_how_far_its_filter_got(door: Ports) -> None:
    client = Waiting()
    door.pulling.read(pull(expression="b", suspend_ms=2000), client)
    await send(door, properties={"TAGS": "a"})
    await asyncio.sleep(3)
    (pulled,) = client.heard
    assert isinstance(pulled, Pulled)
    assert (pulled.status, pulled.next_offset, pulled.body) == (PullStatus.NO_MATCHED_MSG, 1, b"")


async def test_a_pull_of_a_deleted_topic_is_refused(broker: Broker, door: Ports) -> None:
    client, left = Waiting(), Waiting()
    door.pulling.read(pull(suspend_ms=10_000), client)
    door.pulling.read(pull(suspend_ms=10_000), left)
    left.gone = True
    broker.services.topics.delete("T")
    (refused,) = client.heard
    assert isinstance(refused, RemotingError)
    assert refused.code == ResponseCode.TOPIC_NOT_EXIST
    assert left.heard == []


@pytest.mark.parametrize(
    ("values", "code"),
    [
        ({"topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER),
        ({"own_expression": False}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
        ({"expression_type": "XPATH"}, ResponseCode.SYSTEM_ERROR),
        ({"expression_type": "SQL92", "expression": "a >"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"expression": " || "}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
async def test_what_may_not_be_pulled(door: Ports, values: dict[str, object], code: ResponseCode) -> None:
    with pytest.raises(RemotingError) as refused:
        door.pulling.read(pull(**values))  # type: ignore[arg-type]
    assert refused.value.code == code


# -- sending back --------------------------------------------------------------------------------------------


async def test_a_message_comes_back_delayed_and_in_the_end_it_is_dead(broker: Broker, door: Ports) -> None:
    broker.services.groups.update(SubscriptionGroupConfig(group_name="g", retry_max_times=1))
    store = broker.services.store
    await send(door)
    entry = store.entry("T", 0, 0)
    assert entry is not None
    await door.send_back.return_(ReturnedMessage("g", entry[0]))
    await asyncio.sleep(15)
    found = [store.get("%RETRY%g", 0, 0, 32)]
    (again,) = [record for result in found for record in iter_records(result.body)]
    assert (again.body, again.reconsume_times) == (b"news", 1)
    await door.send_back.return_(ReturnedMessage("g", again.physical_offset))
    dead = decode_record(store.get("%DLQ%g", 0, 0, 1).body)
    assert (dead.body, dead.reconsume_times) == (b"news", 2)


async def test_what_is_not_stored_cannot_come_back(door: Ports) -> None:
    with pytest.raises(RemotingError, match="look message by offset failed, 999999") as refused:
        await door.send_back.return_(ReturnedMessage("g", 999_999))
    assert refused.value.code == ResponseCode.SYSTEM_ERROR


# -- replying ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR])
async def test_a_reply_is_pushed_to_the_client_that_waits(
    broker: Broker, door: Ports, code: ResponseCode
) -> None:
    connection = Replying(code)
    broker.services.clients.register_producer("asking", Client(connection, "client-1", 0, 500))
    request = SendRequest("T", b"answer", properties={"REPLY_TO_CLIENT": "client-1"}, queue_id=0)
    replied = await door.reply.reply(HERE, request)
    (pushed,) = connection.asked
    assert (pushed.code, pushed.body) == (RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, b"answer")
    assert pushed.ext["bornHost"] == "10.1.2.3:4567"
    assert (replied.failure is None) == (code == ResponseCode.SUCCESS)
    # the message is kept for a client that was offline
    assert (replied.queue_offset, replied.message_id != "0") == (0, True)


# -- moving groups -------------------------------------------------------------------------------------------


async def test_a_group_that_was_moved_hears_of_it_once(broker: Broker, door: Ports) -> None:
    for _ in range(3):
        await send(door)
    broker.services.groups.find("g")
    table = await door.group_reset.move("g", "T", queue_id=0, offset=1)
    assert [(queue.queue_id, offset) for queue, offset in table.items()] == [(0, 1)]
    assert door.queue_offsets.commit("g", "T", 0, 3) is False
    moved = door.pulling.read(pull(3))
    assert moved is not None
    assert (moved.status, moved.remark, moved.next_offset) == (PullStatus.OFFSET_ILLEGAL, "OFFSET_RESET", 1)
    after = door.pulling.read(pull(1))
    assert after is not None
    assert (after.status, after.count) == (PullStatus.FOUND, 2)
    with pytest.raises(RemotingError, match=r"9 not in consume queue range \[0-3\]"):
        await door.group_reset.move("g", "T", queue_id=0, offset=9)


@pytest.mark.behaviour("MO-19")
async def test_a_group_hears_again_that_it_was_moved_when_the_answer_was_lost(
    broker: Broker, door: Ports
) -> None:
    for _ in range(3):
        await send(door)
    broker.services.groups.find("g")
    await door.group_reset.move("g", "T", queue_id=0, offset=1)
    for _ in range(2):
        moved = door.pulling.read(pull(3, commit_offset=3))
        assert moved is not None
        assert (moved.remark, moved.next_offset) == ("OFFSET_RESET", 1)
        assert door.queue_offsets.commit("g", "T", 0, 3) is False
    for offset in (1, 3):
        after = door.pulling.read(pull(offset, commit_offset=offset))
        assert after is not None
        assert after.remark != "OFFSET_RESET"
        assert broker.services.offsets.query("g", "T", 0) == offset


@pytest.mark.behaviour("MO-19")
async def test_who_goes_nowhere_else_hears_five_times_that_its_group_was_moved(
    broker: Broker, door: Ports
) -> None:
    for _ in range(3):
        await send(door)
    broker.services.groups.find("g")
    await door.group_reset.move("g", "T", queue_id=0, offset=1)
    answers = [door.pulling.read(pull(2)) for _ in range(6)]
    remarks = [answer.remark for answer in answers if answer is not None]
    assert remarks == 5 * ["OFFSET_RESET"] + ["FOUND"]


async def test_a_waiting_pull_is_told_that_its_group_was_moved(broker: Broker, door: Ports) -> None:
    await send(door)
    client = Waiting()
    assert door.pulling.read(pull(1, suspend_ms=10_000), client) is None
    await door.group_reset.move("g", "T", timestamp_ms=0)
    (moved,) = client.heard
    assert isinstance(moved, Pulled)
    assert (moved.remark, moved.next_offset) == ("OFFSET_RESET", 0)


@pytest.mark.behaviour("MO-23")
async def test_a_group_gets_the_offsets_of_another(broker: Broker, door: Ports) -> None:
    broker.services.offsets.keep("g", "T", 2, 7)
    broker.services.topics.create_if_absent("%RETRY%g", 1)
    broker.services.offsets.commit("g", "%RETRY%g", 0, 1)
    await door.group_reset.clone("g", "h")
    assert door.queue_offsets.start("h", "T", 2) == 7
    # the offset in the other group's retry topic is not copied
    assert broker.services.offsets.topics_of("h") == {"T"}
    with pytest.raises(RemotingError) as unknown:
        door.queue_offsets.start("new", "T", 2, zero_if_young=False)
    assert unknown.value.code == ResponseCode.QUERY_NOT_FOUND
