"""Failed and delayed messages with our own clients and brokers, in virtual time."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from orbitmq.client import ConsumeFrom, Consumer, Producer
from orbitmq.cluster.local import LocalCluster
from orbitmq.message.model import Message, ReceivedMessage
from orbitmq.message.record import iter_records
from orbitmq.runtime.simulated import SimulatedRuntime, run, simulated_runtime

# Short delays, so that a test does not simulate five hours; levels 3 to 18 are those of the 16 retries.
LEVELS_S = [1, 5, 10, *(1 + number % 4 for number in range(15))]
LEVELS = " ".join(f"{delay}s" for delay in LEVELS_S)

Check = Callable[[LocalCluster], None]
OnMessage = Callable[[SimulatedRuntime, ReceivedMessage], Awaitable[None]]


def dead_letters(cluster: LocalCluster, group: str) -> list[bytes]:
    bodies: list[bytes] = []
    for broker in cluster.brokers.values():
        found = broker.services.store.get(f"%DLQ%{group}", 0, 0, 32)
        bodies += [record.body for record in iter_records(found.body)]
    return bodies


def with_cluster_and_consumer(
    check: Check, listener: OnMessage, *, send: list[Message], seconds: float, max_reconsume_times: int = -1
) -> None:
    """Send to two brokers, consume with ``listener`` for ``seconds``, then call ``check(cluster)``."""

    async def main() -> None:
        runtime: SimulatedRuntime = simulated_runtime()
        async with (
            LocalCluster(runtime, brokers=2, root="/c", settings={"messageDelayLevel": LEVELS}) as cluster,
            Producer("pg", name_servers=cluster.name_server, runtime=runtime) as producer,
            Consumer(
                "cg",
                name_servers=cluster.name_server,
                consume_from=ConsumeFrom.FIRST,
                max_reconsume_times=max_reconsume_times,
                runtime=runtime,
            ) as consumer,
        ):
            consumer.subscribe("T")
            task = asyncio.ensure_future(consumer.run(lambda message: listener(runtime, message)))
            for message in send:
                await producer.send(message)
            await runtime.clock.sleep(seconds)
            task.cancel()
            check(cluster)

    run(main())


@pytest.mark.behaviour("DQ-01")
def test_what_always_fails_is_delivered_seventeen_times_and_then_a_dead_letter() -> None:
    deliveries: dict[bytes, list[int]] = defaultdict(list)

    async def listener(runtime: SimulatedRuntime, message: ReceivedMessage) -> None:
        assert message.topic == "T"
        assert message.reconsume_times == len(deliveries[message.body])
        deliveries[message.body].append(runtime.clock.now_ms())
        if message.body != b"fine":
            raise ValueError("not today")

    def check(cluster: LocalCluster) -> None:
        assert len(deliveries.pop(b"fine")) == 1
        for times in deliveries.values():
            gaps = [(after - before) / 1000 for before, after in pairwise(times)]
            assert len(times) == 17
            for gap, wanted in zip(gaps, LEVELS_S[2:], strict=True):
                assert wanted <= gap <= wanted + 0.5
        assert sorted(dead_letters(cluster, "cg")) == sorted(deliveries) == [b"0", b"1", b"2"]

    messages = [Message("T", body) for body in (b"0", b"fine", b"1", b"2")]
    with_cluster_and_consumer(check, listener, send=messages, seconds=60)


def test_a_message_that_succeeds_later_does_not_come_again() -> None:
    deliveries: list[int] = []

    async def listener(_runtime: SimulatedRuntime, message: ReceivedMessage) -> None:
        deliveries.append(message.reconsume_times)
        if message.reconsume_times < 2:
            raise ValueError("not today")

    def check(cluster: LocalCluster) -> None:
        assert deliveries == [0, 1, 2]
        assert dead_letters(cluster, "cg") == []

    with_cluster_and_consumer(check, listener, send=[Message("T", b"x")], seconds=30)


def test_the_consumers_own_limit_counts() -> None:
    deliveries: list[int] = []

    async def listener(_runtime: SimulatedRuntime, message: ReceivedMessage) -> None:
        deliveries.append(message.reconsume_times)
        raise ValueError("never")

    def check(cluster: LocalCluster) -> None:
        assert deliveries == [0, 1]
        assert dead_letters(cluster, "cg") == [b"x"]

    with_cluster_and_consumer(check, listener, send=[Message("T", b"x")], seconds=30, max_reconsume_times=1)


def test_delayed_messages_come_when_they_are_due() -> None:
    got: dict[bytes, int] = {}

    async def listener(runtime: SimulatedRuntime, message: ReceivedMessage) -> None:
        got[message.body] = runtime.clock.now_ms() - message.born_timestamp_ms

    def check(_cluster: LocalCluster) -> None:
        assert sorted(got) == [b"0", b"1", b"2", b"3"]
        for body, delay_ms in ((b"1", 1000), (b"2", 5000), (b"3", 10_000)):
            assert delay_ms <= got[body] <= delay_ms + 100

    messages = [Message("T", b"%d" % level, delay_level=level) for level in (3, 2, 1)]
    with_cluster_and_consumer(check, listener, send=[Message("T", b"0"), *messages], seconds=15)
