"""Dead letters that are sent again: their new form, what remains, and that crashes lose or double none."""

from __future__ import annotations

import asyncio
import errno
import random
from collections import Counter
from typing import Any

import pytest
from tests.conversation.broker_peer import BrokerPeer, hang
from tests.replicas import MASTER, SLAVE, role_of

from orbitmq import Consumer, Message, ReceivedMessage
from orbitmq.broker.broker import Broker
from orbitmq.broker.change_feed import TOPICS
from orbitmq.broker.dead_letters.forms import Ranges
from orbitmq.broker.dead_letters.job import Job
from orbitmq.broker.messaging.retry import mark_dead
from orbitmq.broker.messaging.room import fitted
from orbitmq.broker.role import Role
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.message.record import Record, iter_records
from orbitmq.store import NewMessage
from orbitmq.testing import Keep, SimulatedRuntime, World
from orbitmq.wire.bodies.redrive import Redrive, RedriveRequest, RedriveState
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

DEAD = "%DLQ%g"


async def fill(broker: Broker, count: int, **properties: str | None) -> None:
    """Store dead letters with the numbers 0, 1, ..."""
    services = broker.services
    services.topics.create_if_absent(DEAD, 1)
    services.topics.create_if_absent("t", 4)
    await services.persistence.flush(TOPICS)
    first = services.store.max_offset(DEAD, 0)
    messages = []
    for number in range(first, first + count):
        all_ = {"RETRY_TOPIC": "t", "ORIGIN_MESSAGE_ID": "ID", "DELAY": "0", "n": str(number), **properties}
        block = encode_properties({name: value for name, value in all_.items() if value is not None})
        messages.append(NewMessage(DEAD, 0, b"%d" % number, block, reconsume_times=17))
    for at in range(0, count, 100):
        await services.append.stored(services.append.put_many(messages[at : at + 100]))


def records(broker: Broker, topic: str) -> list[Record]:
    found: list[Record] = []
    config = broker.services.topics.get(topic)
    for queue_id in range(config.read_queue_nums if config is not None else 0):
        at = 0
        while (result := broker.services.store.get(topic, queue_id, at, 1000)).count:
            found += iter_records(result.body)
            at = result.next_offset
    return found


def numbers(broker: Broker, topic: str = "t") -> list[int]:
    return sorted(int(record.body) for record in records(broker, topic))


async def ask(peer: BrokerPeer, **values: Any) -> Command:
    return await peer.call(RequestCode.START_REDRIVE, RedriveRequest("g", **values).encode())


async def begin(peer: BrokerPeer, **values: Any) -> Redrive:
    answer = await ask(peer, **values)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return Redrive.decode(answer.body)


async def status(peer: BrokerPeer) -> Redrive:
    (found,) = Redrive.decode_list((await peer.ok(RequestCode.LIST_REDRIVES)).body)
    return found


async def ended(peer: BrokerPeer) -> Redrive:
    for _ in range(1000):
        found = await status(peer)
        if found.state is not RedriveState.RUNNING:
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(found)


@pytest.mark.behaviour("DQ-08")
async def test_dead_letters_become_new_messages(peer: BrokerPeer, broker: Broker) -> None:
    await fill(broker, 300, TAGS="x", UNIQ_KEY="U")
    await begin(peer)
    done = await ended(peer)
    assert (done.state, done.sent, done.position, done.problem) == (RedriveState.DONE, 300, 300, None)
    assert numbers(broker) == list(range(300))
    record = next(one for one in records(broker, "t") if one.body == b"7")
    properties = decode_properties(record.properties)
    assert record.reconsume_times == 0
    assert properties == {
        "n": "7", "TAGS": "x", "UNIQ_KEY": "U", "DLQ_REDRIVES": "1", "DLQ_REDRIVE_ID": "g@7",
    }  # fmt: skip
    assert len(records(broker, DEAD)) == 300  # they remain until they expire


