"""Protocol versions: the ``version`` of a command is a place in Java's list of releases (``MQVersion``)."""

from __future__ import annotations

from typing import Final

_FIRST = "SNAPSHOT ALPHA1 BETA1 BETA2 BETA3 BETA4 BETA5 BETA6_SNAPSHOT BETA6 BETA7_SNAPSHOT BETA7 "
_FIRST += "BETA8_SNAPSHOT BETA8 BETA9_SNAPSHOT BETA9 FINAL"


def _releases() -> list[str]:
    """Versions after 3.0.0: 3.0.1 to 3.0.15, then ten a line; 3.3 to 3.9 begin with their .1 release."""
    found = [f"3_0_{patch}" for patch in range(1, 16)]
    for line in range(31, 60):
        first = 1 if 33 <= line <= 39 else 0
        found += [f"{line // 10}_{line % 10}_{patch}" for patch in range(first, 10)]
    return found


VERSION_NAMES: Final = (
    *(f"V3_0_0_{name}" for name in _FIRST.split()),
    *(f"V{release}{state}" for release in _releases() for state in ("_SNAPSHOT", "")),
    "HIGHER_VERSION",
)

# From these versions on a peer ...
V3_0_11: Final = 37  # registers with a RegisterBrokerBody
V3_4_9: Final = 121  # has maxReconsumeTimes of its own in CONSUMER_SEND_MSG_BACK
V4_9_0: Final = 393  # reads topicSysFlag of a route, before it topicSynFlag
V4_9_3: Final = 399  # takes what comes back without a limit of its own: the group's counts
V4_9_4: Final = 401  # reads routes with quoted numeric keys
V5_0_0: Final = 413  # registers static topics in the compressed form
V5_3_1: Final = 475  # understands GO_AWAY when it is newer than this


def version_name(version: int) -> str:
    """The release name of a command's ``version``; beyond the list it is ``HIGHER_VERSION``."""
    if version < 0:
        return f"UNKNOWN_{version}"
    return VERSION_NAMES[min(version, len(VERSION_NAMES) - 1)]
