"""Repeated scrapes compute only what has changed, and show the same figures as a first scrape."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import cast

import pytest
from tests.conversation.broker_peer import BrokerPeer, pull_request
from tests.conversation.http_peer import HOST, ON, PORT, ask, get, opened
from tests.conversation.test_broker_pop import ack, pop
from tests.conversation.turns import Turns
from tests.metrics_text import families, value

from orbitmq.broker.broker import Broker
from orbitmq.broker.metrics.lag import UNCHANGED_PER_TURN
from orbitmq.broker.metrics.progress import GroupProgress
from orbitmq.broker.metrics.read_topics import PER_BATCH
from orbitmq.broker.metrics.topics import Topics
from orbitmq.monitoring.exposition import MAX_KEPT, Exposition, LabelRows
from orbitmq.monitoring.http import WRITTEN_BYTES, HttpAnswer, HttpListener
from orbitmq.testing import SimulatedRuntime
from orbitmq.wire.bodies.client import ConsumerData, ConsumeType, HeartbeatData, SubscriptionData
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.topic import TopicConfig
from orbitmq.wire.codes import RequestCode

# The kinds of requests between two scrapes, and how likely each of them is.
KINDS = ("send", "pull", "commit", "pop", "reset", "set", "queues", "delete")
WEIGHTS = (16, 8, 16, 6, 3, 3, 3, 1)
GROUPS, TOPICS, QUEUES = ("g1", "g2"), ("T1", "T2"), 2


def topic_metrics(broker: Broker) -> Topics:
    """A reader of figures of topics and groups that has cached none yet."""
    s = broker.services
    return Topics(
        s.runtime.clock, s.config, s.role, s.store, s.topics, s.groups, s.offsets, s.clients, s.stats
    )


async def text_of(topics: Topics) -> bytes:
    text = Exposition({}, 10_000)
    await topics.write(text, lambda: True)
    return text.render()


async def change(broker: Broker, peer: BrokerPeer, dice: random.Random) -> None:
    """Make one random request of a client or an administrator."""
    group, topic, queue = dice.choice(GROUPS), dice.choice(TOPICS), dice.randrange(QUEUES)
    where = {"consumerGroup": group, "topic": topic, "queueId": queue}
    match dice.choices(KINDS, weights=WEIGHTS)[0]:
        case "send":
            await peer.sent(b"x", topic=topic, queue_id=queue)
        case "pull":
            asked = {"consumer_group": group, "topic": topic, "queue_id": queue, "max_msg_nums": 2}
            await peer.ask(pull_request(dice.randrange(4), **asked))
        case "commit":
            await peer.call(RequestCode.UPDATE_CONSUMER_OFFSET, **where, commitOffset=dice.randrange(5))
        case "pop":
            group, topic = GROUPS[0], TOPICS[0]  # the tests pop from no other topic
            popped = await pop(peer, consumer_group=group, topic=topic, max_msg_nums=2, invisible_time=3000)
            if popped.records and not popped.records[-1].reconsume_times and dice.randrange(2):
                await ack(peer, popped.receipt(-1), topic, group)
        case "reset":
            broker.services.offsets.reset(GROUPS[0], TOPICS[1], queue, dice.randrange(5))
        case "set":
            shown = dice.choice((b"true", b"false"))
            await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"metricsQueueLag=" + shown)
        case "queues":
            await peer.create(topic, readQueueNums=dice.choice((1, QUEUES)), writeQueueNums=QUEUES)
        case "delete":
            await peer.ok(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
            await peer.create(topic, readQueueNums=QUEUES, writeQueueNums=QUEUES)


@pytest.mark.behaviour("MX-24")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.broker(**ON)
async def test_a_scrape_shows_what_a_first_one_would(broker: Broker, peer: BrokerPeer, seed: int) -> None:
    for group in GROUPS:
        broker.services.groups.update(SubscriptionGroupConfig(group_name=group))
    for topic in TOPICS:
        await peer.create(topic, readQueueNums=QUEUES, writeQueueNums=QUEUES)
        for number in range(12):
            await peer.sent(b"x", topic=topic, queue_id=number % QUEUES)
    dice, scraped = random.Random(seed), topic_metrics(broker)
    for _ in range(80):
        await change(broker, peer, dice)
        await asyncio.sleep(dice.choice((0, 0, 1, 5)))
        assert await text_of(scraped) == await text_of(topic_metrics(broker))


@pytest.mark.behaviour("MX-24")
@pytest.mark.broker(**ON)
async def test_what_has_not_changed_is_not_computed_again(
    broker: Broker, peer: BrokerPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = broker.services
    s.groups.update(SubscriptionGroupConfig(group_name="cg"))
    for number in range(300):
        s.topics.update(TopicConfig(topic_name=f"topic-{number}", read_queue_nums=2, write_queue_nums=2))
        await peer.sent(b"x", topic=f"topic-{number}", queue_id=0)
        s.offsets.commit("cg", f"topic-{number}", 0, 0)
    runtime = cast("SimulatedRuntime", broker.runtime)
    entries, ends = Turns(monkeypatch, s.store, "entry"), Turns(monkeypatch, s.store, "max_offsets")
    await ask(runtime, get("/metrics"))
    assert entries.total == 300
    assert entries.longest <= PER_BATCH
    assert ends.longest <= PER_BATCH
    await peer.sent(b"x", topic="topic-7", queue_id=0)
    await asyncio.sleep(10)
    found = families((await ask(runtime, get("/metrics"))).body)
    assert entries.total == 301
    for topic, lag in (("topic-7", 2), ("topic-8", 1)):
        of_group = {"consumer_group": "cg", "topic": topic}
        assert value(found, "rocketmq_consumer_lag_messages", **of_group) == lag
        assert value(found, "rocketmq_consumer_lag_latency_milliseconds", **of_group) >= 10_000


@pytest.mark.behaviour("MX-24")
@pytest.mark.broker(**ON)
async def test_batches_that_have_not_changed_are_written_several_in_a_turn(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    s, batches = broker.services, 2 * UNCHANGED_PER_TURN + 1
    s.groups.update(SubscriptionGroupConfig(group_name="cg"))
    for number in range(batches * PER_BATCH):
        s.topics.update(TopicConfig(topic_name=f"topic-{number}", read_queue_nums=1, write_queue_nums=1))
        s.offsets.commit("cg", f"topic-{number}", 0, 0)
    looks = Turns(monkeypatch, GroupProgress, "look")
    for longest in (1, UNCHANGED_PER_TURN):
        await ask(cast("SimulatedRuntime", broker.runtime), get("/metrics"))
        assert looks.longest == longest
    assert looks.total == 2 * batches


@pytest.mark.behaviour("MX-25")
@pytest.mark.parametrize(("second_form", "retry"), [("false", "%RETRY%cg_T"), ("true", "%RETRY%cg+T")])
@pytest.mark.broker(**ON)
async def test_popped_messages_that_come_again_are_shown_as_retries(
    broker: Broker, peer: BrokerPeer, second_form: str, retry: str
) -> None:
    runtime = cast("SimulatedRuntime", broker.runtime)
    await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, f"enableRetryTopicV2={second_form}".encode())
    await peer.create("T", readQueueNums=1, writeQueueNums=1)
    await peer.sent(b"one", topic="T", queue_id=0)
    await pop(peer, invisible_time=1000)
    await asyncio.sleep(10)
    assert retry in broker.services.topics
    found = families((await ask(runtime, get("/metrics"))).body)
    lag, ready = "rocketmq_consumer_lag_messages", "rocketmq_consumer_ready_messages"
    of_group = {"consumer_group": "cg", "topic": "T", "is_system": "false"}
    for name in (lag, ready):
        assert value(found, name, **of_group, is_retry="false") == 0
        assert value(found, name, **of_group, is_retry="true") == 1
    assert (
        0
        < value(found, "rocketmq_consumer_queueing_latency_milliseconds", **of_group, is_retry="true")
        < 10_000
    )
    again = await pop(peer, invisible_time=600_000)
    assert again.bodies == [b"one"]
    found = families((await ask(runtime, get("/metrics"))).body)
    assert value(found, lag, **of_group, is_retry="true") == 1
    assert value(found, ready, **of_group, is_retry="true") == 0
    assert value(found, "rocketmq_consumer_inflight_messages", **of_group, is_retry="true") == 1
    for is_retry in ("false", "true"):
        assert value(found, "rocketmq_messages_out_total", **of_group, is_retry=is_retry) == 1
    first, second = (
        value(found, "rocketmq_throughput_out_total", **of_group, is_retry=flag) for flag in ("false", "true")
    )
    # The redelivery has more properties, among them the receipt.
    assert 0 < first < second


@pytest.mark.behaviour("MX-25")
@pytest.mark.parametrize(
    ("kind", "shown"),
    [(ConsumeType.CONSUME_POP, ["false", "true"]), (ConsumeType.CONSUME_PASSIVELY, ["false"])],
)
@pytest.mark.broker(**ON)
async def test_a_member_that_pops_has_retries_before_there_are_any(
    broker: Broker, peer: BrokerPeer, kind: ConsumeType, shown: list[str]
) -> None:
    await peer.create("T")
    wants = [SubscriptionData(topic="T", sub_string="*")]
    consumer = ConsumerData(group_name="cg", consume_type=kind, subscription_data_set=wants)
    beat = HeartbeatData(client_id="client", producer_data_set=[], consumer_data_set=[consumer])
    await peer.ok(RequestCode.HEART_BEAT, beat.encode())
    found = families((await ask(cast("SimulatedRuntime", broker.runtime), get("/metrics"))).body)
    for name in ("lag_messages", "lag_latency_milliseconds", "inflight_messages", "ready_messages"):
        samples = found[f"rocketmq_consumer_{name}"].samples
        assert [(one.labels["is_retry"], one.value) for one in samples] == [(flag, 0) for flag in shown]


@pytest.mark.behaviour("MX-25")
@pytest.mark.broker(**ON)
async def test_a_retry_topic_of_a_group_is_none_of_another_groups_pops(
    broker: Broker, peer: BrokerPeer
) -> None:
    """Group cg reads T by pulls; the group cg_T has a retry topic whose name is that of cg's pops of T."""
    await peer.create("T", readQueueNums=1, writeQueueNums=1)
    await peer.sent(b"one", topic="T", queue_id=0)
    await peer.ask(pull_request(0))
    await peer.create("%RETRY%cg_T", readQueueNums=1, writeQueueNums=1)
    await peer.sent(b"again", topic="%RETRY%cg_T", queue_id=0)
    s = broker.services
    s.offsets.commit("cg", "T", 0, 0)
    s.groups.update(SubscriptionGroupConfig(group_name="cg_T"))
    found = families((await ask(cast("SimulatedRuntime", broker.runtime), get("/metrics"))).body)
    [sample] = [
        one
        for one in found["rocketmq_consumer_lag_messages"].samples
        if one.labels["consumer_group"] == "cg" and one.labels["topic"] == "T"
    ]
    assert (sample.labels["is_retry"], sample.value) == ("false", 1)


