"""The broker pauses reading from a client over its quota; it reads from others, and no request fails."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config, pull_request
from tests.conversation.http_peer import ON, ask, get
from tests.metrics_text import families, value

from orbitmq.broker.broker import Broker
from orbitmq.testing import SimulatedRuntime
from orbitmq.wire.bodies.quota import Quota
from orbitmq.wire.codes import RequestCode, ResponseCode


async def limit(peer: BrokerPeer, kind: str, name: str, **limits: int) -> None:
    await peer.ok(RequestCode.SET_QUOTA, Quota(kind, name, **limits).encode())


async def listed(peer: BrokerPeer) -> list[Quota]:
    return Quota.decode_list((await peer.ok(RequestCode.LIST_QUOTAS)).body)


async def took(runtime: SimulatedRuntime, work: Any) -> float:
    begin = runtime.clock.monotonic()
    await work
    return runtime.clock.monotonic() - begin


@pytest.mark.behaviour("LM-06")
async def test_messages_of_a_topic_are_taken_at_its_rate(broker: Broker, peer: BrokerPeer) -> None:
    runtime = cast("SimulatedRuntime", broker.runtime)
    for topic in ("slow", "quick"):
        await peer.create(topic, readQueueNums=1, writeQueueNums=1)
        await peer.sent(b"x", topic=topic)
    await limit(peer, "topic", "slow", messages_in=10)

    async def send(topic: str, count: int) -> None:
        for _ in range(count):
            await peer.sent(b"x", topic=topic)

    assert await took(runtime, send("quick", 50)) < 1
    fast = broker.services.counters.fast_in
    # The quota allows ten messages at once, then ten a second.
    assert 4 <= await took(runtime, send("slow", 51)) < 6
    assert broker.services.counters.fast_in == fast
    [quota] = await listed(peer)
    assert quota.pauses_in >= 40
    await limit(peer, "topic", "slow")
    assert await listed(peer) == []
    assert await took(runtime, send("slow", 51)) < 1
    assert broker.services.counters.fast_in > fast


@pytest.mark.behaviour("LM-06")
async def test_an_address_brings_its_bytes_a_second_and_others_are_read(
    broker: Broker, peer: BrokerPeer
) -> None:
    runtime = cast("SimulatedRuntime", broker.runtime)
    await peer.create("T", readQueueNums=1, writeQueueNums=1)
    await limit(peer, "address", "127.0.0.1", bytes_in=1000)

    async def send() -> None:
        for _ in range(6):
            await peer.sent(bytes(1000), topic="T")

    assert 4 <= await took(runtime, send()) < 7
    await limit(peer, "address", "127.0.0.1")
    await limit(peer, "address", "10.9.9.9", bytes_in=1)
    assert await took(runtime, send()) < 1


@pytest.mark.behaviour("LM-06")
async def test_what_a_topic_gives_is_limited_also_to_pulls_that_wait(
    broker: Broker, peer: BrokerPeer
) -> None:
    runtime = cast("SimulatedRuntime", broker.runtime)
    await peer.create("T", readQueueNums=1, writeQueueNums=1)
    for _ in range(30):
        await peer.sent(b"x", topic="T")
    await peer.ask(pull_request(0))
    await limit(peer, "topic", "T", messages_out=10)

    async def pull() -> None:
        for offset in range(0, 30, 5):
            answer = await peer.ask(pull_request(offset, max_msg_nums=5))
            assert answer.code == ResponseCode.SUCCESS
        await peer.ask(pull_request(30, max_msg_nums=5))

    assert 1.5 <= await took(runtime, pull()) < 3
    [quota] = await listed(peer)
    assert quota.pauses_out >= 3
    await limit(peer, "topic", "T")
    await limit(peer, "topic", "T", messages_out=1)
    waiting = asyncio.ensure_future(peer.ask(pull_request(30, sys_flag=6, suspend_timeout_millis=60_000)))
    await asyncio.sleep(5)
    async with BrokerPeer(runtime, broker.address) as other:
        await other.sent(b"x", topic="T")
        assert (await waiting).code == ResponseCode.SUCCESS
        await other.ask(pull_request(30))
        [quota] = await listed(other)
    assert quota.pauses_out == 1


@pytest.mark.behaviour("LM-07")
async def test_quotas_are_kept_and_counted(orbitmq_runtime: SimulatedRuntime) -> None:
    runtime = orbitmq_runtime
    for run in range(2):
        async with (
            Broker(runtime, broker_config(**ON)) as broker,
            BrokerPeer(runtime, broker.address) as peer,
        ):
            if not run:
                await peer.create("T", readQueueNums=1, writeQueueNums=1)
                await limit(peer, "topic", "T", messages_in=1)
                await limit(peer, "user", "app", bytes_out=5)
                await limit(peer, "user", "gone", bytes_out=5)
                await limit(peer, "user", "gone")
            found = [(q.kind, q.name, q.limits) for q in await listed(peer)]
            assert found == [("topic", "T", (0, 1, 0, 0)), ("user", "app", (0, 0, 5, 0))]
            for _ in range(3):
                await peer.sent(b"x", topic="T")
            metrics = families((await ask(runtime, get("/metrics"))).body)
            labels = {"quota": "topic:T", "direction": "in"}
            assert value(metrics, "orbitmq_quota_pauses_total", **labels) == 2
            assert value(metrics, "orbitmq_quota_pause_seconds_total", **labels) >= 1


@pytest.mark.behaviour("LM-07")
@pytest.mark.parametrize(
    ("quota", "text"),
    [
        (Quota("group", "g", bytes_in=1), "kind is 'group', expected user, address or topic"),
        (Quota("topic", "", bytes_in=1), "name has 0 characters"),
        (Quota("topic", "a\nb", bytes_in=1), "printable"),
        (Quota("topic", "a b", bytes_in=1), "The specified topic: a b, contains illegal characters"),
        (Quota("topic", "x" * 256, bytes_in=1), "256 characters"),
        (Quota("address", "here", bytes_in=1), "name is 'here', expected an IP address"),
        (Quota("topic", "T", bytes_in=-1), "bytesIn is -1"),
        (Quota("topic", "T", messages_out=1 << 60), "messagesOut is"),
    ],
)
async def test_a_quota_that_cannot_be_is_refused(
    broker: Broker, peer: BrokerPeer, quota: Quota, text: str
) -> None:
    answer = await peer.call(RequestCode.SET_QUOTA, quota.encode())
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert text in str(answer.remark)
    assert await listed(peer) == []
