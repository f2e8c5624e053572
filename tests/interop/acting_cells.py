"""A slave of one kind acts for a killed master of the other kind, which returns by its own pre-online.

What the acting slave delivered the master does not deliver again, what was committed there it knows; clients
and mqadmin see the same whichever kind the brokers and the name server are.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

from benchmarks.ports import free_ports
from benchmarks.remoting import (
    GET_BROKER_CLUSTER_INFO,
    GET_BROKER_RUNTIME_INFO,
    GET_ROUTE,
    Client,
    RequestError,
)
from benchmarks.servers import Apache, Ours, PeerUnavailableError, Server
from tests.interop.messages import bodies, send
from tests.interop.replica_cells import Maker, apache, caught_up, log_ends, ours, same_copy
from tests.interop.world import SMALL_LOG_BYTES, CellError, World, check, equal

# A master of 5.5.0 cannot return while its slave lives (apache/rocketmq #10284); the newest before it that
# can be fetched.
VERSIONS = ("5.3.4", "5.3.3", "5.3.2")
UPDATE_CONSUMER_OFFSET, QUERY_CONSUMER_OFFSET = 15, 14
GET_ALL_TOPIC_CONFIG, GET_ALL_SUBSCRIPTION_GROUPS = 21, 201
CREATE_GROUP = 200
READ_ONLY = 4
TOPIC, GROUP, COMMITTED = "acting_cell", "acting_cell_group", 17
PLAIN = 30
# Delivered before the master is killed; due while it is away; due about when it is back.
LEVELS = "1s 5s 20s"
EARLY, MEANWHILE, LATER = (
    Counter(b"%s-%d" % (name, number) for number in range(6)) for name in (b"early", b"meanwhile", b"later")
)
LIMIT_S = 90.0
# In which a second delivery would show.
LINGER_S = 3.0
# In which a slave of RocketMQ copies the tables of its master.
TABLES_S = 15.0
# More than two files.
MANY, BODY_BYTES = 1000, 2500
ACTING = {
    "enableSlaveActingMaster": "true",
    "enableRemoteEscape": "true",
    "totalReplicas": "2",
    "slaveReadEnable": "true",
    "brokerIP2": "127.0.0.1",
    "flushDiskType": "ASYNC_FLUSH",
    "mappedFileSizeCommitLog": str(SMALL_LOG_BYTES),
    "registerNameServerPeriod": "10000",
    "messageDelayLevel": LEVELS,
    "waitTimeMillsInSendQueue": "20000",
    "osPageCacheBusyTimeOutMills": "20000",
}


def until(reached: Callable[[], object], what: str) -> float:
    """Wait for something; the seconds that it took."""
    begun = time.monotonic()
    while not _quietly(reached):
        if time.monotonic() - begun > LIMIT_S:
            raise CellError(f"not within {LIMIT_S:g} s: {what}")
        time.sleep(0.1)
    return time.monotonic() - begun


def _quietly(reached: Callable[[], object]) -> bool:
    try:
        return bool(reached())
    except (OSError, RequestError):
        return False


def members(name_server: Server) -> dict[int, str]:
    """The brokers of the group by id, as mqadmin sees them."""
    with Client(name_server.port) as client:
        table = _json(client.request(GET_BROKER_CLUSTER_INFO).body)["brokerAddrTable"]
    return _by_id(table.get("broker-a", {}).get("brokerAddrs", {}))


def route(name_server: Server) -> tuple[dict[int, str], int]:
    """The group's brokers and permission, as clients see them."""
    with Client(name_server.port) as client:
        found = _json(client.request(GET_ROUTE, {"topic": TOPIC, "acceptStandardJsonOnly": "true"}).body)
    queues = [each["perm"] for each in found["queueDatas"] if each["brokerName"] == "broker-a"]
    brokers = [each["brokerAddrs"] for each in found["brokerDatas"] if each["brokerName"] == "broker-a"]
    return _by_id(brokers[0] if brokers else {}), queues[0] if queues else 0


def _json(body: bytes) -> dict[str, Any]:
    """RocketMQ writes numbers as keys without quotes."""
    found: dict[str, Any] = json.loads(re.sub(rb"([{,])(\d+):", rb'\1"\2":', body))
    return found


def _by_id(addresses: dict[str, str]) -> dict[int, str]:
    return {int(number): address for number, address in addresses.items()}


