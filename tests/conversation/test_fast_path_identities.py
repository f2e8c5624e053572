"""The fast path of a broker that requires keys: for each user the same responses as from the handlers."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from tests.conversation.fast_path_streams import Frames, Wire, play, settings, stream
from tests.conversation.test_fast_path_equals_handlers import answers, compare
from tests.signature_gate import signature

from orbitmq import Credentials
from orbitmq.auth.users import User
from orbitmq.broker.broker import Broker
from orbitmq.broker.fast_path import callers as callers_module
from orbitmq.broker.fast_path.callers import SignedCallers
from orbitmq.settings.access import STATEFUL
from orbitmq.testing import SimulatedRuntime
from orbitmq.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, Serialization
from orbitmq.wire.frame import decode_frame, encode_frame
from orbitmq.wire.signing import Secret

SECRETS = {"root": "root-secret-1", "app": "app-secret-1", "nobody": "x"}
ON: dict[str, Any] = {
    "authentication_enabled": True,
    "authorization_enabled": True,
    "init_authentication_user": Credentials("root", SECRETS["root"]),
}
RULES = (("Topic:T", "Pub,Sub"), ("Topic:U", "Pub"), ("Group:cg", "Sub"), ("Group:free", "Sub"))


def signed(command: Command, user: str, secret: str = "") -> Command:
    command.ext = {**command.ext, "AccessKey": user}
    command.ext["Signature"] = signature(secret or SECRETS[user], command.ext, command.body)
    return command


def make_user(name: str = "app") -> Command:
    return Command(Code.AUTH_CREATE_USER, {"username": name}, UserInfo(password=SECRETS[name]).encode())


def allow(*rules: tuple[str, str], sources: list[str] | None = None, decision: str = "Allow") -> Command:
    entries = [PolicyEntryInfo(what, actions.split(","), sources, decision) for what, actions in rules]
    body = AclInfo(None, [PolicyInfo(None, entries)]).encode()
    return Command(Code.AUTH_CREATE_ACL, {"subject": "User:app"}, body)


class SignedFrames(Frames):
    """Frames of several users, some of them with keys that are wrong, missing, or of another request."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._always = ""

    def warm_up(self) -> list[bytes]:
        self._always = "root"
        made = [self._encoded(signed(one, "root")) for one in (make_user(), allow(*RULES))]
        frames = [*made, *super().warm_up()]
        self._always = "app"
        # The fast path takes requests that the gate has permitted twice.
        frames += [self.send(topic, plain=True) for topic in ("T", "U") for _ in range(2)]
        frames += [self.pull("T", group, plain=True) for group in ("cg", "free") for _ in range(2)]
        self._always = ""
        return frames

    def _encoded(self, command: Command) -> bytes:
        self.opaque += 1
        command.opaque = self.opaque
        return encode_frame(command)

    def command(self, code: int, ext: dict[str, str], body: bytes = b"", flag: int = 0) -> bytes:
        draw = self.random
        command = Command(code, dict(ext), body, 0, flag, serialization=draw.choice(list(Serialization)))
        what = 0.0 if self._always else draw.random()
        if what < 0.75:
            command.ext |= {name: "x1" for name in ("SecurityToken", "ns", "nsd") if draw.random() < 0.2}
            signed(command, self._always or draw.choice(["app", "app", "app", "root"]))
            if draw.random() < 0.1:
                command.ext["__ZONE_NAME"] = "z"  # added after the signing, as clients of 5.x do
        elif what < 0.8:
            command.ext["__ZONE_MODE"] = "z"
            signed(command, "app")
        elif what < 0.85:
            signed(command, draw.choice(["app", "nobody"]), "another")
        elif what < 0.9:
            signed(command, "app")
            changed = draw.choice(list(command.ext))
            command.ext[changed] = command.ext[changed][:-1] + "7"
        elif what < 0.94:
            signed(command, "app")
            command.body += b"!"
        elif what < 0.97:
            signed(command, "app")
            del command.ext[draw.choice(["AccessKey", "Signature"])]
        return self._encoded(command)


