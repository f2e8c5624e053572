"""A cluster in memory: every server on its own machine, one virtual clock, faults on demand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Self

from orbitmq.admin import Admin
from orbitmq.admin.client import TIMEOUT_S
from orbitmq.broker.broker import Broker
from orbitmq.client.consumer.consumer import Consumer
from orbitmq.client.consumer.pull import PullConsumer
from orbitmq.client.consumer.reader import Reader
from orbitmq.client.consumer.simple import SimpleConsumer
from orbitmq.client.model import ConsumeFrom
from orbitmq.client.producer.producer import Producer
from orbitmq.client.producer.transactional import TransactionProducer
from orbitmq.cluster.layout import members
from orbitmq.cluster.local import NAME_SERVER, LocalCluster, Machine
from orbitmq.durations import Duration
from orbitmq.runtime.seam import Clock
from orbitmq.testing.machine.memory_files import Keep
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.testing.machines import PowerMachine
from orbitmq.testing.world_clients import making

CLIENTS = "clients"
# Limits in virtual time, which a busy machine does not slow down.
READY_SECONDS = 10.0
UNTIL_SECONDS = 30.0
UNTIL_STEP_SECONDS = 0.01
# A simulated disk occupies memory twice, and a test seldom stores more than this.
LOG_FILE_BYTES = 1024 * 1024


class World:
    """Name server and brokers on a network and disks in memory; an idle hour costs about a second.

    Example::

        async with World(simulated_runtime(), brokers=2) as world:
            async with world.producer() as producer:
                await producer.send(Message("TopicA", b"hello"))
            await world.crash("broker-a")
            await world.sleep(60)

    Attributes:
        runtime: the machine of the test's clients, address 127.0.0.1.
        machines: the servers' machines by name: ``nameserver``, ``broker-a`` and so on.
    """

    def __init__(
        self,
        runtime: SimulatedRuntime,
        *,
        brokers: int = 1,
        replicas: int = 1,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Create the cluster without starting it.

        Args:
            brokers: number of masters; their names are broker-a, broker-b and so on.
            replicas: brokers in each group; the slaves' names are broker-a-1 and so on.
            settings: settings of every broker, by RocketMQ's keys.

        Raises:
            ValidationError: ``brokers`` is not 1 to 26, or ``replicas`` is not 1 to 9.
            ClusterError: ``settings`` holds a key that the broker does not support.
        """
        self.runtime = runtime
        names = [NAME_SERVER, *(member.name for member in members(brokers, replicas))]
        self.machines = {
            name: PowerMachine(runtime.machine(f"10.0.0.{number}")) for number, name in enumerate(names, 1)
        }
        self._cluster = LocalCluster(
            runtime,
            brokers=brokers,
            replicas=replicas,
            root="/store",
            name_server_port=9876,
            settings={
                "listenPort": "10911",
                "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
                **(settings or {}),
            },
            ready_seconds=READY_SECONDS,
            machine_of=self._machine_of,
        )

    def _machine_of(self, name: str) -> Machine:
        machine = self.machines[name]
        return Machine(machine.runtime, machine.host)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start all servers and wait until every broker has registered at the name server.

        Raises:
            ClusterError: a broker did not register in time.
        """
        await self._cluster.start()

    async def stop(self) -> None:
        """End all partitions, then stop all running servers."""
        self.heal()
        await self._cluster.stop()

    # ---- what the cluster is

    @property
    def name_server(self) -> str:
        """The name server's address, "host:port"."""
        return self._cluster.name_server

    @property
    def brokers(self) -> dict[str, Broker]:
        """The running brokers, by name."""
        return self._cluster.brokers

    @property
    def clock(self) -> Clock:
        """The virtual clock of all machines."""
        return self.runtime.clock

    # ---- time

    async def sleep(self, seconds: float) -> None:
        """Let virtual time pass."""
        await self.runtime.clock.sleep(seconds)

    async def until(self, condition: Callable[[], object], timeout_s: float = UNTIL_SECONDS) -> float:
        """Wait until ``condition()`` is true; returns the seconds of virtual time that passed.

        Raises:
            AssertionError: the condition was not true within ``timeout_s``.
        """
        begin = self.clock.monotonic()
        while not condition():
            if self.clock.monotonic() - begin >= timeout_s:
                raise AssertionError(f"not true within {timeout_s:g} s of virtual time: {condition}")
            await self.sleep(UNTIL_STEP_SECONDS)
        return self.clock.monotonic() - begin

    # ---- clients; each takes the options of its class

    producer = making(
        Producer, "A producer of this cluster; start it with ``async with``.", group="test_producer"
    )
    transaction_producer = making(
        TransactionProducer,
        "A producer of transactions of this cluster; start it with ``async with``.",
        group="test_producer",
    )
    consumer = making(
        Consumer,
        "A consumer that begins at the first message unless ``consume_from`` says otherwise.",
        group="test_consumer",
        consume_from=ConsumeFrom.FIRST,
    )
    pull_consumer = making(
        PullConsumer,
        "A consumer that is polled and begins at the first message unless told otherwise.",
        group="test_consumer",
        consume_from=ConsumeFrom.FIRST,
    )
    simple_consumer = making(
        SimpleConsumer,
        "A consumer that asks for messages and begins at the first one unless told otherwise.",
        group="test_consumer",
        consume_from=ConsumeFrom.FIRST,
    )
    reader = making(Reader, "A reader of a topic without a group.")

    def admin(self, *, timeout: Duration = TIMEOUT_S) -> Admin:
        """The operations library for this cluster; ``timeout`` is the limit of each request, in seconds."""
        return Admin(self.name_server, runtime=self.runtime, timeout=timeout)

    # ---- faults

    async def stop_broker(self, name: str) -> None:
        """Stop one broker cleanly."""
        await self._cluster.stop_broker(name)

    async def start_broker(self, name: str) -> None:
        """Start a stopped or crashed broker on its address and disk, and wait until it has registered.

        Raises:
            ClusterError: the broker did not register in time.
        """
        await self._cluster.start_broker(name)

    async def stop_name_server(self) -> None:
        """Stop the name server; the brokers keep running."""
        await self._cluster.stop_name_server()

    async def start_name_server(self) -> None:
        """Start the name server again, without its earlier routes, and wait for the brokers."""
        await self._cluster.start_name_server()

    def crash(self, name: str, keep: Keep = Keep.NOTHING) -> None:
        """Cut the power of a broker's machine; :meth:`start_broker` starts the broker again on the content of
        its disk.

        Args:
            keep: which unsynced writes survive, chosen by the seed.

        Raises:
            KeyError: no broker of that name runs.
        """
        del self._cluster.brokers[name]
        self.machines[name].crash(keep)

    def partition(self, *names: str) -> None:
        """Separate these machines from all others until :meth:`heal`; bytes sent meanwhile wait.

        Args:
            names: names of brokers, ``nameserver``, or ``clients`` for the test's machine.

        Raises:
            KeyError: no machine has this name.
        """
        hosts = {name: machine.host for name, machine in self.machines.items()}
        hosts[CLIENTS] = self.runtime.network.host
        cut = [hosts.pop(name) for name in names]
        self.runtime.network.partition(cut, hosts.values())

    def heal(self) -> None:
        """End all partitions."""
        self.runtime.network.heal()

    def disconnect(self, *names: str) -> None:
        """Reset the connections of these machines; peers may connect again at once.

        Raises:
            KeyError: no machine has this name.
        """
        for name in names:
            self.runtime.network.cut(self.machines[name].host)