def active(broker: Server) -> bool:
    """Whether it does the background work of its name, by its own word."""
    with Client(broker.port) as client:
        table = json.loads(client.request(GET_BROKER_RUNTIME_INFO).body)["table"]
    return bool(table["brokerActive"] == "true")


def committed(broker: Server, group: str) -> int:
    """The group's offset; -1: there is none."""
    with Client(broker.port) as client:
        place = {"topic": TOPIC, "consumerGroup": group, "queueId": "0"}
        answer = client.ask(QUERY_CONSUMER_OFFSET, place)
    return int(answer.ext["offset"]) if answer.code == 0 else -1


class _Acting:
    """Args: the kinds of master, slave and name server. The other group is always one broker of ours."""

    def __init__(self, world: World, master: Maker, slave: Maker, name_server: Maker) -> None:
        self._world = world
        self._kinds = {"master": master(world), "slave": slave(world)}
        self._name_server_kind = name_server(world)
        self._folder = world.folder / world.fresh("acting")
        self._ports: dict[str, int] = {}
        self._running: dict[str, Server] = {}
        self._killed: list[Counter[bytes]] = []

    def run(self) -> None:
        with ExitStack() as failing:
            failing.callback(self._kill_all)
            settings = {"supportActingMaster": "true", "notifyMinBrokerIdChanged": "true"}
            self._ns = self._name_server_kind.name_server(self._folder / "ns", **settings)
            self._running["ns"] = self._ns
            first = free_ports(15)
            self._ports = {"master": first + 2, "slave": first + 7, "other": first + 12}
            self._begin()
            self._act()
            self._return()
            for name in ("slave", "master", "other", "ns"):
                if name in self._running:
                    self._running.pop(name).stop()

    def _kill_all(self) -> None:
        for server in self._running.values():
            server.kill()

    def _start(self, name: str) -> Server:
        settings = {**ACTING, "brokerRole": "ASYNC_MASTER"}
        kind: Ours | Apache = self._world.ours
        if name == "other":
            settings |= {"enableSlaveActingMaster": "false", "totalReplicas": "1"}
        else:
            kind = self._kinds[name]
        if name == "slave":
            settings |= {"brokerRole": "SLAVE", "brokerId": "1"}
            if isinstance(kind, Apache):
                # Else it copies the tables for the first time after a minute.
                settings["skipPreOnline"] = "true"
        server = kind.broker(
            self._folder / name,
            self._ns.address,
            port=self._ports[name],
            name="broker-b" if name == "other" else "broker-a",
            **settings,  # type: ignore[arg-type]
        )
        self._running[name] = server
        return server

    def _begin(self) -> None:
        """Two groups; the slave has log and tables of its master."""
        other, master = self._start("other"), self._start("master")
        until(lambda: members(self._ns) == {0: master.address}, "the master is registered")
        until(lambda: active(master), "the master works")
        for broker in (other, master):
            with Client(broker.port) as client:
                client.create_topic(TOPIC, 1)
        with Client(master.port) as client:
            group = {"groupName": GROUP, "retryQueueNums": 1, "consumeEnable": True}
            client.request(CREATE_GROUP, body=json.dumps(group).encode())
            place = {"topic": TOPIC, "consumerGroup": GROUP, "queueId": "0"}
            client.request(UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": str(COMMITTED)})
        self._send(Counter(b"plain-%d" % number for number in range(PLAIN)))
        slave = self._start("slave")
        until(lambda: members(self._ns) == {0: master.address, 1: slave.address}, "both are registered")
        if isinstance(self._kinds["slave"], Ours):
            # A slave of RocketMQ has the progress of a minute ago, and delivers what is younger again.
            self._send(EARLY, DELAY="1")
            self._delivered(master, EARLY)
        until(lambda: self._has_tables(slave), "topics, groups and offsets at the slave")
        check(not active(slave), "the slave does background work beside its master")

    def _send(self, wanted: Iterable[bytes], **properties: str) -> None:
        with Client(self._running["master"].port, timeout_s=30) as client:
            for body in wanted:
                answer = send(client, TOPIC, body, **properties)
                equal(answer.code, 0, f"a send ({answer.remark})")

    def _delivered(self, broker: Server, wanted: Counter[bytes]) -> None:
        def all_there() -> bool:
            with Client(broker.port) as client:
                return wanted <= bodies(client, TOPIC)

        until(all_there, f"{sorted(wanted)} at {broker.name}")

    def _has_tables(self, slave: Server) -> bool:
        with Client(slave.port) as client:
            topics = client.request(GET_ALL_TOPIC_CONFIG, {"topicSeq": "0"}).body
            groups = client.request(GET_ALL_SUBSCRIPTION_GROUPS, {"groupSeq": "0"}).body
        return TOPIC.encode() in topics and GROUP.encode() in groups and committed(slave, GROUP) == COMMITTED

    def _act(self) -> None:
        """The master is killed: its slave delivers, and serves a Java consumer."""
        master, slave, other = (self._running[name] for name in ("master", "slave", "other"))
        self._send(LATER, DELAY="3")
        self._send(MEANWHILE, DELAY="2")
        caught_up(master, slave, "before the kill")
        self._running.pop("master").kill()
        took = until(lambda: active(slave), "the slave acts")
        until(lambda: route(self._ns) == ({0: slave.address}, READ_ONLY), "the route of the acting master")
        self._world.remarks.append(f"acts after {took:.1f} s")
        equal(members(self._ns), {1: slave.address}, "members while the slave acts")
        self._shown({"broker-a 1": (slave, True), "broker-b 0": (other, True)})
        self._delivered(other, MEANWHILE)
        with Client(slave.port) as client:
            there = bodies(client, TOPIC)
        facts = self._world.facts(
            "Receive",
            ns=self._ns.address,
            topic=TOPIC,
            group="acting_java",
            count=(there + MEANWHILE).total(),
        )
        found = Counter(fact["body"].encode() for fact in facts if fact["fact"] == "received")
        equal(found - LATER, there + MEANWHILE, "what a Java consumer got")
        self._at_slave = there.total()
        until(lambda: committed(slave, "acting_java") == self._at_slave, "the consumer's offset at the slave")

    def _return(self) -> None:
        """The master starts again: nothing is delivered twice, and it knows what was committed."""
        slave, other = self._running["slave"], self._running["other"]
        begun = time.monotonic()
        master = self._start("master")
        both = {0: master.address, 1: slave.address}
        until(lambda: members(self._ns) == both and route(self._ns) == (both, 6), "the master is back")
        until(lambda: active(master) and not active(slave), "the master works, its slave does not")
        self._world.remarks.append(f"works {time.monotonic() - begun:.1f} s after its start")
        until(lambda: self._copies() >= LATER, "all delayed messages")
        time.sleep(LINGER_S)
        found = self._copies()
        wanted = Counter(b"plain-%d" % number for number in range(PLAIN)) + MEANWHILE + LATER
        if isinstance(self._kinds["slave"], Ours):
            wanted += EARLY
        equal(found - wanted, Counter(), "delivered twice")
        equal(wanted - found, Counter(), "not delivered")
        equal(committed(master, GROUP), COMMITTED, "the offset from before")
        equal(committed(master, "acting_java"), self._at_slave, "the offset committed at the acting master")
        self._send([b"after"])
        caught_up(master, slave, "after the return")
        self._shown({"broker-a 0": (master, True), "broker-a 1": (slave, False), "broker-b 0": (other, True)})
        self._shown_link(master)
        same_copy(self._folder, master, slave, "after the return", [TOPIC])

    def _copies(self) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        for name in ("master", "other"):
            with Client(self._running[name].port) as client:
                found += bodies(client, TOPIC)
        return found

    def _shown(self, wanted: dict[str, tuple[Server, bool]]) -> None:
        """Apache's clusterList: the same rows for every kind of broker and name server."""
        (said,) = self._world.admin([["clusterList", "-n", self._ns.address]])
        rows = [line.split() for line in said.splitlines() if line.startswith("DefaultCluster")]
        found = {f"{row[1]} {row[2]}": (row[3], row[-1]) for row in rows}
        equal(
            found,
            {name: (broker.address, str(works).lower()) for name, (broker, works) in wanted.items()},
            "clusterList",
        )

    def _shown_link(self, master: Server) -> None:
        """Apache's haStatus of the returned master."""
        (said,) = self._world.admin([["haStatus", "-n", self._ns.address, "-b", master.address]])
        for line in ("#SlaveNum\t1", "#InSyncSlaveNum\t1"):
            check(line in said, f"haStatus says nothing of {line!r}: {said}")


class _LostLog(_Acting):
    """The master loses its disk, or the last of its log, while its slave acts: the slave gives it back.

    Args:
        kept: whether an older disk is there when it starts again, or none.
    """

    def __init__(self, world: World, slave: Maker, *, kept: bool) -> None:
        super().__init__(world, ours, slave, ours)
        self._kept = kept
        self._sent: Counter[bytes] = Counter()

    def _begin(self) -> None:
        """A slave that has the whole log, in more than two files."""
        master = self._start("master")
        until(lambda: active(master), "the master works")
        with Client(master.port) as client:
            client.create_topic(TOPIC, 1)
            group = {"groupName": GROUP, "retryQueueNums": 1, "consumeEnable": True}
            client.request(CREATE_GROUP, body=json.dumps(group).encode())
            place = {"topic": TOPIC, "consumerGroup": GROUP, "queueId": "0"}
            client.request(UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": str(COMMITTED)})
        slave = self._start("slave")
        self._works_again()
        # A slave of RocketMQ that begins later begins at its master's last file.
        self._send_one(b"begin")
        caught_up(master, slave, "before all others")
        self._send_more(b"first")
        caught_up(master, slave, "before the loss")
        until(lambda: self._has_tables(slave), "topics, groups and offsets at the slave")
        equal(log_ends(slave)[0], 0, "where the slave's log begins")

    def _send_one(self, body: bytes) -> None:
        self._send([body])
        self._sent[body] += 1

    def _send_more(self, word: bytes) -> None:
        more = Counter(b"%s-%d-" % (word, number) + bytes(BODY_BYTES) for number in range(MANY))
        self._send(more)
        self._sent += more

    def _works_again(self) -> Server:
        master, slave = self._running["master"], self._running["slave"]
        both = {0: master.address, 1: slave.address}
        until(lambda: members(self._ns) == both, "both are registered")
        until(lambda: active(master) and not active(slave), "the master works, its slave does not")
        return master

    def _act(self) -> None:
        """The slave acts, the master's disk is another one."""
        store, older = self._folder / "master" / "store", self._folder / "older"
        if self._kept:
            self._lost_master()
            shutil.copytree(store, older)
            self._start("master")
            caught_up(self._works_again(), self._running["slave"], "after the first return")
            self._send_more(b"second")
            caught_up(self._running["master"], self._running["slave"], "before the loss")
        self._lost_master()
        shutil.rmtree(store)
        if self._kept:
            older.rename(store)

    def _lost_master(self) -> None:
        self._running.pop("master").kill()
        until(lambda: active(self._running["slave"]), "the slave acts")

    def _return(self) -> None:
        """All messages can be read at the master, and the slave follows it with all that it had."""
        slave, begun = self._running["slave"], time.monotonic()
        wanted = log_ends(slave)
        self._start("master")
        master = self._works_again()
        self._world.remarks.append(f"works {time.monotonic() - begun:.1f} s after its start")
        equal(log_ends(master), wanted, "the log that came back")
        with Client(master.port) as client:
            equal(bodies(client, TOPIC), self._sent, "messages at the master")
        equal(committed(master, GROUP), COMMITTED, "the offset from before")
        self._send([b"after"])
        time.sleep(TABLES_S)
        check(self._has_tables(slave), "the slave deleted topics or groups after the return")
        same_copy(self._folder, master, slave, "after the return", [TOPIC])


def newest(world: World) -> Apache:
    """The newest version that can return and can be fetched.

    Raises:
        PeerUnavailableError: none can be fetched.
    """
    for version in VERSIONS[:-1]:
        try:
            return world.apache(version)
        except PeerUnavailableError:
            continue
    return world.apache(VERSIONS[-1])


def acts(master: Maker, slave: Maker, name_server: Maker) -> Callable[[World], None]:
    """The cell for these kinds."""

    def cell(world: World) -> None:
        _Acting(world, master, slave, name_server).run()

    return cell


def gives_back(*, kept: bool) -> Callable[[World], None]:
    """The cell of a master of ours whose disk is older than its slave's log, or new."""

    def cell(world: World) -> None:
        _LostLog(world, newest, kept=kept).run()

    return cell


CELLS: dict[str, Callable[[World], None]] = {
    "ours acts for apache": acts(newest, ours, ours),
    "ours acts for apache, its name server": acts(newest, ours, newest),
    # To a slave of 5.5.0 it could not return; the offsets that ours tells it can read.
    "ours acts for apache 5.5.0": acts(apache("5.5.0"), ours, ours),
    "apache acts for ours": acts(ours, newest, ours),
    "apache acts for ours, its name server": acts(ours, newest, newest),
    "apache gives ours a lost disk back": gives_back(kept=False),
    "apache gives ours a lost end back": gives_back(kept=True),
}
