"""Cells of `make interop-grpc` about who owns a message when brokers die.

A group of a master and a slave has one address, which leads to the broker that serves now, as a virtual
address does. Its master is killed, its slave acts, the master comes back: what a simple consumer received
before, it acknowledges at the acting slave. What a push consumer works on stays with it then, and also when a
broker is killed and started again, although another member of its group is there. When the answer to a
receive is lost, in order or not, the next try gets its messages.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.ports import free_ports
from benchmarks.servers import Ours, Server
from tests.interop.acting_cells import ACTING, active, until
from tests.interop.grpc_clients import LIMIT_S, Client
from tests.interop.grpc_running import Door, Running
from tests.interop.replica_cells import caught_up

from orbitmq.admin import Admin, GroupSettings

TOPIC, GROUP = "owned", "owners"
# A topic and its group, both in order.
FIFO = "ordered"
HELD = 4
# Longer than a consumer waits for the answer to a receive: poll time 20 s, and 10 s.
LOST_S = 40.0
# When the invisible time of what a consumer got is over, unless the broker renews it.
INVISIBLE_S = 65.0
# In which a message that is there again reaches a consumer.
LINGER_S = 5.0
# In which the slave copies the tables of its master.
TABLES_S = 2.0


class Brokers:
    """A name server and one group of brokers; `door` leads to the one that serves."""

    def __init__(self, folder: Path, stack: ExitStack, *, slave: bool) -> None:
        self._folder = folder
        self._stack = stack
        first = free_ports(10)
        self._ports = {"master": first + 2, "slave": first + 7}
        settings = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"} if slave else {}
        self._ns = self._kept(Ours().name_server(folder, **settings))  # type: ignore[arg-type]
        self._settings: dict[str, str] = ACTING if slave else {}
        self._master = self._start("master")
        self._slave: Server | None = None
        self.door = Door(self._master.port)
        stack.callback(self.door.close)
        asyncio.run(self._create_topic())
        if slave:
            self._slave = self._start("slave")

    def _kept(self, server: Server) -> Server:
        self._stack.callback(server.kill)
        return server

    def _start(self, name: str) -> Server:
        role = {"brokerRole": "SLAVE", "brokerId": "1"} if name == "slave" else {"brokerRole": "ASYNC_MASTER"}
        settings = {**self._settings, **role}
        return self._kept(
            Ours().broker(self._folder / name, self._ns.address, port=self._ports[name], **settings)  # type: ignore[arg-type]
        )

    async def _create_topic(self) -> None:
        async with Admin(self._ns.address) as admin, asyncio.timeout(LIMIT_S):
            while not await admin.brokers.list():
                await asyncio.sleep(0.1)
            await admin.topics.create(TOPIC, queues=4)
            await admin.topics.create(FIFO, queues=1, attributes={"message.type": "FIFO"})
            await admin.groups.create(FIFO, GroupSettings(orderly=True))

    @property
    def address(self) -> str:
        """The master itself, past the door."""
        return self._master.address

    def lose(self) -> None:
        """Kill the master. Its slave acts; without a slave it is started again at once."""
        if self._slave is None:
            self._master.kill()
            self._master = self._start("master")
            return
        slave = self._slave
        caught_up(self._master, slave, "before the kill")
        time.sleep(TABLES_S)
        self._master.kill()
        until(lambda: active(slave), "the slave acts")
        self.door.lead_to(slave.port)

    def bring_back(self) -> None:
        """Start the master again, and wait until it serves."""
        slave = self._slave
        assert slave is not None
        self._master = self._start("master")
        until(lambda: active(self._master) and not active(slave), "the master works again")
        self.door.lead_to(self._master.port)

    def members(self) -> int:
        """How many members the group has."""

        async def ask() -> int:
            async with Admin(self._ns.address) as admin:
                return len((await admin.groups.show(GROUP)).found.members)

        return asyncio.run(ask())


@contextmanager
def brokers(folder: Path, *, slave: bool) -> Iterator[tuple[Brokers, ExitStack]]:
    """Brokers that are killed in the end, and the place for what runs with them."""
    with ExitStack() as stack:
        yield Brokers(folder, stack, slave=slave), stack


def receipts(client: Client, folder: Path, count: int) -> str:
    """What is wrong with acknowledgements at an acting slave of what its master delivered; empty: nothing."""
    with brokers(folder, slave=True) as (group, stack):
        client.run("send", group.door.address, TOPIC, "-", count)
        consumer = Running(client, "late", group.door.address, TOPIC, GROUP, count)
        stack.callback(consumer.end)
        consumer.wait_for(lambda: len(consumer.bodies("body")) >= count)
        began = time.monotonic()
        group.lose()
        consumer.go()
        consumer.wait_for(lambda: len(consumer.bodies("acknowledged") + consumer.bodies("failed")) >= count)
        done, why = len(consumer.bodies("acknowledged")), consumer.bodies("why")
        if done != count:
            return f"{done} of {count} acknowledged at the acting slave: {why[:2]}"
        group.bring_back()
        return _nothing_more(client, group, stack, began)


def held(client: Client, folder: Path, *, slave: bool) -> str:
    """What is wrong with what a push consumer works on when its broker is killed; empty: nothing."""
    with brokers(folder, slave=slave) as (group, stack):
        client.run("send", group.door.address, TOPIC, "-", HELD)
        consumer = Running(client, "hold", group.door.address, TOPIC, GROUP, HELD)
        stack.callback(consumer.end)
        consumer.wait_for(lambda: len(consumer.bodies("body")) >= HELD)
        began = time.monotonic()
        other = Running(client, "push", group.door.address, TOPIC, GROUP, HELD)
        stack.callback(other.end)
        until(lambda: group.members() == 2, "both consumers are members")
        group.lose()
        if slave:
            group.bring_back()
        time.sleep(max(0.0, began + INVISIBLE_S - time.monotonic()))
        bodies, taken = consumer.bodies("body"), other.bodies("body")
        if len(bodies) != HELD or len(set(bodies)) != HELD or taken:
            return f"the consumer got {sorted(bodies)}, not {HELD} once each; another one got {taken}"
        # It says goodbye in the end: what it has not done by then comes to the other one at once.
        consumer.go()
        if code := consumer.ended():
            return f"the consumer ends with {code}"
        time.sleep(LINGER_S)
        return (
            f"the consumer's acknowledgements did not count: {taken}"
            if (taken := other.bodies("body"))
            else ""
        )


def answer_lost(client: Client, folder: Path, count: int, *, in_order: bool) -> str:
    """What is wrong when the answer to a receive is lost: the next try is to get its messages."""
    topic, group_name, send = (FIFO, FIFO, "fifo") if in_order else (TOPIC, GROUP, "send")
    with brokers(folder, slave=False) as (group, stack):
        consumer = Running(client, "push", group.door.address, topic, group_name, 10 * count)
        stack.callback(consumer.end)
        # It receives, before an answer is lost.
        client.run(send, group.address, topic, "-", 1)
        consumer.wait_for(lambda: len(consumer.lines) == 1)
        time.sleep(1)
        group.door.lose_answers()
        client.run(send, group.address, topic, "-", count)
        time.sleep(LOST_S)
        if early := consumer.bodies("body")[1:]:
            return f"{early[:3]} came although answers are lost"
        group.door.heal()
        wanted = [f"body-{number}" for number in range(count)]
        consumer.wait_for(lambda: set(wanted) <= set(consumer.bodies("body")[1:]))
        found = [(line["body"], line["attempt"]) for line in consumer.lines[1:]]
        if in_order:
            kept = found == [(body, 1) for body in wanted]
        else:
            kept = sorted(body for body, _ in found) == sorted(wanted)
        return "" if kept else f"got {found[:5]} of {len(found)}, not {wanted[:5]} of {count}"


def _nothing_more(client: Client, group: Brokers, stack: ExitStack, began: float) -> str:
    """What a consumer gets when the time of what was received is over; empty: nothing, all was done."""
    time.sleep(max(0.0, began + INVISIBLE_S - time.monotonic()))
    other = Running(client, "push", group.door.address, TOPIC, GROUP, 1)
    stack.callback(other.end)
    until(lambda: group.members() >= 1, "the consumer is a member")
    time.sleep(LINGER_S)
    taken = other.bodies("body")
    return f"{len(taken)} acknowledged messages came again, as {taken[0]}" if taken else ""


def cells(clients: Sequence[Client], folder: Path, count: int) -> Iterator[tuple[str, Callable[[], str]]]:
    """Each cell by its name: a function that gives its fault. They wait, so they run together."""
    runs: list[tuple[str, Callable[[], str]]] = []
    for number, client in enumerate(clients):
        place = folder / f"owner-{number}"
        runs += [
            (f"{client.name}: receipts at an acting slave", partial(receipts, client, place / "a", count)),
            (f"{client.name}: holds, broker killed", partial(held, client, place / "b", slave=False)),
            (f"{client.name}: holds, slave acts", partial(held, client, place / "c", slave=True)),
            (
                f"{client.name}: answer in order lost",
                partial(answer_lost, client, place / "d", count, in_order=True),
            ),
            (f"{client.name}: answer lost", partial(answer_lost, client, place / "e", count, in_order=False)),
        ]
    with ThreadPoolExecutor(len(runs)) as pool:
        for name, started in [(name, pool.submit(run)) for name, run in runs]:
            yield name, started.result
