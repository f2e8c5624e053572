"""A slave of one kind copies a master of the other: the same bytes in log and queues, whatever is killed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.remoting import GET_BROKER_RUNTIME_INFO, Client, RequestError
from benchmarks.servers import Apache, Ours, Server, free_ports
from tests.interop.messages import send
from tests.interop.world import SMALL_LOG_BYTES, CellError, World, check, equal, wait_registered

TOPICS = ("replica_first", "replica_second")
QUEUES = 3
ENTRY_BYTES = 20
BODY = b"x" * 2000
CAUGHT_UP_S = 180.0
# A slave of RocketMQ hears of its master with the answer to its registration, and connects each 5 s.
REGISTER_MS = "10000"

Maker = Callable[[World], Ours | Apache]


def log_ends(broker: Server) -> tuple[int, int]:
    """Where its log begins and ends; a broker of Apache's whose log has no file yet cannot tell."""
    try:
        with Client(broker.port) as client:
            table = json.loads(client.request(GET_BROKER_RUNTIME_INFO).body)["table"]
    except RequestError:
        return 0, 0
    return int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])


def caught_up(master: Server, slave: Server, who: str) -> int:
    """Wait until the slave's log ends where the master's does; where its own begins."""
    deadline = time.monotonic() + CAUGHT_UP_S
    while True:
        wanted, (first, end) = log_ends(master)[1], log_ends(slave)
        if wanted == end > 0:
            return first
        if time.monotonic() > deadline:
            raise CellError(f"{who}: the master's log ends at {wanted}, the slave's at {end}")
        time.sleep(0.1)


def log_bytes(store: Path, first: int, end: int) -> bytes:
    files = sorted(path for path in (store / "commitlog").iterdir() if path.name.isdigit())
    data = b"".join(path.read_bytes() for path in files if int(path.name) >= first)
    check(files and int(files[0].name) <= first, f"{store} begins at {first}")
    return data[: end - first]


