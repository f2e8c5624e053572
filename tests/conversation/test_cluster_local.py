"""A cluster inside the simulation: it serves, survives a broker's restart, and reports errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from orbitmq.admin import Admin
from orbitmq.cluster.layout import ClusterError, members
from orbitmq.cluster.local import LocalCluster
from orbitmq.errors import BrokerError, NameServerError, TopicNotFoundError, ValidationError
from orbitmq.message.model import MessageQueue
from orbitmq.testing import SimulatedRuntime
from orbitmq.testing.machine.simulated import simulated_runtime
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers.offset import UpdateConsumerOffsetRequest
from orbitmq.wire.headers.send import SendMessageV2Request


async def test_brokers_serve_and_come_back_on_their_data(runtime: SimulatedRuntime) -> None:
    async with (
        LocalCluster(runtime, brokers=2, root="/c") as cluster,
        Admin(cluster.name_server, runtime=runtime) as admin,
    ):
        assert await admin.topics.create("TopicA", queues=3) == ["broker-a", "broker-b"]
        before = await admin.topics.route("TopicA")
        await cluster.stop_broker("broker-a")
        assert [entry.broker_name for entry in await admin.topics.route("TopicA")] == ["broker-b"]
        await cluster.start_broker("broker-a")
        assert await admin.topics.route("TopicA") == before
    assert not cluster.brokers


@pytest.mark.parametrize("acting", ["false", "true"])
async def test_registered_brokers_stay_in_the_routes_for_hours(
    runtime: SimulatedRuntime, acting: str
) -> None:
    async with (
        LocalCluster(runtime, brokers=1, root="/c", settings={"enableSlaveActingMaster": acting}) as cluster,
        Admin(cluster.name_server, runtime=runtime) as admin,
    ):
        for _ in range(60):
            await runtime.clock.sleep(37)
            assert [broker.name for broker in await admin.brokers.list()] == ["broker-a"]


async def test_a_restarted_name_server_hears_of_its_brokers_within_seconds(runtime: SimulatedRuntime) -> None:
    async with (
        LocalCluster(runtime, brokers=2, root="/c") as cluster,
        Admin(cluster.name_server, runtime=runtime) as admin,
    ):
        for pause in (0.0, 1.0, 45.0):
            await cluster.stop_name_server()
            await runtime.clock.sleep(pause)
            begin = runtime.clock.monotonic()
            await cluster.start_name_server()
            assert runtime.clock.monotonic() - begin < 2.5
            assert len(await admin.brokers.list()) == 2


def test_what_cannot_start_says_so() -> None:
    runtime = simulated_runtime()
    assert [each.name for each in members(2, 2)] == ["broker-a", "broker-a-1", "broker-b", "broker-b-1"]
    with pytest.raises(ValueError, match="replicas=10: expected 1 to 9"):
        members(1, 10)
    for count in (0, 27):
        with pytest.raises(ValueError, match=f"brokers={count}: expected 1 to 26"):
            LocalCluster(runtime, brokers=count, root="/c")
    with pytest.raises(ClusterError, match="noSuchKey"):
        LocalCluster(runtime, root="/c", settings={"noSuchKey": "1"})


@asynccontextmanager
async def served(runtime: SimulatedRuntime, **settings: Any) -> AsyncIterator[Admin]:
    async with (
        LocalCluster(runtime, brokers=2, root="/c", **settings) as cluster,
        Admin(cluster.name_server, runtime=runtime) as admin,
    ):
        yield admin


async def test_topics_are_listed_shown_and_deleted(runtime: SimulatedRuntime) -> None:
    async with served(runtime) as admin:
        brokers = await admin.brokers.list()
        assert [(b.cluster, b.name, b.is_master) for b in brokers] == [
            ("DefaultCluster", "broker-a", True),
            ("DefaultCluster", "broker-b", True),
        ]
        await admin.topics.create("TopicA", queues=2, perm=4)
        for entry in await admin.topics.route("TopicA"):
            assert (entry.read_queues, entry.write_queues) == (2, 2)
            assert (entry.readable, entry.writable) == (True, False)
        await admin.topics.create("TopicA", queues=3)
        status = (await admin.topics.status("TopicA")).whole()
        assert [(s.queue.broker_name, s.queue.queue_id, s.count) for s in status] == [
            (name, queue_id, 0) for name in ("broker-a", "broker-b") for queue_id in range(3)
        ]
        assert "TopicA" in await admin.topics.list()
        assert "TopicA" in await admin.topics.list(cluster="DefaultCluster")
        assert await admin.topics.list(cluster="Other") == []
        await admin.topics.delete("TopicA")
        assert "TopicA" not in await admin.topics.list()
        with pytest.raises(TopicNotFoundError, match="TopicA"):
            (await admin.topics.status("TopicA")).whole()


async def test_broker_settings_are_read_and_changed(runtime: SimulatedRuntime) -> None:
    async with served(runtime, settings={"fileReservedTime": "5"}) as admin:
        address = (await admin.brokers.list())[0].address
        assert (await admin.brokers.settings(address))["brokerName"] == "broker-a"
        await admin.brokers.change_settings(address, {"fileReservedTime": "7"})
        assert (await admin.brokers.settings(address))["fileReservedTime"] == "7"
        with pytest.raises(BrokerError, match="brokerName"):
            await admin.brokers.change_settings(address, {"brokerName": "x"})


async def test_who_cannot_be_asked_is_named(runtime: SimulatedRuntime) -> None:
    with pytest.raises(ValidationError):
        Admin("")
    with pytest.raises(ValidationError):
        Admin("nowhere")
    async with Admin(["127.0.0.1:1", "127.0.0.1:2"], runtime=runtime) as admin:
        with pytest.raises(NameServerError, match=r"127\.0\.0\.1:1.*127\.0\.0\.1:2"):
            await admin.topics.list()
    async with (
        LocalCluster(runtime, brokers=1, root="/c") as cluster,
        Admin(["127.0.0.1:1", cluster.name_server], runtime=runtime) as admin,
    ):
        assert len(await admin.brokers.list()) == 1
        with pytest.raises(NameServerError, match="no cluster 'Other'; there are: DefaultCluster"):
            await admin.topics.create("TopicA", cluster="Other")


async def send(client: RemotingClient, address: str, topic: str, queue_id: int, count: int) -> None:
    for _ in range(count):
        header = SendMessageV2Request(
            producer_group="p",
            topic=topic,
            default_topic="TBW102",
            default_topic_queue_nums=4,
            queue_id=queue_id,
            sys_flag=0,
            born_timestamp=1,
            flag=0,
        )
        answer = await client.request(address, header.command(b"body"), 3000)
        assert answer.code == ResponseCode.SUCCESS


async def test_status_and_progress_count_what_is_stored_and_consumed(runtime: SimulatedRuntime) -> None:
    client = RemotingClient(runtime)
    async with served(runtime) as admin:
        await admin.topics.create("TopicA", queues=2)
        master = (await admin.brokers.list())[0].address
        await send(client, master, "TopicA", 1, 5)
        counts = {s.queue[1:]: s.count for s in (await admin.topics.status("TopicA")).whole()}
        assert counts == {("broker-a", 0): 0, ("broker-a", 1): 5, ("broker-b", 0): 0, ("broker-b", 1): 0}
        await admin.groups.create("g")
        commit = UpdateConsumerOffsetRequest(
            consumer_group="g", topic="TopicA", queue_id=1, commit_offset=3
        ).command()
        assert (await client.request(master, commit, 3000)).code == ResponseCode.SUCCESS
        progress = {p.queue: p for p in (await admin.groups.lag("g")).whole()}
        mine = progress[MessageQueue("TopicA", "broker-a", 1)]
        assert (mine.end, mine.committed, mine.lag) == (5, 3, 2)
        assert mine.queue in [one.queue for one in (await admin.groups.lag("g", topic="TopicA")).whole()]
        assert await admin.groups.delete("g", clean_offsets=True) == ["broker-a", "broker-b"]
    await client.close()
