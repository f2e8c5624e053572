"""A slave of ours whose log went its own way follows a master of Apache's: its way is set aside."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from benchmarks.remoting import GET_BROKER_RUNTIME_INFO, Client
from benchmarks.servers import Server, free_ports
from tests.interop.messages import send
from tests.interop.replica_cells import REGISTER_MS, Maker, apache, caught_up, log_ends, ours, same_copy
from tests.interop.world import SMALL_LOG_BYTES, World, check, equal, wait_registered

TOPIC = "diverged_cell"
# Two files in common, then more than a file of its own.
COMMON, OWN, MASTERS = 700, 600, 300
BODY_BYTES = 2000


def diverged(make_master: Maker) -> Callable[[World], None]:
    """The cell for a master of this kind."""

    def cell(world: World) -> None:
        _Diverged(world, make_master).run()

    return cell


class _Diverged:
    def __init__(self, world: World, make_master: Maker) -> None:
        self._world = world
        self._kinds = {"master": make_master(world), "slave": ours(world)}
        self._folder: Path = world.folder / world.fresh("diverged")
        self._ports: dict[str, int] = {}
        self._running: list[Server] = []

    def run(self) -> None:
        with self._world.server_stopped(self._world.ours.name_server(self._folder / "ns")) as name_server:
            first = free_ports(10)
            self._ports = {"master": first + 2, "slave": first + 7}
            try:
                self._steps(name_server)
            except BaseException:
                for server in self._running:
                    server.kill()
                raise
            for server in reversed(self._running):
                server.stop()

    def _steps(self, name_server: Server) -> None:
        master = self._start("master", name_server.address, brokerRole="ASYNC_MASTER")
        wait_registered(name_server.port)
        with Client(master.port) as client:
            client.create_topic(TOPIC, 1)
        as_slave = {"brokerId": "1", "brokerRole": "SLAVE"}
        slave = self._start("slave", name_server.address, **as_slave)
        self._send(master, COMMON, b"common")
        caught_up(master, slave, "before they part")
        parting = log_ends(slave)[1]
        slave.kill()
        # The same folder as a master of its own.
        alone = self._start("slave", "", brokerRole="ASYNC_MASTER")
        self._send(alone, OWN, b"own")
        own_end = log_ends(alone)[1]
        alone.kill()
        self._send(master, MASTERS, b"master")
        slave = self._start("slave", name_server.address, **as_slave)
        same_copy(self._folder, master, slave, "after they met again", [TOPIC])
        self._set_aside(slave, parting, own_end)

    def _set_aside(self, slave: Server, parting: int, own_end: int) -> None:
        """What only the slave had is in a file, from the first record that the master does not have."""
        (file,) = (self._folder / "slave" / "store" / "aside").iterdir()
        equal(int(file.name.partition("-")[0]), parting, "where the logs part")
        data = file.read_bytes()
        equal(len(data), own_end - parting, "bytes set aside")
        check(b"own" * 2 in data and b"common" not in data, "other messages are set aside")
        with Client(slave.port) as client:
            table = json.loads(client.request(GET_BROKER_RUNTIME_INFO).body)["table"]
        equal((table["haSetAsideTimes"], table["haSetAsideBytes"]), ("1", str(len(data))), "brokerStatus")

    def _start(self, name: str, name_server: str, **settings: str) -> Server:
        server = self._kinds[name].broker(
            self._folder / name,
            name_server,
            port=self._ports[name],
            brokerIP2="127.0.0.1",
            flushDiskType="ASYNC_FLUSH",
            mappedFileSizeCommitLog=str(SMALL_LOG_BYTES),
            registerNameServerPeriod=REGISTER_MS,
            **settings,  # type: ignore[arg-type]
        )
        self._running = [server, *(each for each in self._running if each.process.poll() is None)]
        return server

    def _send(self, broker: Server, count: int, word: bytes) -> None:
        with Client(broker.port, timeout_s=30) as client:
            for _ in range(count):
                answer = send(client, TOPIC, (word * BODY_BYTES)[:BODY_BYTES])
                equal(answer.code, 0, f"a send ({answer.remark})")


CELLS: dict[str, Callable[[World], None]] = {
    "diverged from apache 5.5.0": diverged(apache("5.5.0")),
    "diverged from apache 4.9.7": diverged(apache("4.9.7")),
}
