"""A gate before the servers of a world in memory: it checks the signature of every request of clients.

It knows what Apache's brokers know (ACL 2.0), computed here from the facts: users with their secret keys, the
signature over the values of all fields in the order of their names and the body, the refusals with code 16.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.testing.world import World
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder, encode_frame

CLIENTS = "127.0.0.1"
OURS = ("AccessKey", "Signature", "SecurityToken")


def signature(secret: str, ext: dict[str, str], body: bytes) -> str:
    """As Apache's AclUtils and AclSigner compute it."""
    content = b"".join(ext[name].encode() for name in sorted(ext) if name != "Signature") + body
    return base64.b64encode(hmac.new(secret.encode(), content, "sha1").digest()).decode()


@dataclass
class Gate:
    """The users, and what was asked.

    Attributes:
        users: secret keys by access key.
        denies: called with user and request; a remark refuses it.
        requests: (server's port, code, user, refusal or empty) of each request of a client, in order.
        tokens: the security tokens that were shown.
        is_shut: whether it checks at all.
    """

    users: dict[str, str]
    denies: Callable[[str, Command], str] = lambda user, command: ""
    requests: list[tuple[str, int, str, str]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)

    is_shut: bool = False

    def verdict(self, server: str, command: Command) -> str:
        """The remark of the refusal; empty when the request may pass."""
        ext = command.ext
        user = ext.get("AccessKey", "")
        if not user:
            why = "username cannot be null."
        elif user not in self.users:
            why = f"User:{user} is not found."
        elif ext.get("Signature") != signature(self.users[user], ext, command.body):
            why = "check signature failed."
        else:
            why = self.denies(user, command)
        self.requests.append((server, command.code, user, why))
        self.tokens.add(ext.get("SecurityToken", ""))
        return why

    def codes(self) -> set[int]:
        return {code for _, code, _, _ in self.requests}

    def sends(self, code: int) -> list[str]:
        """The servers that got requests of this code."""
        return [server for server, asked, _, _ in self.requests if asked == code]


class _Checked(asyncio.Protocol):
    """Before the protocol of one accepted connection."""

    def __init__(self, gate: Gate, server: str, inner: Any) -> None:
        self._gate, self._server, self._inner = gate, server, inner
        self._decoder = FrameDecoder()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport
        self._of_client = transport.get_extra_info("peername")[0] == CLIENTS
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._decoder.feed(data)
        for command in self._decoder.commands():
            why = ""
            if self._gate.is_shut and self._of_client and not command.is_response:
                why = self._gate.verdict(self._server, command)
                command.ext = {name: value for name, value in command.ext.items() if name not in OURS}
            if not why:
                self._give(encode_frame(command))
            elif not command.is_oneway:
                self._transport.write(encode_frame(command.reply(ResponseCode.NO_PERMISSION, why)))

    def _give(self, frame: bytes) -> None:
        left = memoryview(frame)
        while left:
            room = self._inner.get_buffer(len(left))
            count = min(len(room), len(left))
            room[:count] = left[:count]
            self._inner.buffer_updated(count)
            left = left[count:]

    def eof_received(self) -> bool | None:
        return bool(self._inner.eof_received())

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()


class _GatedNetwork:
    def __init__(self, gate: Gate, network: Any) -> None:
        self._gate, self._network = gate, network

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    async def listen(self, factory: Callable[[], Any], host: str, port: int) -> Any:
        server = f"{self._network.host}:{port}"
        return await self._network.listen(lambda: _Checked(self._gate, server, factory()), host, port)


def gated(runtime: SimulatedRuntime, gate: Gate, **options: Any) -> World:
    """A world whose servers stand behind the gate; the requests among servers pass."""
    world = World(runtime, **options)
    for machine in world.machines.values():
        network: Any = _GatedNetwork(gate, machine.runtime.network)
        machine.runtime = replace(machine.runtime, network=network)
    return world
