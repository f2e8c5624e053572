"""Metrics of our broker and of Apache's after the same traffic, compared as data.

Compared are names, types, the labels of the series, the bounds of histograms, the values of labels that have
few, and what was counted for the topics of the traffic. Every difference is in the table ``DIFFERENCES``.
"""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.servers import PEER_VERSION, free_ports
from prometheus_client.parser import text_string_to_metric_families
from tests.interop.world import World, check, wait_registered

from orbitmq import (
    ConsumeFrom,
    Consumer,
    Message,
    Producer,
    ReceivedMessage,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)
from orbitmq.admin import Admin

LIMIT_S = 300.0
TOPICS = {"orders": "NORMAL", "bad": "NORMAL", "later": "DELAY", "steps": "FIFO", "moves": "TRANSACTION"}
# Labels whose values are the same few words at each broker.
FIXED = {
    "cluster", "node_type", "node_id", "storage_type", "storage_medium", "message_type", "consume_mode",
    "protocol_type", "language", "version", "invocation_status", "processor", "timer_bound_s", "le",
}  # fmt: skip
# The label that each series has which OpenTelemetry's exporter writes, as Apache's broker does.
OF_EXPORTER = "otel_scope_name"
THERE, HERE = "only there", "only here"
"""At Apache's broker, at ours."""
NO_REVIVE = "There is no revive topic here (docs/monitoring.md)."
TWICE = "Here a message that has waited counts when it gets to its own topic, too (docs/monitoring.md)."
NO_BUFFER = "There is no such buffer, and nothing scans one (docs/monitoring.md)."
DIFFERENCES = {
    "rocketmq_pop_buffer_scan_time_consume_milliseconds: only there": NO_BUFFER,
    "rocketmq_pop_offset_buffer_size: only there": NO_BUFFER,
    "rocketmq_pop_revive_in_message_total: only there": NO_REVIVE,
    "rocketmq_pop_revive_lag_milliseconds: only there": NO_REVIVE,
    "rocketmq_pop_revive_latency_milliseconds: only there": NO_REVIVE,
    "target_info: only there": "It tells of the exporter, not of the broker.",
    "rocketmq_half_messages: only there": "Here a topic without unfinished transactions has no series.",
    **{
        f"rocketmq_{what}_out_total by consumer_group, is_system, topic: only there": (
            "Apache's broker leaves is_retry out of what was pulled, and has it of what was popped."
        )
        for what in ("messages", "throughput")
    },
    **{
        f"rocketmq_{what} {topic}: 0 there, 1 here": TWICE
        for what in ("messages_in_total", "message_size_count")
        for topic in ("later delay", "moves transaction")
    },
}


@dataclass
class Shape:
    """What is compared of a metric: its type, the labels of its series, values of labels."""

    kind: str
    labels: set[frozenset[str]] = field(default_factory=set)
    values: set[tuple[str, str]] = field(default_factory=set)


@dataclass
class Scrape:
    """The metrics of RocketMQ in a scrape, and what was counted for each of our topics, without zeros."""

    shapes: dict[str, Shape] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)


def read(text: str) -> Scrape:
    """A scrape as data. Metrics without series are left out, and those that are OrbitMQ's alone."""
    found = Scrape()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if re.match("orbitmq_|process_", sample.name):
                continue
            labels = {name: value for name, value in sample.labels.items() if name != OF_EXPORTER}
            name = family.name if family.type == "histogram" else sample.name
            shape = found.shapes.setdefault(name, Shape(family.type))
            shape.labels.add(frozenset(labels))
            shape.values |= {(name, value) for name, value in labels.items() if name in FIXED}
            # Bytes differ by the properties that brokers add.
            counted = re.search("_(total|count)$", sample.name) and not re.search(
                "throughput|revive", sample.name
            )
            # A pop whose answer comes late is sent again, and counts twice.
            group = labels.get("consumer_group", "")
            if counted and labels.get("topic") in TOPICS and group != "popper" and sample.value:
                words = [group, labels["topic"], labels.get("message_type", "")]
                found.counts[" ".join(filter(None, [sample.name, *words]))] = sample.value
    return found


def differences(there: Scrape, here: Scrape) -> Iterator[str]:
    """Each difference of two brokers in words, Apache's first."""
    for name in sorted(there.shapes.keys() | here.shapes.keys()):
        if name not in here.shapes or name not in there.shapes:
            yield f"{name}: {THERE if name in there.shapes else HERE}"
            continue
        theirs, ours = there.shapes[name], here.shapes[name]
        if theirs.kind != ours.kind:
            yield f"{name}: {theirs.kind} there, {ours.kind} here"
        for labels in theirs.labels ^ ours.labels:
            where = THERE if labels in theirs.labels else HERE
            yield f"{name} by {', '.join(sorted(labels - {'cluster', 'node_type', 'node_id'}))}: {where}"
        for pair in sorted(theirs.values ^ ours.values):
            yield f"{name}, {'='.join(pair)}: {THERE if pair in theirs.values else HERE}"
    for what in sorted(there.counts.keys() | here.counts.keys()):
        one, other = there.counts.get(what, 0.0), here.counts.get(what, 0.0)
        if one != other:
            yield f"{what}: {one:.0f} there, {other:.0f} here"


