"""The clients against our own cluster on loopback sockets."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import orbitmq
from orbitmq import ConsumeFrom, Consumer, Message, Producer, PullConsumer, ReceivedMessage, SendStatus
from orbitmq import sync as blocking
from orbitmq.admin import Admin
from orbitmq.cluster.local import LocalCluster
from orbitmq.errors import SendError, SendErrorKind
from orbitmq.runtime.loop_thread import LoopThread
from orbitmq.runtime.system import system_runtime

Work = Callable[[LocalCluster], Awaitable[None]]


def with_cluster(folder: Path, work: Work, brokers: int = 2) -> None:
    async def main() -> None:
        async with LocalCluster(system_runtime(), brokers=brokers, root=str(folder)) as cluster:
            await asyncio.wait_for(work(cluster), 180)

    asyncio.run(main())


async def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the condition did not come true")


def test_everything_sent_is_received_once(tmp_path: Path) -> None:
    async def work(cluster: LocalCluster) -> None:
        sent: set[tuple[str, int, int]] = set()
        got: list[ReceivedMessage] = []

        async def listener(message: ReceivedMessage) -> None:
            got.append(message)

        async with (
            Admin(cluster.name_server) as admin,
            Producer("pg", name_servers=cluster.name_server, timeout=60) as producer,
            Consumer("cg", name_servers=cluster.name_server, consume_from=ConsumeFrom.FIRST) as one,
            Consumer("cg", name_servers=cluster.name_server, consume_from=ConsumeFrom.FIRST) as two,
        ):
            await admin.topics.create("flights", queues=4)
            for consumer in (one, two):
                consumer.subscribe("flights", "AA || UA")
            # A queue that changes hands while messages arrive brings some of them twice.
            await until(lambda: len(one.assignment()) == len(two.assignment()) == 4)
            tasks = [asyncio.create_task(consumer.run(listener)) for consumer in (one, two)]

            async def send(number: int) -> None:
                tag = ("AA", "UA", "DL")[number % 3]
                body = b"%d" % number if number % 10 else b"%d " % number + bytes(5000)
                result = await producer.send(Message("flights", body, tags=tag, keys=f"k{number}"))
                assert result.status is SendStatus.SEND_OK
                if tag != "DL":
                    sent.add((result.queue.broker_name, result.queue.queue_id, result.queue_offset))

            await asyncio.gather(*(send(number) for number in range(600)))
            await until(lambda: len(got) >= 400)
            await asyncio.sleep(0.3)  # in which one that comes twice would come
        await asyncio.gather(*tasks)
        places = [(m.broker_name, m.queue_id, m.queue_offset) for m in got]
        assert sorted(places) == sorted(sent)
        assert len(set(places)) == len(places) == 400
        assert {int(m.body.split()[0].rstrip(b"\0")) for m in got} == {n for n in range(600) if n % 3 != 2}

    with_cluster(tmp_path, work)


def test_batch_oneway_and_assigned_reading(tmp_path: Path) -> None:
    async def work(cluster: LocalCluster) -> None:
        async with Producer("pg", name_servers=cluster.name_server) as producer:
            result = await producer.send_batch([Message("t", b"%d" % number) for number in range(10)])
            assert result.message_id.count(",") == 9
            await producer.send_oneway(Message("t", b"oneway"))
        async with PullConsumer("ag", name_servers=cluster.name_server, auto_commit=False) as consumer:
            queues = await consumer.queues("t")
            consumer.assign(queues)
            await consumer.seek_to_begin(*queues)
            bodies: list[bytes] = []
            while len(bodies) < 11:
                messages = await consumer.poll(timeout=30)
                assert messages
                bodies += [message.body for message in messages]
            assert sorted(bodies) == sorted([*(b"%d" % number for number in range(10)), b"oneway"])
            await consumer.commit()
            positions = [await consumer.committed(queue) for queue in queues]
            assert sum(positions) == 11

    with_cluster(tmp_path, work, brokers=1)


def test_sends_go_on_when_a_broker_stops(tmp_path: Path) -> None:
    async def work(cluster: LocalCluster) -> None:
        async with Producer("pg", name_servers=cluster.name_server) as producer:
            for number in range(20):
                await producer.send(Message("t", b"%d" % number))
            await cluster.stop_broker("broker-a")
            for number in range(50):
                result = await producer.send(Message("t", b"%d" % number))
                assert result.queue.broker_name == "broker-b"
            await cluster.stop_broker("broker-b")
            with pytest.raises(SendError) as caught:
                await producer.send(Message("t", b"x"))
            assert caught.value.kind is SendErrorKind.BROKER_UNREACHABLE
            assert len(caught.value.attempts) == 3
            await cluster.start_broker("broker-a")
            await until(lambda: producer_sees(producer, "broker-a"))
            assert (await producer.send(Message("t", b"x"))).status is SendStatus.SEND_OK

    def producer_sees(producer: Producer, name: str) -> bool:
        route = producer._client.route("t")
        return route is not None and route.master(name) is not None

    with_cluster(tmp_path, work)


class Served:
    """A cluster on a loop of its own, for blocking clients."""

    def __init__(self, folder: Path) -> None:
        self.loop = LoopThread("cluster")
        self.cluster = LocalCluster(system_runtime(), brokers=1, root=str(folder))

    def __enter__(self) -> str:
        self.loop.wait(self.cluster.start())
        return self.cluster.name_server

    def __exit__(self, *error: object) -> None:
        self.loop.wait(self.cluster.stop())
        self.loop.stop()


def test_the_blocking_faces(tmp_path: Path) -> None:
    with Served(tmp_path) as name_server:
        with blocking.Producer("pg", name_servers=name_server) as producer:
            futures = [producer.submit(Message("t", b"%d" % number)) for number in range(20)]
            assert all(future.result(60).status is SendStatus.SEND_OK for future in futures)
            assert producer.send(Message("t", b"20"), ordering_key="a").status is SendStatus.SEND_OK
            producer.send_batch([Message("t", b"21"), Message("t", b"22")])
            producer.send_oneway(Message("t", b"23"))
            queues = producer.queues("t")
            assert producer.fault_table() == []
        consumer = blocking.Consumer("cg", name_servers=name_server, consume_from=ConsumeFrom.FIRST)
        consumer.subscribe("t")
        seen: set[int] = set()
        with consumer:
            for message in consumer:
                seen.add(int(message.body))
                if len(seen) == 24:
                    message.ack()
                    break
            assert set(consumer.assignment()) >= set(queues)
            consumer.commit()
        assert seen == set(range(24))
        with blocking.PullConsumer("cg", name_servers=name_server, auto_commit=False) as reader:
            assert sum(max(reader.committed(queue), 0) for queue in queues) == 24
            reader.assign(queues)
            reader.seek_to_begin(*queues)
            assert reader.poll(60)
            assert sum(reader.max_offset(queue) for queue in queues) == 24
            assert sum(reader.min_offset(queue) for queue in queues) == 0
        with pytest.raises(orbitmq.OrbitError, match="not running"):
            reader.poll()


def test_a_blocking_listener_runs_until_close(tmp_path: Path) -> None:
    with Served(tmp_path) as name_server:
        got: list[bytes] = []
        enough = threading.Event()

        def listener(message: ReceivedMessage) -> None:
            got.append(message.body)
            if len(got) == 10:
                enough.set()

        consumer = blocking.Consumer("cg", name_servers=name_server, consume_from=ConsumeFrom.FIRST)
        consumer.subscribe("t")
        with consumer, blocking.Producer("pg", name_servers=name_server) as producer:
            runner = threading.Thread(target=consumer.run, args=(listener,))
            runner.start()
            for number in range(10):
                producer.send(Message("t", b"%d" % number))
            assert enough.wait(60)
            consumer.close()
            runner.join(60)
            assert not runner.is_alive()
        assert sorted(got) == [b"%d" % number for number in range(10)]
