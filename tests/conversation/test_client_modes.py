"""Ways of consuming: in order, broadcast, and messages with an unreadable body."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from tests.conversation.scripted import consumer_of, running, until

from orbitmq import (
    ConsumeFrom,
    Consumer,
    Message,
    MessageQueue,
    Producer,
    PullConsumer,
    Reader,
    ReceivedMessage,
)
from orbitmq.client.consumer.offsets import LocalOffsets
from orbitmq.cluster.local import LocalCluster
from orbitmq.errors import ClientStateError
from orbitmq.message.errors import CompressionError
from orbitmq.message.model import UnreadableMessage
from orbitmq.message.properties import encode_properties, parse_properties
from orbitmq.message.sysflag import COMPRESSED
from orbitmq.testing import SimulatedRuntime
from orbitmq.wire.bodies.client import LockBatchRequestBody
from orbitmq.wire.codes import RequestCode

QUEUE = MessageQueue("t", "a", 0)


def locks_of(broker: Any) -> list[LockBatchRequestBody]:
    return [LockBatchRequestBody.decode(c.body) for c in broker.requests(RequestCode.LOCK_BATCH_MQ)]


# -- in order --------------------------------------------------------------------------------------------


@pytest.mark.behaviour("CR-18")
@pytest.mark.parametrize(("asked_ms", "pause_s"), [(1000, 1.0), (1, 0.01), (60_000, 30.0)])
async def test_a_failure_pauses_its_queue_and_no_other(world: Any, asked_ms: int, pause_s: float) -> None:
    world.topics["t"] = {"a": 2}
    broker = world.brokers["a"]
    for number in range(6):
        broker.store("t", b"%d" % number, number % 2)
    seen: list[tuple[int, bytes, int, float]] = []

    async def listener(message: ReceivedMessage) -> None:
        now = world.runtime.clock.monotonic()
        seen.append((message.queue_id, message.body, message.reconsume_times, now))
        if message.body == b"2" and message.reconsume_times < 2:
            raise RuntimeError("not yet")

    async with running(consumer_of(world, ordered=True, failure_pause=asked_ms / 1000), listener):
        await until(world, lambda: len(seen) == 8, 70)
    first = [entry for entry in seen if entry[0] == 0]
    assert [(body, times) for _, body, times, _ in first] == [
        (b"0", 0),
        (b"2", 0),
        (b"2", 1),
        (b"2", 2),
        (b"4", 0),
    ]
    gaps = [first[step + 1][3] - first[step][3] for step in (1, 2)]
    assert gaps == pytest.approx([pause_s, pause_s], abs=0.005)
    other = [entry for entry in seen if entry[0] == 1]
    assert [body for _, body, _, _ in other] == [b"1", b"3", b"5"]
    assert other[-1][3] < first[2][3]
    assert broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK) == []
    assert broker.offsets["cg", "t", 0] == 3


@pytest.mark.behaviour("CR-14")
@pytest.mark.behaviour("CR-18")
async def test_after_the_last_try_an_ordered_message_goes_to_the_retry_topic(world: Any) -> None:
    world.topics.update({"t": {"a": 1}, "%RETRY%cg": {"a": 1}})
    broker = world.brokers["a"]
    broker.store("t", b"bad")
    broker.store("t", b"good")
    seen: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if message.body == b"bad":
            raise RuntimeError("never")

    consumer = consumer_of(world, ordered=True, max_reconsume_times=2, failure_pause=0.01)
    async with running(consumer, listener):
        await until(world, lambda: b"good" in seen)
    assert seen[:4] == [b"bad", b"bad", b"bad", b"good"]
    (sent,) = broker.requests(RequestCode.SEND_MESSAGE_V2)
    assert sent.ext["b"] == "%RETRY%cg"
    properties = parse_properties(sent.ext["i"])
    assert properties["RETRY_TOPIC"] == "t"
    assert (sent.ext["j"], sent.ext["l"]) == ("3", "2")
    assert broker.offsets["cg", "t", 0] == 2


async def test_an_ordered_message_that_no_broker_takes_keeps_its_place(world: Any) -> None:
    world.topics.update({"t": {"a": 1}, "%RETRY%cg": {"a": 1}})
    broker = world.brokers["a"]
    broker.store("t", b"bad")
    broker.store("t", b"good")
    refusing = True

    def script(command: Any) -> Any:
        if command.code == RequestCode.SEND_MESSAGE_V2 and refusing:
            return command.reply(13, "no")
        return "default"

    broker.script = script
    seen: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)
        if message.body == b"bad":
            raise RuntimeError("never")

    consumer = consumer_of(world, ordered=True, max_reconsume_times=0, failure_pause=0.1)
    async with running(consumer, listener):
        await until(world, lambda: len(seen) == 5)
        assert set(seen) == {b"bad"}
        refusing = False
        await until(world, lambda: b"good" in seen)


@pytest.mark.behaviour("LK-02")
@pytest.mark.behaviour("LK-03")
async def test_a_queue_is_taken_with_its_lock_and_the_lock_is_renewed(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    broker.store("t", b"x")
    broker.locks.lock("cg", "somebody", [QUEUE])
    seen: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)

    async with running(consumer_of(world, ordered=True), listener) as consumer:
        await world.runtime.clock.sleep(10)
        assert QUEUE not in consumer.assignment()
        assert seen == []
        broker.locks.unlock("cg", "somebody", [QUEUE])
        await until(world, lambda: seen == [b"x"])
        taken = broker.times(RequestCode.LOCK_BATCH_MQ)[-1]
        await world.runtime.clock.sleep(81)
        renewed = [when for when in broker.times(RequestCode.LOCK_BATCH_MQ) if when > taken]
        assert [round(two - one) for one, two in pairwise(renewed)] == [20, 20, 20]
        assert QUEUE in locks_of(broker)[-1].mq_set
    assert broker.requests(RequestCode.UNLOCK_BATCH_MQ)
    assert not broker.locks.any_held("cg")


@pytest.mark.behaviour("LK-02")
async def test_without_a_renewal_for_30_s_nothing_more_is_delivered(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker, clock = world.brokers["a"], world.runtime.clock
    seen: list[float] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(clock.monotonic())

    silent = False

    def script(command: Any) -> Any:
        if silent and command.code == RequestCode.LOCK_BATCH_MQ:
            return command.reply(1, "out of order")
        return "default"

    broker.script = script
    async with running(consumer_of(world, ordered=True), listener):
        broker.store("t", b"x")
        await until(world, lambda: seen)
        locked = broker.times(RequestCode.LOCK_BATCH_MQ)[-1]
        silent = True
        while clock.monotonic() < locked + 50:
            broker.store("t", b"x")
            await clock.sleep(0.2)
        assert 29.5 < seen[-1] - locked <= 30.1
        silent = False
        delivered = len(seen)
        await until(world, lambda: len(seen) > delivered, 25)


async def test_a_lock_that_went_to_another_member_ends_the_work_on_its_queue(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]

    async def listener(message: ReceivedMessage) -> None:
        pass

    async with running(consumer_of(world, ordered=True), listener) as consumer:
        await until(world, lambda: QUEUE in consumer.assignment())
        broker.locks._groups.clear()
        broker.locks.lock("cg", "somebody", [QUEUE])
        await until(world, lambda: QUEUE not in consumer.assignment(), 25)


@pytest.mark.behaviour("LK-13")
async def test_a_queue_that_cannot_be_begun_with_is_left_to_others(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    failed: list[Any] = []

    def script(command: Any) -> Any:
        if command.code == RequestCode.QUERY_CONSUMER_OFFSET:
            failed.append(command)
            return command.reply(1, "out of order")
        return "default"

    broker.script = script

    async def listener(message: ReceivedMessage) -> None:
        pass

    async with running(consumer_of(world, ordered=True), listener):
        await until(world, lambda: failed)
        # The queue goes to another member, so this one must not lock it again.
        world.topics["t"] = {"a": 0}
        await until(world, lambda: broker.locks.lock("cg", "somebody", [QUEUE]), 10)
        await world.runtime.clock.sleep(100)
        assert broker.locks.lock("cg", "somebody", [QUEUE]) == [QUEUE]


@pytest.mark.behaviour("LK-13")
async def test_a_queue_that_is_unsubscribed_while_it_is_taken_is_left_to_others(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    asked = asyncio.Event()

    async def late(command: Any) -> Any:
        asked.set()
        await world.runtime.clock.sleep(1)
        return command.reply(0, ext={"offset": "0"})

    def script(command: Any) -> Any:
        return late(command) if command.code == RequestCode.QUERY_CONSUMER_OFFSET else "default"

    broker.script = script

    async def listener(message: ReceivedMessage) -> None:
        pass

    async with running(consumer_of(world, ordered=True), listener) as consumer:
        await asked.wait()
        consumer.unsubscribe("t")
        await until(world, lambda: broker.locks.lock("cg", "somebody", [QUEUE]), 10)
        assert QUEUE not in consumer.assignment()


@pytest.mark.behaviour("LK-08")
@pytest.mark.parametrize(("work_s", "kept_s"), [(3.0, 3.0), (60.0, 20.0)])
async def test_a_lost_queue_is_unlocked_when_its_work_ends_or_after_20_s(
    world: Any, work_s: float, kept_s: float
) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    broker.store("t", b"x")
    begun: list[float] = []

    async def listener(message: ReceivedMessage) -> None:
        begun.append(world.runtime.clock.monotonic())
        await world.runtime.clock.sleep(work_s)

    async with running(consumer_of(world, ordered=True, close_timeout=1), listener) as consumer:
        await until(world, lambda: begun)
        consumer.unsubscribe("t")
        freed = await until(world, lambda: broker.requests(RequestCode.UNLOCK_BATCH_MQ), 30)
        assert freed == pytest.approx(kept_s, abs=0.1)
        assert broker.offsets.get(("cg", "t", 0), 0) == (1 if work_s == kept_s else 0)
        await world.runtime.clock.sleep(work_s)


async def test_a_second_member_goes_on_exactly_where_the_first_stopped(world: Any) -> None:
    world.topics["t"] = {"a": 4}
    broker = world.brokers["a"]
    for number in range(200):
        broker.store("t", b"%d" % number, number % 4)
    seen: list[ReceivedMessage] = []
    busy: set[int] = set()

    async def listener(message: ReceivedMessage) -> None:
        assert message.queue_id not in busy, "two members work on one queue"
        busy.add(message.queue_id)
        await world.runtime.clock.sleep(0.05)
        busy.discard(message.queue_id)
        seen.append(message)

    async with running(consumer_of(world, ordered=True), listener):
        await until(world, lambda: len(seen) > 40)
        async with running(consumer_of(world, ordered=True), listener) as second:
            await until(world, lambda: len(second.assignment()) == 2, 10)
            await until(world, lambda: len(seen) >= 200, 20)
    for queue_id in range(4):
        offsets = [message.queue_offset for message in seen if message.queue_id == queue_id]
        assert offsets == list(range(50))


@pytest.mark.parametrize("orbitmq_seed", range(3))
@pytest.mark.orbitmq(limit_s=600)
async def test_ordered_work_on_a_real_broker_survives_failures(runtime: SimulatedRuntime) -> None:
    async with LocalCluster(runtime, brokers=1, root="/data") as cluster:
        async with Producer("p", name_servers=cluster.name_server, runtime=runtime) as producer:
            for number in range(60):
                await producer.send(Message("t", b"%d" % number), ordering_key=number % 3)
        seen: dict[int, list[int]] = {}
        failures = 0

        async def listener(message: ReceivedMessage) -> None:
            nonlocal failures
            await runtime.clock.sleep(runtime.random.random() / 100)
            if runtime.random.random() < 0.2:
                failures += 1
                raise RuntimeError("sometimes")
            number = int(message.body)
            seen.setdefault(number % 3, []).append(number)

        consumer = Consumer(
            "cg",
            name_servers=cluster.name_server,
            runtime=runtime,
            ordered=True,
            failure_pause=0.05,
            consume_from=ConsumeFrom.FIRST,
        )
        consumer.subscribe("t")
        async with consumer:
            task = asyncio.get_running_loop().create_task(consumer.run(listener))
            while sum(map(len, seen.values())) < 60:
                await runtime.clock.sleep(0.05)
        await task
        assert failures
        for key, numbers in seen.items():
            assert numbers == list(range(key, 60, 3))


@pytest.mark.behaviour("CR-18")
@pytest.mark.behaviour("SB-16")
@pytest.mark.orbitmq(limit_s=600)
async def test_what_an_ordered_group_gives_up_is_a_dead_letter_at_once_on_a_real_broker(
    runtime: SimulatedRuntime,
) -> None:
    async with LocalCluster(runtime, brokers=1, root="/data") as cluster:
        options: dict[str, Any] = {
            "name_servers": cluster.name_server,
            "runtime": runtime,
            "consume_from": ConsumeFrom.FIRST,
        }
        async with Producer("p", name_servers=cluster.name_server, runtime=runtime) as producer:
            for body in (b"bad", b"good"):
                await producer.send(Message("t", body), ordering_key="one queue")
        seen: list[bytes] = []

        async def listener(message: ReceivedMessage) -> None:
            seen.append(message.body)
            if message.body == b"bad":
                raise RuntimeError("never")

        consumer = Consumer("cg", ordered=True, max_reconsume_times=2, failure_pause=0.1, **options)
        async with running(consumer, listener):
            while b"good" not in seen:
                await runtime.clock.sleep(0.05)
            await runtime.clock.sleep(1)
        assert seen == [b"bad"] * 3 + [b"good"]
        async with Reader("%DLQ%cg", name_servers=cluster.name_server, runtime=runtime) as dead:
            assert [message.body async for message in dead] == [b"bad"]


@pytest.mark.behaviour("CR-05")
@pytest.mark.orbitmq(limit_s=600)
async def test_broadcast_on_a_real_broker(runtime: SimulatedRuntime) -> None:
    async with LocalCluster(runtime, brokers=2, root="/data") as cluster:
        async with Producer("p", name_servers=cluster.name_server, runtime=runtime) as producer:
            for number in range(40):
                await producer.send(Message("t", b"%d" % number))
        seen: list[bytes] = []

        async def listener(message: ReceivedMessage) -> None:
            seen.append(message.body)
            raise RuntimeError("it does not come again")

        for name in ("one", "two", "one"):
            consumer = Consumer(
                "cg",
                name_servers=cluster.name_server,
                runtime=runtime,
                broadcast=True,
                offsets_folder=f"/home/{name}",
                consume_from=ConsumeFrom.FIRST,
            )
            async with running(consumer, listener):
                await runtime.clock.sleep(15)
        assert sorted(seen) == sorted([b"%d" % number for number in range(40)] * 2)


@pytest.mark.behaviour("CR-01")
@pytest.mark.behaviour("CR-03")
async def test_each_message_is_handed_over_and_settled_alone(world: Any) -> None:
    """Java uses an acknowledge index inside a batch; here each message is settled by itself."""

    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    for number in range(10):
        broker.store("t", b"%d" % number, 0, encode_properties({"UNIQ_KEY": f"id{number}"}))
    seen: list[ReceivedMessage] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message)
        if int(message.body) > 7:
            raise RuntimeError("the last two failed")

    async with running(consumer_of(world), listener):
        await until(world, lambda: len(broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)) == 2)
    assert sorted(message.body for message in seen) == [b"%d" % number for number in range(10)]
    back = broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert {command.ext["originMsgId"] for command in back} == {"id8", "id9"}
    assert broker.offsets["cg", "t", 0] == 10


# -- broadcast -------------------------------------------------------------------------------------------


@pytest.mark.behaviour("CR-05")
@pytest.mark.behaviour("CR-16")
@pytest.mark.scripted("a", "b")
async def test_every_member_gets_everything_once_and_failures_are_not_repeated(world: Any) -> None:
    world.topics["t"] = {"a": 2, "b": 1}
    for broker in world.brokers.values():
        for number in range(5):
            broker.store("t", b"%d" % number)
    seen: dict[str, list[bytes]] = {"one": [], "two": []}

    def listener(name: str) -> Any:
        async def listen(message: ReceivedMessage) -> None:
            seen[name].append(message.body)
            if message.body == b"3":
                raise RuntimeError("not today")

        return listen

    one = consumer_of(world, broadcast=True, offsets_folder="/home/one")
    two = consumer_of(world, broadcast=True, offsets_folder="/home/two")
    async with running(one, listener("one")), running(two, listener("two")):
        await until(world, lambda: len(seen["one"]) == len(seen["two"]) == 10)
        await world.runtime.clock.sleep(30)
        assert len(one.assignment()) == 3
        heard = world.brokers["a"].heartbeats[one._client.client_id].consumer_data_set[0]
        assert heard.message_model.value == "BROADCASTING"
        assert [data.topic for data in heard.subscription_data_set] == ["t"]
    assert sorted(seen["one"]) == sorted(seen["two"])
    for broker in world.brokers.values():
        assert broker.offsets == {}
        assert not broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)


async def test_broadcast_progress_is_a_file_that_java_reads(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    for number in range(3):
        broker.store("t", b"%d" % number)
    seen: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)

    def member() -> Consumer:
        return consumer_of(world, broadcast=True, offsets_folder="/home/me")

    async with running(member(), listener):
        await until(world, lambda: len(seen) == 3)
    text = world.runtime.files.read_bytes("/home/me/cg/offsets.json")
    assert text == b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:3}}'
    broker.store("t", b"later")
    seen.clear()
    async with running(member(), listener):
        await until(world, lambda: seen)
        await world.runtime.clock.sleep(1)
    assert seen == [b"later"]


@pytest.mark.behaviour("CR-26")
async def test_a_second_member_with_the_same_file_of_progress_is_refused(world: Any) -> None:
    """Otherwise two members overwrite each other's progress, and a restart skips messages."""
    world.topics["t"] = {"a": 1}

    async def listener(message: ReceivedMessage) -> None:
        pass

    def member(**options: Any) -> Consumer:
        return consumer_of(world, broadcast=True, **options)

    async with running(member(), listener):
        second = member()
        with pytest.raises(ClientStateError, match=r"progress in /\S+/cg/offsets.json: .* offsets_folder"):
            await second.start()
        await second.close()
        async with running(member(offsets_folder="/home/two"), listener):
            await world.runtime.clock.sleep(1)
        async with running(consumer_of(world, "other", broadcast=True), listener):
            await world.runtime.clock.sleep(1)
    async with running(member(), listener):
        await world.runtime.clock.sleep(1)


