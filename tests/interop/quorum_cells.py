"""A master waits for a slave of the other kind: answered when it has the message, 12 when it is frozen."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.remoting import Client
from benchmarks.servers import Apache, Ours, Server, free_ports
from tests.interop import messages
from tests.interop.replica_cells import REGISTER_MS, Maker, apache, log_ends, ours
from tests.interop.world import SMALL_LOG_BYTES, CellError, World, check, equal, wait_registered

TOPIC = "quorum_cell"
OK, SYSTEM_ERROR, SLAVE_LATE = 0, 1, 12
IN_SYNC_S = 40.0


def send(client: Client) -> tuple[int, float]:
    """The code of the answer to a plain send, and the seconds that it took."""
    begun = time.monotonic()
    answer = messages.send(client, TOPIC, b"x" * 200)
    return answer.code, time.monotonic() - begun


def until_ok(client: Client, what: str) -> None:
    deadline = time.monotonic() + IN_SYNC_S
    while (code := send(client)[0]) != OK:
        if time.monotonic() > deadline:
            raise CellError(f"{what}: still answered {code} after {IN_SYNC_S:g} s")
        time.sleep(0.1)


def waits(make_master: Maker, make_slave: Maker) -> Callable[[World], None]:
    """The cell for a master and a slave of these kinds."""

    def cell(world: World) -> None:
        _Quorum(world, make_master(world), make_slave(world)).run()

    return cell


class _Quorum:
    def __init__(self, world: World, master: Ours | Apache, slave: Ours | Apache) -> None:
        self._world = world
        self._master, self._slave = master, slave
        self._folder = world.folder / world.fresh("quorum")

    def run(self) -> None:
        with self._world.server_stopped(self._world.ours.name_server(self._folder / "ns")) as name_server:
            first = free_ports(10)
            running: list[Server] = []
            try:
                settings = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "3000"}
                master = self._start(self._master, "master", name_server, first + 2, settings)
                running.append(master)
                wait_registered(name_server.port)
                with Client(master.port, timeout_s=30) as client:
                    client.create_topic(TOPIC, 1)
                    self._alone(client)
                    settings = {"brokerId": "1", "brokerRole": "SLAVE"}
                    slave = self._start(self._slave, "slave", name_server, first + 7, settings)
                    running.append(slave)
                    self._together(client, master, slave)
            except BaseException:
                for server in running:
                    server.kill()
                raise
            for server in reversed(running):
                server.stop()

    def _start(
        self, maker: Ours | Apache, name: str, name_server: Server, port: int, settings: dict[str, str]
    ) -> Server:
        more: dict[str, str] = {
            "brokerIP2": "127.0.0.1",
            "flushDiskType": "ASYNC_FLUSH",
            "mappedFileSizeCommitLog": str(SMALL_LOG_BYTES),
            "registerNameServerPeriod": REGISTER_MS,
            **settings,
        }
        return maker.broker(self._folder / name, name_server.address, port=port, **more)  # type: ignore[arg-type]

    def _alone(self, client: Client) -> None:
        """Ours refuses at once; RocketMQ without acting masters stores, waits and says 12."""
        code, took = send(client)
        if isinstance(self._master, Ours):
            equal(code, SYSTEM_ERROR, "without a slave")
            check(took < 2.5, f"the refusal took {took:.1f} s, slaveTimeout is 3 s")
        else:
            equal(code, SLAVE_LATE, "without a slave")

    def _together(self, client: Client, master: Server, slave: Server) -> None:
        until_ok(client, "with a slave")
        for _ in range(50):
            equal(send(client)[0], OK, "with a slave")
            wanted, found = log_ends(master)[1], log_ends(slave)[1]
            # A slave of RocketMQ shows the end of what it has appended, which it has acknowledged.
            equal(found, wanted, "the slave's log behind an acknowledged send")
        slave.pause()
        code, took = send(client)
        equal(code, SLAVE_LATE, "with a frozen slave")
        check(2.5 < took < 20, f"a frozen slave was waited for {took:.1f} s, slaveTimeout is 3 s")
        slave.resume()
        until_ok(client, "after the slave thawed")


CELLS: dict[str, Callable[[World], None]] = {
    "quorum, apache 5.5.0 behind ours": waits(ours, apache("5.5.0")),
    "quorum, apache 4.9.7 behind ours": waits(ours, apache("4.9.7")),
    "quorum, ours behind apache 5.5.0": waits(apache("5.5.0"), ours),
    "quorum, ours behind ours": waits(ours, ours),
}
