"""Figures in a scrape for single queues, and for messages far back in the log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
from prometheus_client import Metric
from tests.conversation.broker_peer import KIB, BrokerPeer, pull_request
from tests.conversation.http_peer import ON, ask, get
from tests.conversation.test_broker_pop import pop
from tests.metrics_text import families, value

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig, ConfigError
from orbitmq.broker.config_values import METRIC_LABELS
from orbitmq.broker.metrics import progress
from orbitmq.testing import SimulatedRuntime
from orbitmq.wire.codes import RequestCode

MESSAGES = "orbitmq_consumer_queue_lag_messages"
AGE = "orbitmq_consumer_queue_lag_latency_milliseconds"


async def scrape(broker: Broker) -> dict[str, Metric]:
    return families((await ask(cast("SimulatedRuntime", broker.runtime), get("/metrics"))).body)


async def lagging(peer: BrokerPeer, size: int = 10) -> None:
    """Fill two queues with four messages each, 60 s old; cg has consumed all of one queue and one message of
    the other.
    """
    await peer.create("T", readQueueNums=2, writeQueueNums=2)
    for queue in (0, 1):
        for _ in range(4):
            await peer.sent(bytes(size), topic="T", queue_id=queue)
        await peer.ask(pull_request(0, queue_id=queue, max_msg_nums=4))
    for queue, done in ((0, 4), (1, 1)):
        await peer.ok(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            consumerGroup="cg",
            topic="T",
            queueId=queue,
            commitOffset=done,
        )
    await peer.runtime.clock.sleep(60)


@pytest.mark.behaviour("MX-11")
@pytest.mark.broker(**ON)
async def test_lag_by_queue_is_shown_when_the_setting_says_so(broker: Broker, peer: BrokerPeer) -> None:
    await lagging(peer)
    assert MESSAGES not in await scrape(broker)
    await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"metricsQueueLag=true")
    found = await scrape(broker)
    of_group = {"consumer_group": "cg", "topic": "T"}
    assert value(found, MESSAGES, **of_group, queue_id="0") == 0
    assert value(found, MESSAGES, **of_group, queue_id="1") == 3
    assert value(found, AGE, **of_group, queue_id="0") == 0
    assert 60_000 <= value(found, AGE, **of_group, queue_id="1") < 61_000
    assert value(found, "rocketmq_consumer_lag_messages", **of_group) == 3
    await peer.ok(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
    assert (await scrape(broker))[MESSAGES].samples == []


@pytest.mark.behaviour("MX-11")
@pytest.mark.broker(**ON)
async def test_ages_of_old_messages_are_read_in_a_thread(
    broker: Broker, peer: BrokerPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lagging(peer, 60 * KIB)
    store = broker.services.store
    looked: list[list[int]] = []
    bring = store.bring_to_memory

    async def noted(places: Sequence[int]) -> None:
        looked.append(list(places))
        await bring(places)

    monkeypatch.setattr(store, "bring_to_memory", noted)
    monkeypatch.setattr(progress, "HOT_BYTES", 100 * KIB)
    labels = {"consumer_group": "cg", "topic": "T"}
    latency = "rocketmq_consumer_lag_latency_milliseconds"
    age = value(await scrape(broker), latency, **labels)
    assert 60_000 <= age < 61_000
    entry = store.entry("T", 1, 1)
    assert entry is not None
    assert looked == [[entry[0]]]
    # The group's offset has not moved, so its message is not read again.
    await peer.runtime.clock.sleep(10)
    assert age + 10_000 <= value(await scrape(broker), latency, **labels) < age + 11_000
    assert len(looked) == 1
    await peer.ok(
        RequestCode.UPDATE_CONSUMER_OFFSET, consumerGroup="cg", topic="T", queueId=1, commitOffset=0
    )
    await scrape(broker)
    first = store.entry("T", 1, 0)
    assert first is not None
    assert looked[1:] == [[first[0]]]


@pytest.mark.behaviour("MX-11")
@pytest.mark.broker(**ON)
async def test_a_log_file_that_goes_meanwhile_is_no_fault(broker: Broker, peer: BrokerPeer) -> None:
    await lagging(peer)
    store = broker.services.store
    broker.runtime.files.remove(f"{store.config.commit_log_path}/{0:020d}")
    await store.bring_to_memory([0, 1 << 50])


@pytest.mark.behaviour("MX-04")
@pytest.mark.broker(**ON, metrics_label="zone:east, rack:7:b", metrics_queue_lag=True)
async def test_the_operators_labels_are_on_all_series(broker: Broker, peer: BrokerPeer) -> None:
    await lagging(peer)
    await peer.pull(topic="nowhere")
    found = await scrape(broker)
    for metric in found.values():
        for sample in metric.samples:
            assert sample.labels.items() >= {"zone": "east", "rack": "7:b"}.items()
            assert set(sample.labels) - {"zone", "rack"} <= METRIC_LABELS


@pytest.mark.parametrize(
    "wrong", ["zone", "zone:a,zone:b", "topic:T", "result:1", "le:1", "1a:b", "a b:c", ":x", ","]
)
def test_labels_that_cannot_be_are_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="metricsLabel"):
        BrokerConfig.load(f"metricsLabel={wrong}")


@pytest.mark.behaviour("MX-05")
@pytest.mark.broker(**ON)
async def test_popped_messages_are_in_flight_until_they_are_done(broker: Broker, peer: BrokerPeer) -> None:
    await peer.create("T", readQueueNums=1, writeQueueNums=1)
    for _ in range(4):
        await peer.sent(b"x", topic="T", queue_id=0)
    assert len((await pop(peer, max_msg_nums=3)).records) == 3
    found = await scrape(broker)
    of_group = {"consumer_group": "cg", "topic": "T"}
    assert value(found, "rocketmq_consumer_lag_messages", **of_group) == 4
    assert value(found, "rocketmq_consumer_inflight_messages", **of_group) == 3
    assert value(found, "rocketmq_consumer_ready_messages", **of_group) == 1
