"""The faults of several brokers: one is dead while a client starts; a master is lost and comes back."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from benchmarks.grpc_faults.lab import STARTED_WITHIN_S, FaultError, Lab
from benchmarks.grpc_faults.plays import DELIVERED_WITHIN_S, Figures, longest_gap
from benchmarks.grpc_faults.site import Broker, Site
from benchmarks.remoting import GET_BROKER_RUNTIME_INFO, Client, RequestError
from tests.interop.grpc_running import Running

from orbitmq import ConsumeFrom, Consumer, Message, Producer, SendError

SENT: Final = 10
ACTING: Final = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "slaveReadEnable": "true",
    "totalReplicas": "2",
    "brokerIP2": "127.0.0.1",
}
SLAVE: Final = {"brokerRole": "SLAVE", "brokerId": "1"}
BEFORE_S, AWAY_S, AFTER_S = 10.0, 40.0, 20.0
EACH_S: Final = 0.02
QUEUES: Final = 4


def one_dead(lab: Lab) -> Figures:
    """A client starts, and sends, while one of the two brokers of its topic is dead."""
    topic, site = "two", lab.site
    second = site.broker("broker-b")
    site.wait_for(2)
    site.create(topic, groups=2)
    second.server.kill()
    producer = lab.run(lab.machine(), "send", topic, "-", SENT)
    producer.wait_for(lambda: len(producer.lines) >= SENT, STARTED_WITHIN_S)
    return {"not_sent": SENT - len(producer.bodies("id"))}


@dataclass
class Flow:
    """The sent and the received messages, each with its time."""

    sent: dict[str, float] = field(default_factory=dict)
    received: dict[str, float] = field(default_factory=dict)

    def lost(self) -> int:
        return len(self.sent.keys() - self.received.keys())

    def gaps(self, since: float) -> Sequence[float]:
        """The longest gap of sends, and that of receives."""
        return [longest_gap(sorted(times.values()), since) for times in (self.sent, self.received)]


class RemotingFlow(threading.Thread):
    """An OrbitMQ producer and consumer, over remoting, which run until :meth:`end`."""

    def __init__(self, name_server: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.flow = Flow()
        self._name_server = name_server
        self._topic = topic
        self._sends = self._receives = True

    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        consumer = Consumer(self._topic, name_servers=self._name_server, consume_from=ConsumeFrom.FIRST)
        consumer.subscribe(self._topic)
        async with consumer, Producer(self._topic, name_servers=self._name_server) as producer:
            receiving = asyncio.ensure_future(self._receive(consumer))
            number = 0
            while self._sends:
                body, number = f"body-{number}", number + 1
                with suppress(SendError):
                    await producer.send(Message(self._topic, body.encode()))
                    self.flow.sent[body] = time.monotonic()
                await asyncio.sleep(EACH_S)
            with suppress(TimeoutError):
                await asyncio.wait_for(receiving, DELIVERED_WITHIN_S)

    async def _receive(self, consumer: Consumer) -> None:
        async for message in consumer:
            self.flow.received.setdefault(message.body.decode(), time.monotonic())
            if not self._sends and not self.flow.lost():
                return

    def end(self) -> Flow:
        """Stop sending, and wait until the sent messages are received."""
        self._sends = False
        self.join(DELIVERED_WITHIN_S + 30)
        return self.flow


def master_lost(lab: Lab) -> Figures:
    """A master of two groups is killed, its slave acts, the master comes back; remoting clients run at the
    same time.
    """
    if not lab.site.is_ours:
        raise FaultError("a proxy in local mode knows its own broker only")
    site = lab.site.beside("acting")
    master, other = (site.broker(name, **ACTING) for name in ("broker-a", "broker-b"))
    slave = site.broker("broker-a", "slave", **ACTING, **SLAVE)
    site.broker("broker-b", "slave", **ACTING, **SLAVE)
    site.wait_for(4)
    for topic in ("grpc", "remoting"):
        site.create(topic, QUEUES, groups=2)
    _until(lambda: _log_end(slave) == _log_end(master), "the slave has the log")
    machine = lab.machine()
    consumer = lab.run(machine, "push", "grpc", "grpc", endpoint=other.endpoint)
    lab.until_it_receives("grpc", consumer, site)
    producer = lab.run(machine, "steady", "grpc", "-", endpoint=other.endpoint)
    remoting = RemotingFlow(site.name_server.address, "remoting")
    remoting.start()
    if not producer.wait_for(lambda: len(producer.bodies("sent")) >= SENT, STARTED_WITHIN_S):
        raise FaultError("no producer starts")
    time.sleep(BEFORE_S)
    lost_at = time.monotonic()
    _lose_and_bring_back(site, master, slave)
    producer.end()
    sent = dict(producer.times("sent"))
    consumer.wait_for(lambda: sent.keys() <= set(consumer.bodies("body")), DELIVERED_WITHIN_S)
    return _figures({"grpc": Flow(sent, _first(consumer)), "remoting": remoting.end()}, lost_at)


def _lose_and_bring_back(site: Site, master: Broker, slave: Broker) -> None:
    master.server.kill()
    _until(lambda: _active(slave), "the slave acts")
    time.sleep(AWAY_S)
    back = site.broker("broker-a", **ACTING)
    _until(lambda: _active(back) and not _active(slave), "the master works again")
    time.sleep(AFTER_S)


def _info(broker: Broker) -> Mapping[str, str]:
    with Client(broker.server.port) as client:
        table: Mapping[str, str] = json.loads(client.request(GET_BROKER_RUNTIME_INFO).body)["table"]
    return table


def _active(broker: Broker) -> bool:
    """Whether a broker does the background work of its group, by its runtime information."""
    return _info(broker)["brokerActive"] == "true"


def _log_end(broker: Broker) -> str:
    return _info(broker)["commitLogMaxOffset"]


def _until(reached: Callable[[], bool], what: str) -> None:
    """Wait until ``reached`` returns true.

    Raises:
        FaultError: that does not happen in time.
    """
    until = time.monotonic() + STARTED_WITHIN_S
    while True:
        with suppress(OSError, RequestError):
            if reached():
                return
        if time.monotonic() > until:
            raise FaultError(f"not within {STARTED_WITHIN_S:.0f} s: {what}")
        time.sleep(0.1)


def _first(consumer: Running) -> dict[str, float]:
    """The time of each message's first delivery."""
    found: dict[str, float] = {}
    for body, at in consumer.times("body"):
        found.setdefault(body, at)
    return found


def _figures(flows: Mapping[str, Flow], since: float) -> Figures:
    (send_s, receive_s), (remoting_send_s, remoting_receive_s) = (
        flows[name].gaps(since) for name in ("grpc", "remoting")
    )
    return {
        "lost": sum(flow.lost() for flow in flows.values()),
        "remoting_send_gap_s": remoting_send_s,
        "send_gap_more_s": max(0.0, send_s - remoting_send_s),
        "remoting_receive_gap_s": remoting_receive_s,
        "receive_gap_more_s": max(0.0, receive_s - remoting_receive_s),
    }
