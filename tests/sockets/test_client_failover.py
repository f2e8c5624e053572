"""Brokers as processes are killed and frozen under a running producer and consumer."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from pathlib import Path

from orbitmq import ConsumeFrom, Consumer, Message, MessageQueue, Producer, ReceivedMessage
from orbitmq.cluster.processes import ProcessCluster
from orbitmq.errors import SendError

LIMIT_S = 180.0


class Traffic:
    """Producers that send all the time and a consumer that counts."""

    def __init__(self, name_server: str) -> None:
        self.name_server = name_server
        self.sent: list[tuple[float, str, str]] = []
        self.failed: list[SendError] = []
        self.got: set[str] = set()
        # How often a message was handled, by the queue and offset that it was read from. A send that is tried
        # at both brokers may be stored at both: its message is then read once from each.
        self.places: Counter[tuple[MessageQueue, int]] = Counter()
        self.stopped = False

    async def sender(self, producer: Producer) -> None:
        while not self.stopped:
            try:
                result = await producer.send(Message("t", b"x" * 128))
            except SendError as error:
                self.failed.append(error)
            else:
                self.sent.append((time.monotonic(), result.queue.broker_name, result.message_id))
            await asyncio.sleep(0.02)

    async def listener(self, message: ReceivedMessage) -> None:
        self.got.add(message.message_id)
        self.places[message.queue, message.queue_offset] += 1

    def used(self, broker_name: str, since: float) -> bool:
        return any(name == broker_name and at > since for at, name, _ in self.sent)


def test_no_send_fails_and_nothing_is_missing_while_one_broker_lives(tmp_path: Path) -> None:
    async def main() -> None:
        async with ProcessCluster(brokers=2, root=str(tmp_path)) as cluster:
            traffic = Traffic(cluster.name_server)
            consumer = Consumer("cg", name_servers=cluster.name_server, consume_from=ConsumeFrom.FIRST)
            consumer.subscribe("t")
            async with Producer("pg", name_servers=cluster.name_server, timeout=20) as producer, consumer:
                listening = asyncio.create_task(consumer.run(traffic.listener))
                senders = [asyncio.create_task(traffic.sender(producer)) for _ in range(8)]
                await asyncio.sleep(1)
                await cluster.stop_broker("broker-a", kill=True)
                await asyncio.sleep(1.5)
                await cluster.start_broker("broker-a")
                ready = time.monotonic()
                while not traffic.used("broker-a", ready):
                    await asyncio.sleep(0.05)

                pid = cluster.processes["broker-b"].pid
                os.kill(pid, signal.SIGSTOP)
                await asyncio.sleep(2)
                os.kill(pid, signal.SIGCONT)
                traffic.stopped = True
                await asyncio.gather(*senders)
                assert traffic.failed == []
                wanted = {message_id for _, _, message_id in traffic.sent}
                for _ in range(3000):
                    if wanted <= traffic.got:
                        break
                    await asyncio.sleep(0.02)
                assert not wanted - traffic.got
                # The member loses the queues of a broker that is out of the routes, and gets them back at its
                # commits. After a mere freeze no message comes again.
                again = [queue for (queue, _), times in traffic.places.items() if times > 1]
                assert {queue.broker_name for queue in again} <= {"broker-a"}
                assert len(again) < len([name for _, name, _ in traffic.sent if name == "broker-a"])
                assert all(times <= 2 for times in traffic.places.values())
            await listening

    asyncio.run(asyncio.wait_for(main(), LIMIT_S))
