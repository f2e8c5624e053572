"""Apache's clients and its mqadmin at our brokers that require keys (ACL 2.0)."""

from __future__ import annotations

import asyncio
import difflib
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.interop.admin_cells import masked
from tests.interop.java_cells import expected, same_messages
from tests.interop.secured_cells import ACL_2, APP, NOBODY, ROOT, WRONG, secured
from tests.interop.world import Fact, Place, World, check, equal

from orbitmq import Credentials
from orbitmq.runtime import system_runtime
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.identity import Identity
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

COUNT = 20
USER_SECRETS = ("secret-of-alice", "secret-2-of-alice")


@contextmanager
def tools_keys(world: World, credentials: Credentials) -> Iterator[None]:
    """mqadmin signs with these keys, from the file where it looks for them."""
    path = world.folder / "conf" / "tools.yml"
    path.parent.mkdir(exist_ok=True)
    secret = f"{_secret(credentials)}"
    path.write_text(f"accessKey: {credentials.access_key}\nsecretKey: {secret}\n")
    try:
        yield
    finally:
        path.unlink()


def _secret(credentials: Credentials) -> str:
    secret = credentials.secret_key
    return secret if isinstance(secret, str) else secret.reveal()


def keys_of(credentials: Credentials) -> dict[str, str]:
    """Options of Java programs that sign with these keys."""
    return {"ak": credentials.access_key, "sk": _secret(credentials)}


def _grant(world: World, place: Place) -> None:
    """The user APP with rights on one topic and all groups."""
    where = ["-b", place.broker.address, "-n", place.ns]
    rights = [("Topic:orders", "Pub,Sub"), ("Topic:RMQ_SYS_TRACE_TOPIC", "Pub"), ("Group:*", "Sub")]
    commands = [
        ["updateTopic", *where[:2], "-t", "orders", "-r", "4", "-w", "4"],
        ["updateTopic", *where[:2], "-t", "invoices", "-r", "4", "-w", "4"],
        ["setConsumeMode", *where, "-t", "orders", "-g", "java_pop", "-m", "POP", "-q", "0"],
        ["createUser", *where, "-u", APP.access_key, "-p", _secret(APP), "-t", "Normal"],
        *(
            [
                "createAcl",
                *where,
                "-s",
                f"User:{APP.access_key}",
                "-r",
                resource,
                "-a",
                actions,
                "-d",
                "Allow",
            ]
            for resource, actions in rights
        ),
    ]
    with tools_keys(world, ROOT):
        for command, said in zip(commands, world.admin(commands), strict=True):
            check("success" in said.lower(), f"mqadmin {' '.join(command)}: {said[:300]}")


def _received(facts: list[Fact]) -> list[str]:
    return sorted(fact["body"] for fact in facts if fact["fact"] == "received")