class Sent(list[bytes]):
    """The parts of a body; ``taken`` is the number of parts that were taken for sending."""

    taken = 0

    def __iter__(self) -> Iterator[bytes]:
        for part in super().__iter__():
            self.taken += 1
            yield part


@pytest.mark.behaviour("MX-06")
async def test_a_large_answer_is_sent_as_the_client_reads(orbitmq_runtime: SimulatedRuntime) -> None:
    parts = Sent([bytes([number]) * WRITTEN_BYTES for number in range(40)])
    listener = HttpListener(orbitmq_runtime.network, {"/large": lambda: HttpAnswer(200, parts)})
    await listener.start(HOST, PORT)
    client = await opened(orbitmq_runtime)
    assert client.transport is not None
    client.transport.pause_reading()
    client.transport.write(get("/large"))
    await asyncio.sleep(1)
    looks_at_sizes = 2 * len(parts)
    assert 0 < parts.taken - looks_at_sizes < 10
    client.transport.resume_reading()
    async with asyncio.timeout(5):
        await client.ended
    assert client.body == b"".join(parts)
    await listener.stop()


@pytest.mark.behaviour("MX-24")
def test_the_text_of_numbers_that_stand_still_is_kept() -> None:
    rows = LabelRows(("topic",), [("T",), ("U",)])
    first = [rows.text(b"a{", [1, 2]) for _ in range(3)]
    assert first[0] == first[1] == b'a{topic="T"} 1\na{topic="U"} 2\n'
    assert first[1] is first[2]
    assert rows.text(b"b{", [1, 2]) == b'b{topic="T"} 1\nb{topic="U"} 2\n'
    assert [rows.text(b"a{", [1, number]) for number in (3, 3, 2)] == [
        b'a{topic="T"} 1\na{topic="U"} %d\n' % number for number in (3, 3, 2)
    ]
    assert rows.text(b"a{", [1]) == b'a{topic="T"} 1\n'
    for number in range(100):
        assert rows.text(b"%d{" % number, [1]) == b'%d{topic="T"} 1\n' % number
    assert len(rows._kept) == MAX_KEPT


@pytest.mark.behaviour("MX-06")
def test_rows_are_written_up_to_the_limit() -> None:
    odd = 'a"b\\n%d%\nd'
    rows = LabelRows(("topic", "queue_id"), [(odd, "1"), ("T", "2"), ("U", "3")])
    text = Exposition({"cluster": "c%d"}, 4)
    family = text.family("some_value", "gauge", "Some", storage="local")
    family.add_rows([5, 6, 7], rows)
    text.family("other_value", "gauge", "Other").add_rows([8, 9, 10], rows)
    found = families(text.render())
    assert value(found, "some_value", cluster="c%d", storage="local", topic=odd, queue_id="1") == 5
    assert [sample.value for sample in found["some_value"].samples] == [5, 6, 7]
    assert value(found, "other_value", cluster="c%d", topic=odd) == 8
    assert (text.cut, text.room) == (2, 0)
