"""ACL 1.0 at our brokers: Apache's clients of 4.9.7, and their mqadmin beside Apache's broker of 4.9.7."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable

from tests.interop.access_cells import exchanged, tools_keys, without_stacks
from tests.interop.admin_cells import masked
from tests.interop.secured_cells import CLOSED, OPEN, ROOT, secured
from tests.interop.world import Place, World, check

ACL_1 = {"aclEnable": "true"}
SECRETS = ("root-secret-1", "app-secret-1", "new-secret-1", "new-secret-2")


def java(world: World) -> None:
    """Clients of 4.9.7 with right and wrong keys, at accounts of a file."""
    with secured(world, "ours", ACL_1) as place, world.old_clients():
        make = [["updateTopic", "-b", place.broker.address, "-t", topic] for topic in (OPEN, CLOSED)]
        with tools_keys(world, ROOT):
            for said in world.admin(make):
                check("success" in said, f"mqadmin updateTopic: {said[:300]}")
        exchanged(world, place, pops=False)


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


def _talk(world: World, kind: str) -> list[str]:
    with secured(world, kind, ACL_1) as place, world.old_clients(), tools_keys(world, ROOT):
        said = []
        # Apache's broker remembers accounts that were deleted, and sometimes makes none of their names again.
        for name, where in (
            ("newuser", ["-b", place.broker.address]),
            ("teamuser", ["-c", "DefaultCluster", "-n", place.ns]),
        ):
            told = [command.replace("newuser", name) for command in _COMMANDS]
            commands = [command.replace("FILE", _file(place)).split(" ") for command in told]
            said += world.admin([[*command, *where] for command in commands])
        return said


def _file(place: Place) -> str:
    return str(place.broker.log.parent / "conf" / "plain_acl.yml")


def _comparable(output: str) -> list[str]:
    """What mqadmin said, without traces, folders, secrets, and the places of Java's objects."""
    output = re.sub(r"PlainAccessConfig@[0-9a-f]+", "PlainAccessConfig", output)
    output = re.sub(r"(secretKey *[:=]) *[^\s,]*", r"\1", without_stacks(output))
    return masked(re.sub(r"/\S*/secured_\d+", "FOLDER", output))


def mqadmin(world: World) -> None:
    """The commands about accounts say here what they say at Apache's broker, but for secrets."""
    theirs, ours = _talk(world, "apache 4.9"), _talk(world, "ours")
    names = [*(f"{command} -b" for command in _COMMANDS), *(f"{command} -c" for command in _COMMANDS)]
    wrong = []
    for name, there, here in zip(names, theirs, ours, strict=True):
        if not name.startswith("updateAclConfig"):
            check(all(secret not in here for secret in SECRETS), f"mqadmin {name} shows a secret: {here}")
        different = [
            line
            for line in difflib.unified_diff(_comparable(there), _comparable(here), lineterm="", n=0)
            if line[0] in "+-" and line[:3] not in ("+++", "---")
        ]
        if different:
            wrong.append(f"mqadmin {name}: " + " / ".join(different[:8]))
    check(not wrong, "; ".join(wrong))


CELLS: dict[str, Callable[[World], None]] = {
    "java 4.9.7, ours with ACL 1.0": java,
    "mqadmin 4.9.7 of accounts": mqadmin,
}