@pytest.mark.behaviour("AU-30")
@pytest.mark.parametrize("seed", range(12))
def test_any_stream_of_several_users_has_the_same_outcome(seed: int) -> None:
    first, rest = stream(seed, 150, SignedFrames(seed))
    common: dict[str, Any] = {"seed": seed, "mapped_file_size_commit_log": 8 << 20, **ON}
    ours = play(first + rest, **common)
    theirs = play(first + rest, **common, fast=False)
    compare(ours, theirs)
    assert ours.taken > 8
    assert theirs.taken == 0
    assert ResponseCode.NO_PERMISSION in {answer.code for answer in ours.responses.values()}


class CertifiedFrames(SignedFrames):
    """Frames of a client with the certificate of app: without keys, with its own or with another user's."""

    def command(self, code: int, ext: dict[str, str], body: bytes = b"", flag: int = 0) -> bytes:
        draw = self.random
        what = 1.0 if self._always else draw.random()
        if what > 0.5:
            return super().command(code, ext, body, flag)
        command = Command(code, dict(ext), body, 0, flag, serialization=draw.choice(list(Serialization)))
        command.ext |= {name: "x1" for name in ("SecurityToken", "ns", "__ZONE_NAME") if what < 0.1}
        return self._encoded(command)


@pytest.mark.behaviour("AU-47", "AU-48")
@pytest.mark.parametrize("certified", ["app", "mq-1"])
@pytest.mark.parametrize("seed", range(6))
def test_any_stream_of_a_client_with_a_certificate_has_the_same_outcome(seed: int, certified: str) -> None:
    first, rest = stream(seed, 150, CertifiedFrames(seed))
    common: dict[str, Any] = {"seed": seed, "mapped_file_size_commit_log": 8 << 20, **ON}
    before = play(first, **common).taken
    common["certified"] = {len(first): certified}
    ours = play(first + rest, **common)
    theirs = play(first + rest, **common, fast=False)
    compare(ours, theirs)
    assert (ours.taken > before) == (certified == "app"), "keys beside another certificate are the gate's"
    assert ResponseCode.NO_PERMISSION in {answer.code for answer in ours.responses.values()}


