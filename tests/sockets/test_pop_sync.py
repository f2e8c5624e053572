"""The blocking SimpleConsumer at a broker on real sockets."""

from __future__ import annotations

import threading
import time

from orbitmq import ConsumeFrom, Message
from orbitmq.message.model import ReceivedMessage
from orbitmq.message.settling import Settled
from orbitmq.sync import Producer, SimpleConsumer
from orbitmq.testing import RunningCluster


def sent(cluster: RunningCluster, *texts: str) -> None:
    with Producer("shop", name_servers=cluster.name_server) as producer:
        for text in texts:
            producer.send(Message("orders", text))


def taken(consumer: SimpleConsumer, count: int, invisible_s: float = 60) -> list[ReceivedMessage]:
    """So many messages, however many requests that takes."""
    found: list[ReceivedMessage] = []
    while len(found) < count:
        found += consumer.receive(count - len(found), invisible_s, wait=10)
    return found


def test_receive_settle_and_come_again(orbitmq_cluster: RunningCluster) -> None:
    sent(orbitmq_cluster, "a", "b", "c", "d")
    with SimpleConsumer(
        "billing", name_servers=orbitmq_cluster.name_server, consume_from=ConsumeFrom.FIRST
    ) as consumer:
        consumer.subscribe("orders")
        first, second, third, fourth = taken(consumer, 4)
        assert consumer.ack(first) is Settled.DONE
        assert consumer.ack_all([first, second]) == [Settled.ALREADY, Settled.DONE]
        assert consumer.change_invisible(third, 0.5) is Settled.DONE
        assert fourth.ack() is Settled.DONE
        [again] = taken(consumer, 1)
        assert (again.body, again.reconsume_times) == (third.body, 1)
        assert consumer.ack(third) is Settled.GONE
        assert consumer.reject(again) is Settled.DONE
        assert consumer.receive(wait=0.5) == []


def test_a_loop_renews_what_its_body_takes_long_for(orbitmq_cluster: RunningCluster) -> None:
    sent(orbitmq_cluster, "a", "b")
    found = []
    with SimpleConsumer(
        "billing",
        name_servers=orbitmq_cluster.name_server,
        consume_from=ConsumeFrom.FIRST,
        invisible_for=6,
        batch_size=2,
    ) as consumer:
        consumer.subscribe("orders")
        for message in consumer:
            time.sleep(6.5)  # a busy machine may let a renewal wait: it is due when half of the time is over
            found.append(message.body)
            if len(found) == 2:
                message.ack()
                break
        assert sorted(found) == [b"a", b"b"]
        assert consumer.receive(wait=6.5) == []


def test_messages_are_settled_on_any_thread(orbitmq_cluster: RunningCluster) -> None:
    sent(orbitmq_cluster, *map(str, range(20)))
    with SimpleConsumer(
        "billing", name_servers=orbitmq_cluster.name_server, consume_from=ConsumeFrom.FIRST
    ) as consumer:
        consumer.subscribe("orders")
        messages = taken(consumer, 20)
        settled: list[Settled] = []
        threads = [threading.Thread(target=lambda m=m: settled.append(m.ack())) for m in messages]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert settled == [Settled.DONE] * 20


def test_handlers_run_in_threads_until_the_consumer_is_closed(orbitmq_cluster: RunningCluster) -> None:
    sent(orbitmq_cluster, "a", "b", "c")
    together = threading.Barrier(3)
    done = threading.Semaphore(0)

    def handle(message: ReceivedMessage) -> None:
        together.wait(60)
        done.release()

    servers = orbitmq_cluster.name_server
    with SimpleConsumer(
        "billing", name_servers=servers, consume_from=ConsumeFrom.FIRST, concurrency=3
    ) as consumer:
        consumer.subscribe("orders")
        runner = threading.Thread(target=consumer.run, args=(handle,))
        runner.start()
        for _ in range(3):
            assert done.acquire(timeout=60)
    runner.join(60)
    assert not runner.is_alive()
    with SimpleConsumer("billing", name_servers=servers, consume_from=ConsumeFrom.FIRST) as other:
        other.subscribe("orders")
        assert other.receive(wait=1) == []
