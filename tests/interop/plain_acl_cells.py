"""ACL 1.0: Apache's clients and mqadmin of 4.9.7 at our broker; ``orbitmq mqadmin`` at Apache's of 4.9.7."""

from __future__ import annotations

import asyncio
import difflib
import io
import os
import re
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout

from tests.interop.access_cells import exchanged, keys_of, tools_keys, without_stacks
from tests.interop.admin_cells import masked
from tests.interop.java_cells import expected, same_messages
from tests.interop.secured_cells import APP, OPEN, ROOT, WRONG, make_topics, secured
from tests.interop.world import Place, World, check

from orbitmq.cli.main import main

ACL_1 = {"aclEnable": "true"}
COUNT = 20
SECRETS = ("root-secret-1", "app-secret-1", "new-secret-1", "new-secret-2")


def java(world: World) -> None:
    """Clients of 4.9.7 with right and wrong keys, at accounts of a file."""
    with secured(world, "ours", ACL_1) as place, world.old_clients():
        asyncio.run(make_topics(place))
        exchanged(world, place, pops=False)


def java_brief(world: World) -> None:
    """A client of 4.9.7 sends and receives with right keys; with a wrong secret it is refused."""
    with secured(world, "ours", ACL_1) as place, world.old_clients():
        asyncio.run(make_topics(place))
        options = {"ns": place.ns, "topic": OPEN, **keys_of(APP)}
        world.facts("Send", how="sync", count=COUNT, **options)
        facts = world.facts("Receive", group=world.fresh("java_group"), count=COUNT, **options)
        same_messages(facts, expected("sync", COUNT))
        options |= keys_of(WRONG)
        [fact] = world.facts("Send", how="async", count=1, refused=1, **options)
        check("check signature failed" in fact.get("error", ""), f"a send with a wrong secret: {fact}")


# FILE stands for the path of plain_acl.yml. The right of the last but one is unknown, its secret too short.
_COMMANDS = (
    "getAclConfig",
    "updateAclConfig -a newuser1 -s new-secret-1 -i DENY -u SUB -t a=PUB|SUB,b=SUB -g g=SUB -w 192.168.0.*",
    "getAclConfig",
    "updateAclConfig -a newuser1 -s new-secret-2 -m true -t c=DENY",
    "updateAclConfig -a newuser2 -s new-secret-2",
    "getAclConfig",
    "updateAclConfig -a newuser3 -s short",
    "updateAclConfig -a newuser3 -s new-secret-1 -t orders",
    "updateAclConfig -a newuser3 -s new-secret-1 -g orders=ANY",
    "clusterAclConfigVersion",
    "updateGlobalWhiteAddr -g 10.10.103.*,192.168.0.* -p FILE",
    "updateGlobalWhiteAddr -g 10.10.104.* -p FILE.other.yml",
    "updateGlobalWhiteAddr -g 10.10.104.*",
    "getAclConfig",
    "deleteAccessConfig -a newuser1",
    "deleteAccessConfig -a newuser2",
    "deleteAccessConfig -a nobodyatall",
    "getAclConfig",
    "clusterAclConfigVersion",
)


Run = Callable[[World, list[list[str]]], list[str]]


def _talk(world: World, kind: str, run: Run) -> list[str]:
    """What a program that runs mqadmin's commands prints at a broker of that kind."""
    with secured(world, kind, ACL_1) as place, world.old_clients(), tools_keys(world, ROOT):
        said = []
        # Apache's broker remembers accounts that were deleted, and sometimes makes none of their names again.
        for name, where in (
            ("newuser", ["-b", place.broker.address]),
            ("teamuser", ["-c", "DefaultCluster"]),
        ):
            told = [command.replace("newuser", name) for command in _COMMANDS]
            commands = [command.replace("FILE", _file(place)).split(" ") for command in told]
            said += run(world, [[*command, *where, "-n", place.ns] for command in commands])
        return said


def _by_apache(world: World, commands: list[list[str]]) -> list[str]:
    return world.admin(commands)


def _by_us(world: World, commands: list[list[str]]) -> list[str]:
    said = []
    os.environ["ORBITMQ_CREDENTIALS_FILE"] = str(world.folder / "conf" / "tools.yml")
    try:
        for command in commands:
            printed = io.StringIO()
            with redirect_stdout(printed), redirect_stderr(printed):
                main(["mqadmin", *command])
            said.append(printed.getvalue())
    finally:
        del os.environ["ORBITMQ_CREDENTIALS_FILE"]
    return said


def _file(place: Place) -> str:
    return str(place.broker.log.parent / "conf" / "plain_acl.yml")


def _comparable(output: str) -> list[str]:
    """What mqadmin said, without traces, folders, secrets, and the places of Java's objects."""
    output = re.sub(r"(\S+\.)?PlainAccessConfig(@[0-9a-f]+|\{.*\})", "PlainAccessConfig", output)
    output = re.sub(r"(secretKey *[:=]) *[^\s,]*", r"\1", without_stacks(output))
    return masked(re.sub(r"/\S*/secured_\d+", "FOLDER", output))


_REFUSED = re.compile(r"CODE: (\d+) +DESC: (.*)")


def _differences(there: str, here: str) -> list[str]:
    """Where two outputs differ. A refusal of ours is one line with the code and the broker's words."""
    refused = _REFUSED.search(there)
    if refused is not None and here.startswith("orbitmq mqadmin "):
        return [words for words in (f"code {refused[1]}", refused[2].strip()) if words not in here]
    return [
        line
        for line in difflib.unified_diff(_comparable(there), _comparable(here), lineterm="", n=0)
        if line[0] in "+-" and line[:3] not in ("+++", "---")
    ]


def _same(theirs: list[str], ours: list[str]) -> None:
    names = [*(f"{command} -b" for command in _COMMANDS), *(f"{command} -c" for command in _COMMANDS)]
    wrong = []
    for name, there, here in zip(names, theirs, ours, strict=True):
        if not name.startswith("updateAclConfig"):
            check(all(secret not in here for secret in SECRETS), f"mqadmin {name} shows a secret: {here}")
        if different := _differences(there, here):
            wrong.append(f"mqadmin {name}: " + " / ".join(different[:8]))
    check(not wrong, "; ".join(wrong))


def mqadmin(world: World) -> None:
    """Apache's commands about accounts say here what they say at Apache's broker, but for secrets."""
    _same(_talk(world, "apache 4.9", _by_apache), _talk(world, "ours", _by_apache))


def own_mqadmin(world: World) -> None:
    """Our commands about accounts say at Apache's broker what Apache's say there, but for secrets."""
    _same(_talk(world, "apache 4.9", _by_apache), _talk(world, "apache 4.9", _by_us))


CELLS: dict[str, Callable[[World], None]] = {
    "java 4.9.7, ours with ACL 1.0": java,
    "java 4.9.7, ours with ACL 1.0, briefly": java_brief,
    "mqadmin 4.9.7 of accounts": mqadmin,
    "our mqadmin of accounts, 4.9.7": own_mqadmin,
}