@pytest.mark.behaviour("DQ-08")
async def test_a_second_redrive_sends_only_what_the_first_has_not(peer: BrokerPeer, broker: Broker) -> None:
    await fill(broker, 100)
    await begin(peer, sql="n < 10")
    first = await ended(peer)
    assert (first.sent, first.filtered) == (10, 90)
    await fill(broker, 5)
    await begin(peer)
    second = await ended(peer)
    assert (second.sent, second.filtered) == (95, 10)
    assert numbers(broker) == list(range(105))


@pytest.mark.behaviour("DQ-09")
async def test_what_stays_is_counted(peer: BrokerPeer, broker: Broker) -> None:
    await fill(broker, 3, DLQ_REDRIVES="3")
    await fill(broker, 2, RETRY_TOPIC="gone")
    big = {"RETRY_TOPIC": None, "ORIGIN_MESSAGE_ID": None, "DELAY": None, "DLQ_ORIGIN_TOPIC": "t"}
    await fill(broker, 1, **big, big="x" * 32_730)
    await fill(broker, 4, DLQ_REDRIVES="2")
    found = await begin(peer, dry_run=True)
    assert (found.sent, found.too_often, found.without_topic, found.too_large) == (4, 3, 2, 1)
    assert found.complete
    assert numbers(broker) == []
    await begin(peer)
    done = await ended(peer)
    assert (done.sent, done.too_often, done.without_topic, done.too_large) == (4, 3, 2, 1)
    assert done.missing_topic == "gone"
    assert numbers(broker) == [6, 7, 8, 9]
    counts = {decode_properties(record.properties)["DLQ_REDRIVES"] for record in records(broker, "t")}
    assert counts == {"3"}


async def test_choosing_by_time_topic_and_number(peer: BrokerPeer, broker: Broker) -> None:
    await fill(broker, 10)
    await asyncio.sleep(10)
    begin_ms = peer.now()
    await fill(broker, 10)
    await asyncio.sleep(10)
    end_ms = peer.now()
    await fill(broker, 10)
    broker.services.topics.create_if_absent("other", 1)
    await begin(peer, begin_ms=begin_ms, end_ms=end_ms, to_topic="other", limit=7)
    assert (await ended(peer)).sent == 7
    assert numbers(broker, "other") == list(range(10, 17))


@pytest.mark.behaviour("DQ-10")
async def test_single_dead_letters_are_chosen_by_their_offsets(peer: BrokerPeer, broker: Broker) -> None:
    await fill(broker, 300)
    chosen = [[3, 5], [80, 81], [200, 290], [299, 400]]
    wanted = [3, 4, 80, *range(200, 290), 299]
    counted = await begin(peer, only=chosen, dry_run=True)
    assert (counted.sent, counted.filtered) == (94, 206)
    await begin(peer, only=[[4, 5]])
    assert (await ended(peer)).sent == 1
    await begin(peer, only=chosen, limit=50)
    assert (await ended(peer)).sent == 50
    await begin(peer, only=chosen)
    assert (await ended(peer)).sent == 43
    assert numbers(broker) == wanted
    await begin(peer)
    assert (await ended(peer)).sent == 206


async def test_the_rate_is_kept(peer: BrokerPeer, broker: Broker) -> None:
    await fill(broker, 1000)
    started = peer.now()
    await begin(peer, rate=100)
    done = await ended(peer)
    assert done.sent == 1000
    assert 9_500 <= peer.now() - started <= 10_500


