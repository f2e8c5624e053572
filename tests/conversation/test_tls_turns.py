"""Handshakes of many clients at once take turns, so that a server's other work continues."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
from tests.certificates import Authority

from orbitmq import Tls
from orbitmq.runtime.server_tls import CertificateFiles, ServerTls, TlsMode
from orbitmq.runtime.turns import Turns
from orbitmq.testing import SimulatedRuntime
from orbitmq.testing.machine.virtual_loop import VirtualLoop
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.identity import Identity
from orbitmq.transport.server import RemotingServer
from orbitmq.wire.command import Command

CLIENTS = 12


def iteration() -> int:
    return cast(VirtualLoop, asyncio.get_running_loop()).iterations


@pytest.mark.behaviour("TL-21")
async def test_a_turn_of_the_loop_has_one_step_of_a_handshake(
    runtime: SimulatedRuntime, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    made = authority.issue("server", ["127.0.0.1"])
    for path in (made.cert, made.key):
        runtime.files.write_atomic(path, Path(path).read_bytes())
    tls = ServerTls(runtime, TlsMode.ENFORCING, CertificateFiles(made.cert, made.key))
    tls.check()
    steps: Counter[int] = Counter()

    class Counted(ssl.SSLObject):
        def do_handshake(self) -> None:
            steps[iteration()] += 1
            super().do_handshake()

    tls.context().sslobject_class = Counted

    def answer(_connection: Any, command: Command) -> Command:
        return command.reply(body=command.body)

    server = RemotingServer(runtime, answer, tls=tls)
    port = await server.start("127.0.0.1", 0)
    identity = Identity(tls=Tls(ca=authority.ca, check_host=False))
    clients = [RemotingClient(runtime, identity=identity) for _ in range(CLIENTS)]
    asked = [
        client.request(f"127.0.0.1:{port}", Command(10, body=b"%d" % number), 20_000)
        for number, client in enumerate(clients)
    ]
    assert [each.body for each in await asyncio.gather(*asked)] == [b"%d" % n for n in range(CLIENTS)]
    assert sum(steps.values()) >= 2 * CLIENTS
    assert max(steps.values()) == 1
    for client in clients:
        await client.close()
    await server.stop()


async def test_work_that_fails_does_not_hold_up_what_waits_behind_it(runtime: SimulatedRuntime) -> None:
    turns, done = Turns(), []
    told: list[BaseException] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: told.append(context["exception"]))

    def work(number: int) -> None:
        done.append((number, iteration()))
        if number == 1:
            raise ValueError("1")
        if number == 2:
            turns.wait(lambda: work(4))

    for number in (1, 2, 3):
        turns.wait(lambda number=number: work(number))  # type: ignore[misc]
    while len(done) < 4:
        await asyncio.sleep(0)
    turns.wait(lambda: work(5))
    await asyncio.sleep(0)
    loop.set_exception_handler(None)
    assert [number for number, _ in done] == [1, 2, 3, 4, 5]
    assert len({when for _, when in done}) == 5
    assert [str(error) for error in told] == ["1"]