def compared(world: World) -> None:
    """All that is compared is equal, but for what the table has."""
    found = set(differences(_scrape(world, "apache"), _scrape(world, "ours")))
    unlisted, gone = sorted(found - DIFFERENCES.keys()), sorted(DIFFERENCES.keys() - found)
    check(not unlisted, f"differences that the table does not have: {'; '.join(unlisted)}")
    check(not gone, f"differences of the table that are none: {'; '.join(gone)}")


def _scrape(world: World, kind: str) -> Scrape:
    port, folder = free_ports(), world.folder / f"metrics-{kind}"
    with ExitStack() as stack:
        names = world.maker(kind).name_server(folder)
        stack.callback(names.kill)
        broker = world.broker(
            kind,
            folder,
            names.address,
            metricsExporterType="PROM",
            metricsPromExporterPort=str(port),
            # No transaction is asked about: Apache's broker may commit one that has ended again.
            transactionTimeOut="3600000",
            transactionCheckInterval="3600000",
        )
        # Its files are not needed: nothing waits for its stop.
        stack.callback(broker.kill)
        wait_registered(names.port)
        return asyncio.run(
            asyncio.wait_for(_traffic(names.address, f"http://127.0.0.1:{port}/metrics"), LIMIT_S)
        )


async def _traffic(name_server: str, url: str) -> Scrape:
    """Send and receive in all ways that metrics tell apart; scrape while the clients are online."""
    async with Admin(name_server, timeout=LIMIT_S) as admin:
        for topic, kind in TOPICS.items():
            await admin.topics.create(topic, queues=2, attributes={"message.type": kind})
        for group in ("readers", "failing", "popper"):
            await admin.groups.create(group)

    async def commit(message: ReceivedMessage) -> TransactionState:
        return TransactionState.COMMIT

    seen: list[str] = []

    async def take(message: ReceivedMessage) -> None:
        if message.topic == "bad":
            raise ValueError("a message for the dead letters")
        seen.append(message.topic)

    first = {"name_servers": name_server, "consume_from": ConsumeFrom.FIRST}
    sending = {"name_servers": name_server, "timeout": LIMIT_S}
    readers = Consumer("readers", **first)
    for topic in ("orders", "later", "moves"):
        readers.subscribe(topic)
    failing = Consumer("failing", max_reconsume_times=0, **first)
    failing.subscribe("bad")
    async with (
        Producer("sender", **sending) as producer,
        TransactionProducer("mover", check=commit, **sending) as mover,
        SimpleConsumer("popper", **first) as popper,
        readers, failing,
    ):  # fmt: skip
        for number in range(10):
            await producer.send(Message("orders", str(number)))
        await producer.send(Message("bad", b"x"))
        await producer.send(Message("later", b"soon", delay=1))
        await producer.send(Message("later", b"not today", delay=3600))
        await producer.send(Message("steps", b"x"), ordering_key="one")
        async with mover.transaction(Message("moves", b"commit")):
            pass
        async with mover.transaction(Message("moves", b"roll back")) as transaction:
            transaction.roll_back()
        tasks = [asyncio.ensure_future(consumer.run(take)) for consumer in (readers, failing)]
        popper.subscribe("orders")
        popped: list[ReceivedMessage] = []
        while len(popped) < 3:
            popped += await popper.receive(1, 300, wait=5)
        await popper.ack(popped[0])
        while not (settled := _settled(await asyncio.to_thread(_get, url))) or len(seen) < 12:
            await asyncio.sleep(0.2)
    await asyncio.gather(*tasks)
    return settled


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def _settled(text: str) -> Scrape | None:
    """The scrape, when it shows all that comes late: what was timed, ended, dead, read."""
    found = read(text)
    wanted = (
        "rocketmq_timer_dequeue_total later",
        "rocketmq_rollback_messages_total moves",
        "rocketmq_send_to_dlq_messages_total failing bad",
        "rocketmq_messages_out_total readers moves",
        "rocketmq_messages_out_total readers later",
    )
    waiting = "rocketmq_timing_messages" in found.shapes
    return found if waiting and all(what in found.counts for what in wanted) else None


CELLS: dict[str, Callable[[World], None]] = {f"compared with {PEER_VERSION}": compared}