def exchanged(world: World, place: Place, *, pops: bool) -> None:
    """Java programs send and receive with the keys of APP; others are refused."""
    keys = keys_of(APP)
    sent = {"ns": place.ns, "topic": "orders", **keys}
    wanted: set[tuple[str, str, str, str, str]] = set()
    ways = ("sync", "async", "batch", "oneway")
    world.facts("Send", how=",".join(ways), count=COUNT, **sent)
    for how in ways:
        wanted |= expected(how, COUNT)
    taken = {"ns": place.ns, "topic": "orders", "count": len(wanted), "seconds": 60, **keys}
    group = world.fresh("java_group")
    facts = world.facts("Receive", group=group, refuse=1, level=1, trace=1, **taken)
    received = same_messages(facts, wanted)
    equal({fact["reconsumed"] for fact in received}, {"1"}, "reconsume times")
    same_messages(world.facts("Receive", group=world.fresh("java_group"), orderly=1, **taken), wanted)
    if pops:
        same_messages(world.facts("Receive", group="java_pop", pop=1, **taken), wanted)
    facts = world.facts("Transact", seconds=150, **sent)
    states = [(fact["status"], fact["state"]) for fact in facts if fact["fact"] == "sent"]
    equal(
        states,
        [("SEND_OK", state) for state in ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW")],
        "half messages",
    )
    facts = world.facts("Receive", group=group, linger=2000, **{**taken, "count": 2})
    equal(_received(facts), ["commit", "unknown"], "messages of transactions")
    _refusals(world, place)


def _refusals(world: World, place: Place) -> None:
    for credentials, topic, words in (
        (WRONG, "orders", "check signature failed"),
        (NOBODY, "orders", "check signature failed"),
        (None, "orders", "username cannot be null"),
        (APP, "invoices", "no permission to access Topic:invoices"),
    ):
        keys = keys_of(credentials) if credentials else {}
        [fact] = world.facts("Send", ns=place.ns, topic=topic, how="async", count=1, **keys, refused=1)
        equal(fact["fact"], "refused", f"a send of {credentials} to {topic}")
        check(words in fact["error"], f"a send of {credentials} to {topic}: {fact}")


def java(world: World) -> None:
    """Clients of 5.5.0."""
    with secured(world, "ours", ACL_2) as place:
        _grant(world, place)
        exchanged(world, place, pops=True)


def java_old(world: World) -> None:
    """Clients of 4.9.7, which cannot pop."""
    with secured(world, "ours", ACL_2) as place:
        _grant(world, place)
        with world.old_clients():
            exchanged(world, place, pops=False)


# Of every command that is about users and rules: what it does, and what it says when it cannot.
_COMMANDS = (
    "createUser -u alice -p secret-of-alice -t Normal",
    "createUser -u alice -p secret-of-alice -t Normal",
    "createUser -u carol -p secret-of-carol -t Super",
    "getUser -u alice",
    "getUser -u bob",
    "updateUser -u alice -p secret-2-of-alice",
    "updateUser -u alice -s disable",
    "updateUser -u bob -s disable",
    "listUser",
    "listUser -f ali",
    "createAcl -s User:alice -r Topic:orders,Topic:bills* -a Pub,Sub -i 10.0.0.0/8,127.0.0.1 -d Allow",
    "createAcl -s User:alice -r Group:* -a Sub -d Deny",
    "createAcl -s User:bob -r Group:* -a Sub -d Deny",
    "createAcl -s User:alice -r Group:x -a Any -d Allow",
    "createAcl -s User:alice -r Group:x -a Sub -i nowhere -d Allow",
    "getAcl -s User:alice",
    "getAcl -s User:bob",
    "updateAcl -s User:alice -r Topic:orders -a Sub -d Allow",
    "listAcl",
    "listAcl -s alice -r orders",
    "deleteAcl -s User:alice -r Topic:orders",
    "getAcl -s User:alice",
    "deleteAcl -s User:alice",
    "getAcl -s User:alice",
    "deleteUser -u alice",
    "deleteUser -u alice",
    "deleteUser -u carol",
    "listUser",
)
_ALL_BROKERS = (
    "createUser -u alice -p secret-of-alice -t Normal",
    "createAcl -s User:alice -r Topic:orders -a Pub -d Allow",
    "listUser",
    "listAcl",
    "deleteAcl -s User:alice",
    "deleteUser -u alice",
)
# Here the refusal names the field and what it may be.
_OTHER_REMARKS = (" -a Any ", " -i nowhere ")
_STACK = re.compile(r"^\s+at .*$|^\s*\.\.\. \d+ more$|^Caused by: ", re.MULTILINE)


def _talk(world: World, kind: str) -> list[str]:
    with secured(world, kind, ACL_2) as place, tools_keys(world, ROOT):
        where = ["-b", place.broker.address, "-n", place.ns]
        outputs = world.admin([[*command.split(" "), *where] for command in _COMMANDS])
        outputs += world.admin(
            [[*command.split(" "), "-c", "DefaultCluster", "-n", place.ns] for command in _ALL_BROKERS]
        )
        copied = [
            ["createUser", "-u", "dave", "-p", "secret-of-dave", "-t", "Normal", *where],
            ["createAcl", "-s", "User:dave", "-r", "Topic:t", "-a", "Pub", "-d", "Allow", *where],
            *(
                [*command.split(" "), "-f", place.broker.address, "-t", place.broker.address, "-n", place.ns]
                for command in ("copyUser -u dave", "copyAcl -s User:dave")
            ),
        ]
        return outputs + world.admin(copied)


def without_stacks(output: str) -> str:
    """What mqadmin said, without the traces of Java."""
    return _STACK.sub("", output)


def _comparable(output: str) -> list[str]:
    """What mqadmin said, without traces and without the column with the password."""
    for secret in (*USER_SECRETS, "secret-of-carol", "secret-of-dave", _secret(ROOT)):
        output = output.replace(secret, "null")
    return masked(without_stacks(output))


def mqadmin(world: World) -> None:
    """The commands for users and rules say here what they say at Apache's broker, but for passwords."""
    theirs, ours = _talk(world, "apache"), _talk(world, "ours")
    names = [
        *_COMMANDS,
        *(f"{command} -c" for command in _ALL_BROKERS),
        "createUser",
        "createAcl",
        "copyUser",
        "copyAcl",
    ]
    wrong = []
    for name, there, here in zip(names, theirs, ours, strict=True):
        check(all(secret not in here for secret in USER_SECRETS), f"mqadmin {name} shows a secret: {here}")
        if any(words in name for words in _OTHER_REMARKS):
            check("Exception" in there and "Exception" in here, f"mqadmin {name}: {there} / {here}")
            continue
        different = [
            line
            for line in difflib.unified_diff(_comparable(there), _comparable(here), lineterm="", n=0)
            if line[0] in "+-" and line[:3] not in ("+++", "---")
        ]
        if different:
            wrong.append(f"mqadmin {name}: " + " / ".join(different[:8]))
    check(not wrong, "; ".join(wrong))
    shutil.rmtree(world.folder / "conf", ignore_errors=True)


def copies(world: World) -> None:
    """With authRevealPasswords copyUser makes a user at another broker that has the same secret."""
    with (
        secured(world, "ours", {**ACL_2, "authRevealPasswords": "true"}) as one,
        secured(world, "ours", ACL_2) as other,
        tools_keys(world, ROOT),
    ):
        names = ["-n", one.ns]
        created = ["-u", "dave", "-p", "secret-of-dave", "-t", "Super"]
        said = world.admin(
            [
                ["createUser", *created, "-b", one.broker.address, *names],
                ["copyUser", "-u", "dave", "-f", one.broker.address, "-t", other.broker.address, *names],
                ["listUser", "-b", other.broker.address, *names],
            ]
        )
        check("dave" in said[-1], f"copyUser: {said}")
        check("secret-of-dave" not in said[-1], f"listUser shows a secret: {said[-1]}")
        asyncio.run(_signs(other, Credentials("dave", "secret-of-dave")))


async def _signs(place: Place, credentials: Credentials) -> None:
    """The broker of a place serves a super user with these keys."""
    client = RemotingClient(system_runtime(), identity=Identity(credentials))
    try:
        answer = await client.request(
            place.broker.address, Command(RequestCode.GET_BROKER_RUNTIME_INFO), 20_000
        )
    finally:
        await client.close()
    equal(answer.code, int(ResponseCode.SUCCESS), f"{credentials.access_key}: {answer.remark}")


CELLS: dict[str, Callable[[World], None]] = {
    "java 5.5.0, ours with ACL 2.0": java,
    "java 4.9.7, ours with ACL 2.0": java_old,
    "mqadmin of users and rules": mqadmin,
    "mqadmin copyUser between ours": copies,
}