async def test_pause_resume_and_stop(peer: BrokerPeer, broker: Broker) -> None:
    await fill(broker, 1000)
    await begin(peer, rate=100)
    await asyncio.sleep(2)
    await peer.ok(RequestCode.CHANGE_REDRIVE, group="g", action="PAUSE")
    await asyncio.sleep(1)
    paused = await status(peer)
    assert paused.state is RedriveState.PAUSED
    assert 150 < paused.sent < 250
    await asyncio.sleep(60)
    assert (await status(peer)).sent == paused.sent
    answer = await ask(peer)
    assert answer.code == ResponseCode.ILLEGAL_OPERATION
    assert "stop it first" in (answer.remark or "")
    await peer.ok(RequestCode.CHANGE_REDRIVE, group="g", action="RESUME")
    await asyncio.sleep(2)
    await peer.ok(RequestCode.CHANGE_REDRIVE, group="g", action="STOP")
    await asyncio.sleep(1)
    stopped = await status(peer)
    assert (stopped.state, stopped.sent > paused.sent) == (RedriveState.STOPPED, True)
    assert (await peer.call(RequestCode.CHANGE_REDRIVE, group="g", action="RESUME")).code == (
        ResponseCode.ILLEGAL_OPERATION
    )
    await begin(peer)
    await ended(peer)
    assert numbers(broker) == list(range(1000))