class Client:
    """Sends requests to a broker in memory on one connection, each in a chunk of its own."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.wire = Wire(broker)
        self.opaque = 0

    async def ask(self, command: Command, user: str = "", secret: str = "") -> Command:
        self.opaque += 1
        command.opaque = self.opaque
        self.wire.deliver(encode_frame(signed(command, user, secret) if user else command))
        await asyncio.sleep(0.1)
        return next(answer for answer in answers(self.wire) if answer.opaque == self.opaque)

    async def send(self, user: str = "app", topic: str = "T", secret: str = "") -> tuple[int, bool]:
        """Send a message; returns the response code, and whether the fast path responded."""
        assert self._broker.doors.fast_path is not None
        before = self._broker.doors.fast_path.messages_in
        answer = await self.ask(send_to(topic), user, secret)
        return answer.code, self._broker.doors.fast_path.messages_in > before

    async def begin(self) -> None:
        """Create the user app, with rights for T, and the topic."""
        for command in (make_user(), allow(*RULES), send_to("T")):
            assert (await self.ask(command, "root")).code == 0


def send_to(topic: str) -> Command:
    ext = {"a": "pg", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
    return Command(310, ext, b"body")


def pull_from(topic: str = "T", group: str = "free", offset: int = 0, wait_ms: int = 0) -> Command:
    ext = {"consumerGroup": group, "topic": topic, "queueId": "0", "queueOffset": str(offset),
           "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": str(wait_ms),
           "subVersion": "0", "subscription": "*", "expressionType": "TAG"}  # fmt: skip
    return Command(11, ext)


REFUSED = (ResponseCode.NO_PERMISSION, False)


@pytest.mark.behaviour("AZ-25")
@pytest.mark.parametrize(
    ("change", "back"),
    [
        (allow(("Topic:T", "Sub")), allow(("Topic:T", "Pub,Sub"))),
        (allow(("Topic:T", "Pub"), sources=["10.0.0.0/8"]), allow(("Topic:T", "Pub,Sub"))),
        (
            Command(Code.AUTH_UPDATE_USER, {"username": "app"}, UserInfo(user_status="disable").encode()),
            Command(Code.AUTH_UPDATE_USER, {"username": "app"}, UserInfo(user_status="enable").encode()),
        ),
        (
            Command(Code.AUTH_UPDATE_USER, {"username": "app"}, UserInfo(password="other").encode()),
            Command(Code.AUTH_UPDATE_USER, {"username": "app"}, UserInfo(password="app-secret-1").encode()),
        ),
    ],
    ids=["rule", "address", "disabled", "secret"],
)
async def test_a_change_counts_from_the_next_chunk_on(
    runtime: SimulatedRuntime, change: Command, back: Command
) -> None:
    async with Broker(runtime, settings(**ON)) as broker:
        root, one, other = Client(broker), Client(broker), Client(broker)
        await root.begin()
        for client in (one, other):
            assert [(await client.send())[0], await client.send()] == [0, (0, True)]
        assert (await root.ask(change, "root")).code == 0
        assert [await client.send() for client in (one, other)] == [REFUSED, REFUSED]
        assert (await root.ask(back, "root")).code == 0
        assert [await one.send(), await one.send()] == [(0, False), (0, True)]


@pytest.mark.behaviour("AU-30")
async def test_each_signature_is_checked_in_the_clear(runtime: SimulatedRuntime) -> None:
    async with Broker(runtime, settings(**ON)) as broker:
        client = Client(broker)
        await client.begin()
        assert [(await client.send())[0], await client.send()] == [0, (0, True)]
        assert await client.send(secret="wrong") == REFUSED
        assert await client.send() == (0, True)
        assert await client.send("nobody") == REFUSED
        assert await client.send("app", "U") == (0, False), "the first one of a topic is the gate's"
        assert await client.send("app", "V") == REFUSED
        copied = signed(send_to("T"), "app")
        copied.ext["b"] = "U"
        assert (await client.ask(copied)).code == ResponseCode.NO_PERMISSION


@pytest.mark.behaviour("AU-31")
@pytest.mark.parametrize("strategy", ["", STATEFUL])
async def test_over_tls_or_by_strategy_a_connection_is_checked_once_for_each_user(
    runtime: SimulatedRuntime, strategy: str
) -> None:
    async with Broker(runtime, settings(**ON, authentication_strategy=strategy)) as broker:
        client, other = Client(broker), Client(broker)
        await client.begin()
        for one in (client, other):
            one.wire._protocol.secured = not strategy  # type: ignore[attr-defined]
        assert [(await client.send("root"))[0], await client.send("root")] == [0, (0, True)]
        assert await client.send("app", secret="wrong") == REFUSED
        assert [(await client.send())[0], await client.send()] == [0, (0, True)]
        assert await client.send(secret="not looked at") == (0, True)
        assert await client.send("nobody") == REFUSED
        assert await other.send(secret="wrong") == REFUSED


@pytest.mark.behaviour("AU-47", "AU-48")
async def test_requests_without_keys_are_those_of_the_certificate(runtime: SimulatedRuntime) -> None:
    async with Broker(runtime, settings(**ON)) as broker:
        root, app, other = Client(broker), Client(broker), Client(broker)
        await root.begin()
        app.wire.show("app")
        assert [(await app.send(""))[0], await app.send("")] == [0, (0, True)]
        assert await app.send("app") == (0, True), "keys of the same user"
        assert await app.send("app", secret="wrong") == REFUSED
        assert await app.send("root") == REFUSED
        assert await app.send("", "V") == REFUSED
        assert await app.send("") == (0, True)
        assert await other.send("") == REFUSED
        root.wire.show("root")
        for status, outcome in (("disable", REFUSED), ("enable", (0, False))):
            body = UserInfo(user_status=status).encode()
            assert (await root.ask(Command(Code.AUTH_UPDATE_USER, {"username": "app"}, body))).code == 0
            assert await app.send("") == outcome
        assert await app.send("") == (0, True)
        assert (await root.ask(Command(Code.AUTH_DELETE_USER, {"username": "app"}))).code == 0
        assert await app.send("") == REFUSED
        assert await app.send("app") == REFUSED


@pytest.mark.behaviour("AU-48")
async def test_keys_beside_a_certificate_that_becomes_another_users(runtime: SimulatedRuntime) -> None:
    async with Broker(runtime, settings(**ON)) as broker:
        root, client = Client(broker), Client(broker)
        await root.begin()
        client.wire.show("nobody")
        assert [await client.send() for _ in range(3)] == [(0, False)] * 3
        assert await client.send("") == REFUSED
        assert (await root.ask(make_user("nobody"), "root")).code == 0
        assert await client.send() == REFUSED


@pytest.mark.behaviour("AU-48")
async def test_a_pull_that_waits_ends_when_the_user_of_its_certificate_may_no_longer(
    runtime: SimulatedRuntime,
) -> None:
    async with Broker(runtime, settings(**ON)) as broker:
        root, app = Client(broker), Client(broker)
        await root.begin()
        app.wire.show("app")
        for _ in range(3):
            assert (await app.ask(pull_from())).code == 0
        fast_path = broker.doors.fast_path
        assert fast_path is not None
        held = await waiting(app, "", 1)
        assert fast_path.pulls_missed == 1
        found = fast_path.pulls_found
        assert (await root.send("root"))[0] == 0
        assert ((await held).code, fast_path.pulls_found) == (0, found + 1)
        held = await waiting(app, "", 2)
        assert (await root.ask(allow(("Group:free", "Get")), "root")).code == 0
        assert (await held).code == ResponseCode.NO_PERMISSION


async def test_a_field_that_is_there_twice_is_never_signed_twice(runtime: SimulatedRuntime) -> None:
    """Decoder and signer take the last of them; the fast path must not take the other."""
    async with Broker(runtime, settings(**ON)) as broker:
        client = Client(broker)
        await client.begin()
        assert [(await client.send())[0], await client.send()] == [0, (0, True)]
        command = send_to("T")
        command.serialization = Serialization.ROCKETMQ
        command.opaque = 77
        frame = encode_frame(signed(command, "app"))
        field = struct.pack(">h", 1) + b"h" + struct.pack(">i", 1) + b"5"
        begin = frame.index(struct.pack(">h", 1) + b"a")
        length = struct.unpack(">i", frame[begin - 4 : begin])[0]
        header = struct.unpack(">i", frame[4:8])[0]
        frame = (
            struct.pack(">ii", len(frame) - 4 + len(field), header + len(field))
            + frame[8 : begin - 4] + struct.pack(">i", length + len(field)) + field + frame[begin:]
        )  # fmt: skip
        before = broker.services.store.max_commit_log_offset
        client.wire.deliver(frame)
        await asyncio.sleep(0.1)
        assert [answer.code for answer in answers(client.wire) if answer.opaque == 77] == [0]
        assert broker.services.store.max_commit_log_offset > before


def with_another(frame: bytes, name: str, value: str, *, first: bool) -> bytes:
    """The frame with one more field of this name, in front of the others or after them."""
    _, word = struct.unpack(">ii", frame[:8])
    header, body = frame[8 : 8 + (word & 0xFFFFFF)], frame[8 + (word & 0xFFFFFF) :]
    if word >> 24:  # the binary form
        more = struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(value)) + value.encode()
        fields = more + header[21:] if first else header[21:] + more
        header = header[:17] + struct.pack(">i", len(fields)) + fields
    else:
        begin = header.index(b'"extFields":{') + len(b'"extFields":{')
        end = header.index(b"}", begin)
        more = f'"{name}":"{value}"'.encode()
        fields = more + b"," + header[begin:end] if first else header[begin:end] + b"," + more
        header = header[:begin] + fields + header[end:]
    return struct.pack(">ii", 4 + len(header) + len(body), word & ~0xFFFFFF | len(header)) + header + body


@pytest.mark.behaviour("AU-13", "AU-30", "AU-31")
@pytest.mark.parametrize("strategy", ["", STATEFUL])
@pytest.mark.parametrize("form", list(Serialization), ids=lambda form: form.name)
async def test_keys_that_are_there_twice_are_judged_as_they_are_decoded(
    runtime: SimulatedRuntime, strategy: str, form: Serialization
) -> None:
    async with Broker(runtime, settings(**ON, authentication_strategy=strategy)) as broker:
        client = Client(broker)
        await client.begin()
        assert [(await client.send())[0], await client.send()] == [0, (0, True)]
        right = signature(SECRETS["app"], {**send_to("T").ext, "AccessKey": "app"}, b"body")
        found = set()
        for name, value in (
            *(("AccessKey", user) for user in ("app", "root", "nobody", "", "a" * 100_000)),
            *(("Signature", text) for text in (right, "wrong", "", "x" * 100_000)),
        ):
            for first in (True, False):
                client.opaque += 1
                command = signed(send_to("T"), "app")
                command.opaque, command.serialization = client.opaque, form
                frame = with_another(encode_frame(command), name, value, first=first)
                ext = decode_frame(frame).ext
                user, secret = ext["AccessKey"], SECRETS.get(ext["AccessKey"], "")
                is_made = user in ("app", "root") and ext["Signature"] == signature(secret, ext, b"body")
                # A stateful broker skips the signature of a user that this connection has proved once.
                passes = is_made or (bool(strategy) and user == "app")
                client.wire.deliver(frame)
                await asyncio.sleep(0.1)
                (answer,) = [one for one in answers(client.wire) if one.opaque == client.opaque]
                about = (name, value[:9], first, answer.remark)
                assert (answer.code == 0, answer.code in (0, 16)) == (passes, True), about
                found.add(passes)
        assert found == {True, False}
        assert not client.wire.closed


async def waiting(client: Client, user: str, offset: int) -> asyncio.Future[Command]:
    """A pull that waits for the message at this offset."""
    client.opaque += 1
    command = pull_from(offset=offset, wait_ms=5_000)
    command.opaque = client.opaque
    client.wire.deliver(encode_frame(signed(command, user) if user else command))

    async def answered() -> Command:
        while True:
            for answer in answers(client.wire):
                if answer.opaque == command.opaque:
                    return answer
            await asyncio.sleep(0.1)

    task = asyncio.ensure_future(answered())
    await asyncio.sleep(0.5)
    assert not task.done()
    return task


@pytest.mark.behaviour("AZ-26")
async def test_waiting_pulls_of_who_lost_the_right_are_refused(runtime: SimulatedRuntime) -> None:
    async with Broker(runtime, settings(**ON)) as broker:
        root, app = Client(broker), Client(broker)
        await root.begin()
        for client, user in ((root, "root"), (app, "app")):
            for _ in range(3):
                assert (await client.ask(pull_from(), user)).code == 0
        fast_path = broker.doors.fast_path
        assert fast_path is not None

        roots, apps = await waiting(root, "root", 1), await waiting(app, "app", 1)
        assert fast_path.pulls_missed == 2
        assert (await Client(broker).ask(allow(("Group:free", "Get")), "root")).code == 0
        assert (await apps).code == ResponseCode.NO_PERMISSION
        assert not roots.done()
        assert (await Client(broker).ask(allow(("Group:free", "Sub")), "root")).code == 0
        assert (await app.ask(pull_from(), "app")).code == 0
        again = await waiting(app, "app", 1)
        found = fast_path.pulls_found
        assert (await Client(broker).send("root"))[0] == 0
        assert [(await roots).code, (await again).code] == [0, 0]
        assert fast_path.pulls_found == found + 2
        ended = await (await waiting(app, "app", 2))
        assert ended.code == ResponseCode.PULL_NOT_FOUND


def test_rights_that_take_too_much_memory_are_given_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers_module, "MAX_BYTES", 3000)
    callers = SignedCallers()
    user = User("app", Secret("x"))
    first = callers.of(user, "10.0.0.1")
    assert callers.of(user, "10.0.0.1") is first
    callers.grew(first.allow_send(500))
    assert first.is_open
    callers.grew(first.allow_pull(2000))
    assert not first.is_open
    assert callers.of(user, "10.0.0.1") is not first
