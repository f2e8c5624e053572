"""Cells of `make interop-grpc` across both protocols: Java's remoting client, and compressed bodies.

What Java's `DefaultMQProducer` sends, with each compression that it has, each gRPC client gets unpacked;
what a gRPC client sends, Java's `DefaultMQPushConsumer` receives. Apache's client comes from Maven Central.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.remoting import Client as Remoting
from benchmarks.servers import PeerUnavailableError, apache_classpath
from tests.interop.grpc_clients import Client, Line, fault, slug
from tests.interop.records import read_queue
from tests.interop.world import World, running_java

from orbitmq.message import sysflag
from orbitmq.message.compression import CompressionType
from orbitmq.message.record import Record, decode_record

# More than the 4096 bytes from which Java's producer compresses.
PADDING = 9000
TAGS = ("even", "odd")
# As `orbitmq up` names slaves: broker-a-1.
SLAVE = re.compile(r"-\d+$")


class Remote:
    """Java's remoting client and mqadmin, fetched for the first cell that needs them.

    Args:
        told: what `orbitmq up` says.
    """

    def __init__(self, folder: Path, told: Line) -> None:
        self._folder = folder
        self._name_server = told["name_server"]
        masters = [address for name, address in told["brokers"].items() if not SLAVE.search(name)]
        self._ports = [int(address.rpartition(":")[2]) for address in masters]
        self._world: World | None = None

    def _java(self) -> World:
        if self._world is None:
            self._world = World(apache_classpath(), self._folder)
        return self._world

    def sends(self, topic: str, compression: CompressionType, count: int) -> str:
        """Send; what is wrong with what the broker has then, empty: nothing."""
        java, *rest = self._java().command()
        command = [java, f"-Drocketmq.message.compressType={compression.name}", *rest]
        options = {"ns": self._name_server, "topic": topic, "how": "sync", "count": count}
        with running_java(command, "Send", **options, padding=PADDING) as program:
            program.wait_for("done")
        records = [record for port in self._ports for record in _stored(port, topic)]
        found = {
            CompressionType(sysflag.compression_of(record.sys_flag)).name
            for record in records
            if record.sys_flag & sysflag.COMPRESSED
        }
        if len(records) != count or found != {compression.name}:
            return f"{len(records)} of {count} stored, compressed as {sorted(found)}"
        return ""

    def receives(self, topic: str, count: int) -> list[Line]:
        """What a group of it receives."""
        facts = self._java().facts(
            "Receive", ns=self._name_server, topic=topic, group=f"java-remoting-{topic}", count=count
        )
        return [
            {"body": fact["body"], "keys": fact["keys"], "tag": fact["tags"]}
            for fact in facts
            if fact["fact"] == "received"
        ]

    def admin(self, *commands: str) -> list[str]:
        """What Apache's mqadmin prints about each command."""
        return self._java().admin([[*command.split(" "), "-n", self._name_server] for command in commands])


def _stored(port: int, topic: str) -> list[Record]:
    """The topic's records at one broker."""
    with Remoting(port) as client:
        return [decode_record(each) for queue in range(4) for each in read_queue(client, topic, queue)]


def cells(
    clients: Sequence[Client],
    told: Line,
    remote: Remote,
    count: int,
) -> Iterator[tuple[str, Callable[[], str]]]:
    """Each cell by its name: a function that gives its fault."""
    for sender in clients:

        def to_java(sender: Client = sender) -> str:
            topic = f"to-remoting-{slug(sender.name)}"
            sender.run("send", told["grpc"], topic, "-", count)
            return fault(remote.receives(topic, count), count)

        yield f"{sender.name} to Java's remoting client", partial(available, to_java)
    for compression in CompressionType:
        topic = f"compressed-{compression.name}"
        yield (
            f"Java's remoting client sends {compression.name}",
            partial(available, partial(remote.sends, topic, compression, count)),
        )
        for receiver in clients:

            def unpacked(receiver: Client = receiver, topic: str = topic) -> str:
                group = f"readers-{slug(receiver.name)}-{topic}"
                return _difference(receiver.run("simple", told["grpc"], topic, group, count), count)

            yield f"{compression.name} to {receiver.name}", partial(available, unpacked)


def available(run: Callable[[], str]) -> str:
    """What a cell finds; that it is left out, when Apache's jars cannot be had."""
    try:
        return run()
    except PeerUnavailableError as error:
        return f"left out: {error}"


def _difference(lines: Sequence[Line], count: int) -> str:
    """What is wrong with what was received of what Java's remoting client sent."""
    wanted = sorted(
        (f"sync-{number}-größe{'x' * PADDING}", f"key-{number}", TAGS[number % 2]) for number in range(count)
    )
    found = sorted((line["body"], line["keys"], line["tag"]) for line in lines)
    if found == wanted:
        return ""
    shown = [(body[:16], len(body), keys, tag) for body, keys, tag in found[:2]]
    return f"received {len(found)} of {count}, the first {shown}"