@pytest.mark.behaviour("CR-26")
async def test_broadcast_progress_is_written_at_close_though_a_write_is_under_way(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The close has to wait for the write, or the process may end before the file is complete."""
    offsets = LocalOffsets(world.runtime, "/home/me/cg/offsets.json")
    offsets.update(QUEUE, 7)
    slow: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(offsets, "_write", lambda *write: slow.append(write))
        periodic = asyncio.ensure_future(offsets.commit_periodically())
        await asyncio.sleep(0)
        periodic.cancel()
        await asyncio.wait([periodic])
    offsets.update(QUEUE, 8)
    await offsets.commit()
    offsets._write(*slow[0])
    again = LocalOffsets(world.runtime, "/home/me/cg/offsets.json")
    await again.load()
    assert again.get(QUEUE) == 8
    offsets.update(QUEUE, 9)
    with monkeypatch.context() as patch:
        patch.setattr(offsets, "_write", lambda *write: slow.append(write))
        periodic = asyncio.ensure_future(offsets.commit_periodically())
        await asyncio.sleep(0)
        periodic.cancel()
        await asyncio.wait([periodic])
    await offsets.commit()
    await again.load()
    assert again.get(QUEUE) == 9


@pytest.mark.parametrize("broken", [b"", b"{", b'{"offsetTable":3}'])
async def test_a_broken_offset_file_gives_way_to_its_backup(world: Any, broken: bytes) -> None:
    world.topics["t"] = {"a": 1}
    for number in range(3):
        world.brokers["a"].store("t", b"%d" % number)
    files = world.runtime.files
    files.make_dirs("/home/me/cg")
    files.write_atomic("/home/me/cg/offsets.json", broken)
    # The format is that of Java's client.
    queue = b'{\n\t\t"brokerName":"a",\n\t\t"queueId":0,\n\t\t"topic":"t"\n\t}'
    backup = b'{\n\t"offsetTable":{' + queue + b":2\n\t}\n}"
    files.write_atomic("/home/me/cg/offsets.json.bak", backup)
    seen: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)

    async with running(consumer_of(world, broadcast=True, offsets_folder="/home/me"), listener):
        await until(world, lambda: seen)
    assert seen == [b"2"]


# -- unreadable messages -----------------------------------------------------------------------------------


def damaged() -> Iterator[tuple[bytes, dict[str, Any]]]:
    yield b"good", {}
    yield b"not zlib at all", {"sys_flag": COMPRESSED}
    yield b"packed by something unknown", {"sys_flag": COMPRESSED | 0x700}
    yield b"good too", {}


def fill(broker: Any) -> None:
    for number, (body, fields) in enumerate(damaged()):
        broker.store("t", body, 0, encode_properties({"UNIQ_KEY": f"id{number}"}), **fields)


async def test_a_body_that_cannot_be_read_is_sent_back_and_holds_up_nothing(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    fill(broker)
    seen: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)

    async with running(consumer_of(world), listener):
        await until(world, lambda: len(seen) == 2)
        await until(world, lambda: len(broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)) == 2)
    assert seen == [b"good", b"good too"]
    assert broker.offsets["cg", "t", 0] == 4


async def test_a_listener_may_look_at_what_cannot_be_read(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    fill(broker)
    found: list[UnreadableMessage] = []

    async def listener(message: ReceivedMessage) -> None:
        if isinstance(message, UnreadableMessage):
            found.append(message)

    async with running(consumer_of(world), listener):
        await until(world, lambda: len(found) == 2)
    assert [message.message_id for message in found] == ["id1", "id2"]
    assert found[0].stored_body == b"not zlib at all"
    with pytest.raises(CompressionError, match="damaged"):
        _ = found[0].body
    assert "compression type 7" in repr(found[1])
    assert not broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)


async def test_an_ordered_queue_goes_on_behind_what_cannot_be_read(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    broker = world.brokers["a"]
    fill(broker)
    seen: list[bytes] = []

    async def listener(message: ReceivedMessage) -> None:
        seen.append(message.body)

    async with running(consumer_of(world, ordered=True), listener):
        await until(world, lambda: len(seen) == 2)
    assert seen == [b"good", b"good too"]
    back = broker.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
    assert [command.ext["delayLevel"] for command in back] == ["-1", "-1"]


async def test_polling_gives_what_cannot_be_read_in_its_place(world: Any) -> None:
    world.topics["t"] = {"a": 1}
    fill(world.brokers["a"])
    async with PullConsumer(
        "cg", name_servers=world.name_servers, runtime=world.runtime, consume_from=ConsumeFrom.FIRST
    ) as consumer:
        consumer.assign([QUEUE])
        messages = await consumer.poll()
    assert [isinstance(m, UnreadableMessage) for m in messages] == [False, True, True, False]


async def test_a_broadcast_member_whose_start_is_cancelled_keeps_no_file(world: Any) -> None:
    """The start is cancelled at each of its awaits; the next member with that file is not refused."""

    def member() -> Consumer:
        return consumer_of(world, broadcast=True, offsets_folder="/home/me")

    for turns in range(10):
        starting = asyncio.ensure_future(member().start())
        for _ in range(turns):
            await asyncio.sleep(0)
        assert starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled()
        async with member():
            pass
