"""Cells of `make interop-grpc` for operators: Apache's mqadmin and `orbitmq group` with gRPC clients on line.

A push consumer and a producer of each client run meanwhile. The commands show both. One message is consumed
directly by a client that can do that; of another one the command says at once that it cannot. Groups are
moved back while their consumer runs, and it gets all messages again.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.servers import ServerError
from tests.interop.grpc_clients import LIMIT_S, ROOT, Client, Line, slug
from tests.interop.grpc_remoting import Remote, available
from tests.interop.grpc_running import Running

from orbitmq.admin import Admin
from orbitmq.gateway.abilities import VERIFYING
from orbitmq.wire.command import Language
from orbitmq.wire.versions import name_of

# A producer that sends 50 a second does not end before the cells do.
STEADY = 50_000
UNABLE = "client tells nothing about itself"


def orbitmq(told: Line, *words: str) -> str:
    """What our command prints; it ends in an error when the exit code is not 0."""
    done = subprocess.run(
        [sys.executable, "-m", "orbitmq", *words, "-n", told["name_server"]],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    if done.returncode != 0:
        raise ServerError(f"orbitmq {' '.join(words)} ends with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


class Watched:
    """A push consumer and a producer of one client that run while operators look at them."""

    def __init__(self, client: Client, told: Line, remote: Remote, count: int) -> None:
        self._client = client
        self._told = told
        self._remote = remote
        self._count = count
        self._topic = f"watched-{slug(client.name)}"
        self._producing = f"sending-{slug(client.name)}"
        self._group = f"watching-{slug(client.name)}"
        language, _, version = client.name.partition(" ")
        self._language, self._version = language.upper(), f"V{version.replace('.', '_')}"
        self._client_id = ""
        self._wanted: Counter[str] = Counter()
        self._stack = ExitStack()
        self._ids: list[str] = []
        self._consumer: Running | None = None

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def started(self) -> str:
        """Both run, and the consumer got each message once."""
        sent = self._client.run("send", self._told["grpc"], self._topic, "-", self._count)
        self._ids = [line["id"] for line in sent]
        self._consumer = self._run("push", self._topic, self._group, 10 * self._count)
        # It works all the time at another topic, which is also the name of its group.
        producer = self._run("steady", self._producing, "-", STEADY)
        producer.wait_for(lambda: len(producer.lines) > 0)
        return self._all_again()

    def _run(self, role: str, topic: str, group: str, count: int) -> Running:
        running = Running(self._client, role, self._told["grpc"], topic, group, count)
        self._stack.callback(running.end)
        return running

    def _came(self) -> str:
        """What is wrong with what the consumer got; empty: nothing."""
        assert self._consumer is not None
        consumer = self._consumer
        consumer.wait_for(lambda: len(consumer.bodies("body")) >= self._wanted.total())
        found = Counter(consumer.bodies("body"))
        return (
            ""
            if found == self._wanted
            else f"got {dict(found - self._wanted)} too much and {dict(self._wanted - found)} too little"
        )

    def _all_again(self) -> str:
        self._wanted.update(f"body-{number}" for number in range(self._count))
        return self._came()

    def group_shown(self) -> str:
        """`orbitmq group show` names the member."""
        shown = json.loads(orbitmq(self._told, "group", "show", self._group, "--json"))
        (member,) = shown["members"]
        self._client_id = member["client_id"]
        found = (member["language"], name_of(member["version"]).upper(), shown["subscriptions"])
        subscription = {"topic": self._topic, "kind": "TAG", "expression": "*"}
        wanted = (self._language, self._version, [subscription])
        return "" if found == wanted else f"shows {found}, not {wanted}"

    def connections_shown(self) -> str:
        """`mqadmin consumerConnection` and `producerConnection` show language, version and subscription."""
        consumers, producers = self._remote.admin(
            f"consumerConnection -g {self._group}",
            f"producerConnection -g {self._producing} -t {self._producing}",
        )
        client = rf"127\.0\.0\.1:\d+ +{self._language} +{self._version}\b"
        wrong = "" if re.search(client, producers) else f"producerConnection prints {producers[:500]}"
        if not re.search(f"{re.escape(self._client_id)} +{client}", consumers) or not re.search(
            rf"^{self._topic} +\*", consumers, re.MULTILINE
        ):
            wrong += f" consumerConnection prints {consumers[:500]}"
        return wrong

    def asked(self) -> str:
        """`mqadmin consumerStatus -s` and `queryMsgById -d`: the client answers, or is said to be unable."""
        offset_id = asyncio.run(self._offset_id())
        status, handled = self._remote.admin(
            f"consumerStatus -g {self._group} -i {self._client_id} -s",
            f"queryMsgById -t {self._topic} -i {offset_id} -g {self._group} -d {self._client_id}",
        )
        if Language[self._language] in VERIFYING:
            wanted = ("RocketmqMessageConsumption-", "consumeResult=CR_SUCCESS")
            self._wanted["body-0"] += 1
        else:
            # mqadmin looks at the running info before it has a message consumed.
            wanted = (UNABLE, UNABLE)
        wrong = "" if wanted[0] in status else f"consumerStatus prints {status[:500]}"
        wrong += "" if wanted[1] in handled else f" queryMsgById prints {handled[:500]}"
        return wrong or self._came()

    async def _offset_id(self) -> str:
        async with Admin(self._told["name_server"]) as admin:
            (message,) = await admin.messages.by_unique_id(self._topic, self._ids[0])
            return message.offset_message_id

    def moved_by_ours(self) -> str:
        """`orbitmq group reset`: all messages come again."""
        with tempfile.TemporaryDirectory() as folder:
            moves = ["--to", "first", "--save", str(Path(folder) / "moves.json"), "--yes"]
            orbitmq(self._told, "group", "reset", self._group, self._topic, *moves)
        return self._all_again()

    def moved_by_mqadmin(self) -> str:
        """`mqadmin resetOffsetByTime`: all messages come again."""
        self._remote.admin(f"resetOffsetByTime -g {self._group} -t {self._topic} -s 0")
        return self._all_again()


def cells(
    clients: Sequence[Client], told: Line, remote: Remote, count: int
) -> Iterator[tuple[str, Callable[[], str]]]:
    """Each cell by its name: a function that gives its fault."""
    for client in clients:
        with Watched(client, told, remote, count) as watched:
            yield f"{client.name}: watched by operators", watched.started
            yield f"{client.name}: group show", watched.group_shown
            yield f"{client.name}: consumerConnection", partial(available, watched.connections_shown)
            yield f"{client.name}: consumerStatus -s, queryMsgById -d", partial(available, watched.asked)
            yield f"{client.name}: group reset", watched.moved_by_ours
            yield f"{client.name}: resetOffsetByTime", partial(available, watched.moved_by_mqadmin)
