"""A master is killed and comes back: how long sends with one try fail, and when it is used again."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq import Message, Producer
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.errors import SendError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.server import NameServer
from orbitmq.runtime.memory_files import Keep
from orbitmq.runtime.simulated import SimulatedRuntime, run, simulated_runtime

NAME_SERVER, CLIENT, ONE, OTHER = "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"
NAMES = f"{NAME_SERVER}:9876"


def broker(machine: SimulatedRuntime, name: str, host: str) -> Broker:
    config = BrokerConfig(
        broker_name=name,
        broker_ip1=host,
        namesrv_addr=NAMES,
        store_path_root_dir="/b",
        mapped_file_size_commit_log=1024 * 1024,
    )
    return Broker(machine, config)


class Sends:
    """Sends all the time, one try each, and notes when which broker took or did not take it."""

    def __init__(self, runtime: SimulatedRuntime) -> None:
        self.clock = runtime.clock
        self.taken: list[tuple[float, str]] = []
        self.failed: list[float] = []
        self.stopped = False

    async def run(self, producer: Producer) -> None:
        while not self.stopped:
            begin = self.clock.monotonic()
            try:
                result = await producer.send(Message("t", b"body"))
            except SendError:
                self.failed.append(begin)
            else:
                self.taken.append((self.clock.monotonic(), result.queue.broker_name))
            await asyncio.sleep(0.02)


async def kill(victim: Broker, machine: SimulatedRuntime) -> None:
    """As far as a process can be killed inside another: it neither answers nor calls any more."""
    machine.network.crash()
    machine.files.crash(keep=machine.random.choice(list(Keep)))
    await victim._background.stop()


@pytest.mark.parametrize("seed", range(20))
def test_a_dead_master_and_its_return_are_noticed_within_a_second(seed: int) -> None:
    async def main() -> None:
        world = simulated_runtime()
        machines = {host: world.machine(host) for host in (NAME_SERVER, CLIENT, ONE, OTHER)}
        victim = broker(machines[ONE], "broker-a", ONE)
        producer = Producer("pg", name_servers=NAMES, retries=0, runtime=machines[CLIENT])
        sends = Sends(world)
        async with (
            NameServer(machines[NAME_SERVER], NameServerConfig()),
            broker(machines[OTHER], "broker-b", OTHER),
        ):
            await victim.start()
            async with producer:
                senders = [asyncio.create_task(sends.run(producer)) for _ in range(4)]
                await asyncio.sleep(5 + world.random.uniform(0, 40))
                killed = world.clock.monotonic()
                await kill(victim, machines[ONE])
                await asyncio.sleep(world.random.uniform(0.5, 120))
                again = broker(machines[ONE], "broker-a", ONE)
                await again.start()
                back = world.clock.monotonic()
                await asyncio.sleep(5)
                sends.stopped = True
                await asyncio.gather(*senders)
            await again.stop()
        assert {name for when, name in sends.taken if when < killed} == {"broker-a", "broker-b"}
        assert [
            round(when - killed, 2) for when in sends.failed if not killed - 1 <= when <= killed + 1
        ] == []
        returned = next(when for when, name in sends.taken if when >= back and name == "broker-a")
        assert returned - back <= 1

    run(main(), seed=seed)