def queue_entries(store: Path, first: int, topics: Sequence[str]) -> dict[str, list[tuple[int, bytes]]]:
    """The entries of each queue with their place, as far as they point into the log from ``first`` on."""
    found: dict[str, list[tuple[int, bytes]]] = {}
    for topic in topics:
        for queue in sorted((store / "consumequeue" / topic).glob("*")):
            entries: list[tuple[int, bytes]] = []
            for path in sorted(queue.iterdir()):
                data = path.read_bytes()
                for at in range(0, len(data), ENTRY_BYTES):
                    entry = data[at : at + ENTRY_BYTES]
                    size = int.from_bytes(entry[8:12], "big")
                    # RocketMQ fills the front of a queue that begins late with entries of the largest size.
                    if 0 < size < 2**31 - 1 and int.from_bytes(entry[:8], "big") >= first:
                        entries.append(((int(path.name) + at) // ENTRY_BYTES, entry))
            if entries:
                found[f"{topic}/{queue.name}"] = entries
    return found


def same_copy(folder: Path, master: Server, slave: Server, who: str, topics: Sequence[str] = TOPICS) -> None:
    """The slave has what the master has, from where it began."""
    first = caught_up(master, slave, who)
    end = log_ends(master)[1]
    mine, copy = (log_bytes(folder / name / "store", first, end) for name in ("master", "slave"))
    different = next((place for place, (a, b) in enumerate(zip(mine, copy, strict=True)) if a != b), None)
    equal(different, None, f"{who}: first place where the logs differ, from {first} to {end}")
    deadline = time.monotonic() + CAUGHT_UP_S
    while True:
        wanted, found = (
            queue_entries(folder / name / "store", first, topics) for name in ("master", "slave")
        )
        if wanted == found or time.monotonic() > deadline:
            break
        time.sleep(0.2)  # RocketMQ's broker makes them a moment later
    for queue, entries in wanted.items():
        equal(len(found.get(queue, [])), len(entries), f"{who}: entries of {queue}")
        equal(found[queue], entries, f"{who}: entries of {queue}")
    check(any(wanted.values()), f"{who}: no entries")


def copied(make_master: Maker, make_slave: Maker) -> Callable[[World], None]:
    """The cell for a master and a slave of these kinds."""

    def cell(world: World) -> None:
        _Pair(world, make_master(world), make_slave(world)).run()

    return cell


class _Pair:
    def __init__(self, world: World, master: Ours | Apache, slave: Ours | Apache) -> None:
        self._world = world
        self._makers = {"master": master, "slave": slave}
        self._ports: dict[str, int] = {}
        self._folder: Path = world.folder / world.fresh("replica")
        self._ns = ""
        self._running: dict[str, Server] = {}

    def run(self) -> None:
        with self._world.server_stopped(self._world.ours.name_server(self._folder / "ns")) as name_server:
            self._ns, first = name_server.address, free_ports(10)
            self._ports = {"master": first + 2, "slave": first + 7}
            try:
                self._start("master")
                wait_registered(name_server.port)
                self._steps()
            except BaseException:
                for server in self._running.values():
                    server.kill()
                raise
            for server in self._running.values():
                server.stop()

    def _steps(self) -> None:
        with Client(self._running["master"].port) as client:
            for topic in TOPICS:
                client.create_topic(topic, QUEUES)
        self._send(500)
        self._start("slave")
        self._same("a slave that came late")
        self._send(200)
        self._same("while both live")
        for killed in ("slave", "master", "slave"):
            self._running.pop(killed).kill()
            if killed == "slave":
                self._send(200)
            self._start(killed)
            if killed == "master":
                wait_registered(int(self._ns.rpartition(":")[2]))
            self._send(200)
            self._same(f"after kill -9 of the {killed}")
        self._shown()

    def _shown(self) -> None:
        """Apache's tool shows the slave of either kind of master; 4.9 has no such question."""
        master = self._running["master"]
        if isinstance(self._makers["master"], Apache) and self._makers["master"].version.startswith("4."):
            return
        (said,) = self._world.admin([["haStatus", "-n", self._ns, "-b", master.address]])
        end = log_ends(master)[1]
        for line in (f"#MasterCommitLogMaxOffset\t{end}", "#SlaveNum\t1", "#InSyncSlaveNum\t1"):
            check(line in said, f"haStatus says nothing of {line!r}: {said}")

    def _start(self, name: str) -> None:
        slave = (
            {"brokerId": "1", "brokerRole": "SLAVE"} if name == "slave" else {"brokerRole": "ASYNC_MASTER"}
        )
        self._running[name] = self._makers[name].broker(
            self._folder / name,
            self._ns,
            port=self._ports[name],
            brokerIP2="127.0.0.1",
            flushDiskType="ASYNC_FLUSH",
            mappedFileSizeCommitLog=str(SMALL_LOG_BYTES),
            registerNameServerPeriod=REGISTER_MS,
            slaveReadEnable="true",
            waitTimeMillsInSendQueue="20000",
            osPageCacheBusyTimeOutMills="20000",
            **slave,
        )

    def _send(self, count: int) -> None:
        with Client(self._running["master"].port, timeout_s=30) as client:
            for topic in TOPICS:
                for number in range(count):
                    answer = send(client, topic, BODY, queue=number % QUEUES, KEYS=f"key-{number}")
                    equal(answer.code, 0, f"a send to {topic} ({answer.remark})")

    def _same(self, who: str) -> None:
        same_copy(self._folder, self._running["master"], self._running["slave"], who)


def ours(world: World) -> Ours:
    return world.ours


def apache(version: str) -> Callable[[World], Apache]:
    return lambda world: world.apache(version)


CELLS: dict[str, Callable[[World], None]] = {
    "ours copies apache 4.9.7": copied(apache("4.9.7"), ours),
    "ours copies apache 5.5.0": copied(apache("5.5.0"), ours),
    "apache 5.5.0 copies ours": copied(ours, apache("5.5.0")),
    "apache 4.9.7 copies ours": copied(ours, apache("4.9.7")),
}