@pytest.mark.parametrize(
    ("values", "code", "word"),
    [
        ({"rate": 0}, ResponseCode.INVALID_PARAMETER, "rate is 0"),
        ({"limit": 0}, ResponseCode.INVALID_PARAMETER, "limit is 0"),
        ({"max_redrives": 0}, ResponseCode.INVALID_PARAMETER, "max_redrives is 0"),
        ({"to_topic": "none"}, ResponseCode.TOPIC_NOT_EXIST, "topic none is not there"),
        ({"to_topic": DEAD}, ResponseCode.TOPIC_NOT_EXIST, "takes no messages"),
        ({"to_topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.TOPIC_NOT_EXIST, "takes no messages"),
        ({"sql": "n >"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "column 4"),
        ({"only": [[5, 5]]}, ResponseCode.INVALID_PARAMETER, "only has [5, 5], expected pairs"),
        ({"only": [[5, 6], [2, 3]]}, ResponseCode.INVALID_PARAMETER, "only has [2, 3], expected pairs"),
        (
            {"only": [[2 * n, 2 * n + 1] for n in range(10_001)]},
            ResponseCode.INVALID_PARAMETER,
            "10001 ranges",
        ),
    ],
)
async def test_what_cannot_be_is_refused(
    peer: BrokerPeer, broker: Broker, values: dict[str, Any], code: int, word: str
) -> None:
    await fill(broker, 1)
    answer = await ask(peer, **values)
    assert answer.code == code
    assert word in (answer.remark or "")
    assert (await peer.ok(RequestCode.LIST_REDRIVES)).body == b"[]"


@pytest.mark.behaviour("DQ-12")
async def test_a_job_that_cannot_be_written_down_is_not_begun(
    peer: BrokerPeer, broker: Broker, orbitmq_runtime: SimulatedRuntime
) -> None:
    await fill(broker, 10)
    orbitmq_runtime.files.fail("*", "tables.journal", error=errno.ENOSPC, times=-1)
    answer = await ask(peer)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert (await status(peer)).state is RedriveState.FAILED
    assert numbers(broker) == []
    orbitmq_runtime.files.heal()
    # Nor is it begun by a broker that becomes master again after the disk has accepted later writes.
    await asyncio.sleep(10)
    await broker.change_role(Role.FENCED)
    await broker.change_role(Role.MASTER)
    await asyncio.sleep(10)
    assert (await status(peer)).state is RedriveState.FAILED
    assert numbers(broker) == []
    await begin(peer)
    assert (await ended(peer)).sent == 10


async def test_a_group_without_dead_letters_and_a_job_that_is_none(peer: BrokerPeer) -> None:
    answer = await ask(peer)
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert "group g has no dead letters" in (answer.remark or "")
    answer = await peer.call(RequestCode.CHANGE_REDRIVE, group="g", action="PAUSE")
    assert answer.code == ResponseCode.QUERY_NOT_FOUND
    answer = await peer.call(RequestCode.CHANGE_REDRIVE, group="g", action="DANCE")
    assert answer.code == ResponseCode.INVALID_PARAMETER


@pytest.mark.behaviour("DQ-07", "DQ-08")
async def test_from_a_failing_consumer_to_the_next_try(orbitmq_world: World) -> None:
    world = orbitmq_world
    got: list[tuple[bytes, int]] = []
    broken = True

    async def handle(message: ReceivedMessage) -> None:
        if broken:
            raise RuntimeError("not now")
        got.append((message.body, message.reconsume_times))

    async def work(consumer: Consumer) -> None:
        consumer.subscribe("t")
        await consumer.run(handle)

    async with world.producer() as producer, world.consumer("g", max_reconsume_times=0) as consumer:
        task = asyncio.create_task(work(consumer))
        sent = await producer.send(Message("t", b"x"))
        broker = world.brokers["broker-a"]
        await world.until(lambda: broker.services.store.max_offset(DEAD, 0) == 1, 60)
        (dead,) = records(broker, DEAD)
        properties = decode_properties(dead.properties)
        assert properties["DLQ_ORIGIN_TOPIC"] == "t"
        assert properties["DLQ_ORIGIN_MESSAGE_ID"] == sent.offset_message_id
        assert properties["DLQ_REASON"] == "RuntimeError('not now')"
        assert "@" in properties["DLQ_CLIENT"]
        broken = False
        async with BrokerPeer(world.runtime, broker.address) as peer:
            await begin(peer)
        await world.until(lambda: got, 60)
        assert got == [(b"x", 0)]
    await task


@pytest.mark.behaviour("DQ-08")
@pytest.mark.parametrize("orbitmq_seed", range(10))
async def test_crashes_lose_and_double_nothing(orbitmq_world: World, orbitmq_seed: int) -> None:
    world, chance = orbitmq_world, random.Random(orbitmq_seed)
    await fill(world.brokers["broker-a"], 2000)
    async with BrokerPeer(world.runtime, world.brokers["broker-a"].address) as peer:
        await begin(peer, rate=400)
    for _ in range(5):
        await world.sleep(chance.random() * 1.5)
        world.crash("broker-a", keep=chance.choice(list(Keep)))
        await world.start_broker("broker-a")
    broker = world.brokers["broker-a"]
    async with BrokerPeer(world.runtime, broker.address) as peer:
        done = await ended(peer)
    assert (done.state, done.sent, done.filtered) == (RedriveState.DONE, 2000, 0)
    assert {n: c for n, c in Counter(numbers(broker)).items() if c != 1} == {}
    assert len(numbers(broker)) == 2000


@pytest.mark.behaviour("DQ-08")
@pytest.mark.orbitmq(replicas=2, settings={"enableSlaveActingMaster": "true"})
@pytest.mark.parametrize("orbitmq_seed", range(4))
async def test_a_slave_that_acts_meanwhile_changes_nothing(orbitmq_world: World, orbitmq_seed: int) -> None:
    world, chance = orbitmq_world, random.Random(orbitmq_seed)

    def leads() -> bool:
        broker = world.brokers.get("broker-a")
        return broker is not None and broker.services.role.role is Role.MASTER

    await world.until(leads)
    await fill(world.brokers["broker-a"], 2000)
    await world.sleep(2)
    async with BrokerPeer(world.runtime, world.brokers["broker-a"].address) as peer:
        await begin(peer, rate=200)
    for _ in range(3):
        await world.sleep(chance.random() * 3)
        if chance.random() < 0.5:
            world.crash("broker-a", keep=chance.choice(list(Keep)))
        else:
            await world.stop_broker("broker-a")
        await world.sleep(chance.choice([0.5, 15]))
        await world.start_broker("broker-a")
        await world.until(leads, 120)
    broker = world.brokers["broker-a"]
    async with BrokerPeer(world.runtime, broker.address) as peer:
        done = await ended(peer)
    assert (done.state, done.sent) == (RedriveState.DONE, 2000)
    assert numbers(broker) == list(range(2000))
    await world.until(lambda: len(numbers(world.brokers["broker-a-1"])) == 2000)


def test_a_dead_letter_says_what_it_has_room_for() -> None:
    properties = {"RETRY_TOPIC": "t", "ORIGIN_MESSAGE_ID": "ID"}
    mark_dead(properties, "line one\nline\x01two " + "x" * 1000, "client@1")
    assert properties["DLQ_REASON"].startswith("line one line two xxx")
    assert len(properties["DLQ_REASON"]) == 300
    mark_dead(properties, "later", "client@2")
    assert (properties["DLQ_REASON"], properties["DLQ_CLIENT"]) == ("later", "client@2")
    full = {"RETRY_TOPIC": "t", "big": "x" * 32_690}
    mark_dead(full, "because", "c")
    assert fitted(full) == encode_properties(full)
    assert (full["DLQ_ORIGIN_TOPIC"], "DLQ_REASON" in full) == ("t", True)
    fuller = {"RETRY_TOPIC": "t", "big": "x" * 32_735}
    mark_dead(fuller, "because", "c")
    assert fitted(fuller) == encode_properties(fuller)
    assert set(fuller) == {"RETRY_TOPIC", "big"}


@pytest.mark.parametrize("seed", range(20))
def test_ranges_are_a_set(seed: int) -> None:
    chance = random.Random(seed)
    ranges, book = Ranges(), set()
    for _ in range(300):
        offset = chance.randrange(60)
        ranges.add(offset)
        book.add(offset)
        if chance.random() < 0.05:
            low = chance.randrange(30)
            ranges.drop_below(low)
            book = {one for one in book if one >= low}
        assert {n for first, behind in ranges.plain() for n in range(first, behind)} == book
        again = Ranges(ranges.plain())
        assert all((n in again) == (n in book) for n in range(60))
        assert [again.next_from(n) for n in range(61)] == [
            min((one for one in book if one >= n), default=None) for n in range(61)
        ]
        assert all(a[1] < b[0] for a, b in zip(ranges.plain(), ranges.plain()[1:], strict=False))


@pytest.mark.behaviour("DQ-12")
@pytest.mark.parametrize("action", ["STOP", "PAUSE"])
async def test_a_job_that_is_stopped_while_it_reads_the_log_forgets_nothing(
    orbitmq_world: World, action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dead letters that it found sent, and had not passed yet, must not be sent again by the next job or
    after the next crash.
    """
    world = orbitmq_world
    await fill(world.brokers["broker-a"], 2000)
    async with BrokerPeer(world.runtime, world.brokers["broker-a"].address) as peer:
        await begin(peer, rate=1000)
        await world.until(lambda: len(numbers(world.brokers["broker-a"])) >= 700)
    await world.brokers["broker-a"].services.store.flush()
    world.crash("broker-a", keep=Keep.NOTHING)
    sent_behind = Job._sent_behind

    async def slowly(job: Job) -> set[int]:
        await world.sleep(3)  # as with a large log
        return await sent_behind(job)

    monkeypatch.setattr(Job, "_sent_behind", slowly)
    await world.start_broker("broker-a")
    async with BrokerPeer(world.runtime, world.brokers["broker-a"].address) as peer:
        await peer.ok(RequestCode.CHANGE_REDRIVE, group="g", action=action)
        if action == "STOP":
            await begin(peer)
        else:
            await world.sleep(5)
    if action == "PAUSE":
        world.crash("broker-a", keep=Keep.NOTHING)
        await world.start_broker("broker-a")
    async with BrokerPeer(world.runtime, world.brokers["broker-a"].address) as peer:
        if action == "PAUSE":
            await peer.ok(RequestCode.CHANGE_REDRIVE, group="g", action="RESUME")
        await ended(peer)
    assert numbers(world.brokers["broker-a"]) == list(range(2000))


@pytest.mark.behaviour("DQ-12")
async def test_two_jobs_that_begin_at_once_are_one(peer: BrokerPeer, broker: Broker) -> None:
    """An earlier job has just ended; of several new ones only one may begin, and send each dead
    letter once.
    """
    await fill(broker, 1)
    await begin(peer)
    await ended(peer)
    await fill(broker, 500)
    answers = await asyncio.gather(*(ask(peer, rate=100) for _ in range(3)))
    assert (
        sorted(answer.code for answer in answers)
        == [ResponseCode.SUCCESS] + [ResponseCode.ILLEGAL_OPERATION] * 2
    )
    await ended(peer)
    assert numbers(broker) == list(range(501))


@pytest.mark.behaviour("DQ-12")
async def test_dead_letters_of_a_topic_that_was_deleted_and_made_again_are_new(
    peer: BrokerPeer, broker: Broker
) -> None:
    """They have the offsets of dead letters of the old topic, but must not be skipped as already sent."""
    await fill(broker, 10)
    await begin(peer)
    await ended(peer)
    await peer.ok(RequestCode.DELETE_TOPIC_IN_BROKER, topic=DEAD)
    await fill(broker, 5)
    await begin(peer)
    done = await ended(peer)
    assert (done.sent, done.filtered) == (5, 0)
    assert numbers(broker) == sorted([*range(10), *range(5)])


@pytest.mark.behaviour("DQ-12")
@pytest.mark.orbitmq(replicas=2, settings={"enableSlaveActingMaster": "true"})
async def test_only_a_master_changes_a_job(orbitmq_world: World) -> None:
    """A slave refuses instead of reporting success while its master continues; an acting one sends nothing
    into its copy of the log.
    """
    world = orbitmq_world
    await world.until(lambda: role_of(world, MASTER) is Role.MASTER)
    await fill(world.brokers[MASTER], 500)
    async with BrokerPeer(world.runtime, world.brokers[MASTER].address) as peer:
        await begin(peer, rate=100)
        await world.sleep(2)
        async with BrokerPeer(world.runtime, world.brokers[SLAVE].address) as slave:
            refused = await slave.call(RequestCode.CHANGE_REDRIVE, group="g", action="STOP")
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            await peer.ok(RequestCode.CHANGE_REDRIVE, group="g", action="PAUSE")
            await world.sleep(2)
            world.crash(MASTER)
            await world.until(lambda: role_of(world, SLAVE) is Role.ACTING_MASTER)
            end = world.brokers[SLAVE].services.store.max_commit_log_offset
            refused = await slave.call(RequestCode.CHANGE_REDRIVE, group="g", action="RESUME")
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "acting master" in (refused.remark or "")
            await world.sleep(10)
            assert world.brokers[SLAVE].services.store.max_commit_log_offset == end


@pytest.mark.behaviour("DQ-12")
async def test_a_job_that_is_resumed_while_it_writes_down_its_pause_goes_on(
    peer: BrokerPeer, broker: Broker, orbitmq_runtime: SimulatedRuntime
) -> None:
    """The job must not be listed as running while no task works on it."""
    await fill(broker, 1000)
    await begin(peer, rate=200)
    await asyncio.sleep(1.5)
    sync = orbitmq_runtime.threads.sync
    hang(orbitmq_runtime)
    await peer.ok(RequestCode.CHANGE_REDRIVE, group="g", action="PAUSE")
    await peer.ok(RequestCode.CHANGE_REDRIVE, group="g", action="RESUME")
    orbitmq_runtime.threads.sync = sync  # type: ignore[method-assign]
    done = await ended(peer)
    assert (done.state, done.sent) == (RedriveState.DONE, 1000)
    assert numbers(broker) == list(range(1000))
