"""Protocol versions: a command's ``version`` is an index into Java's list of releases (``MQVersion``)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

# From these versions on a peer ...
V3_0_11: Final = 37  # registers with a RegisterBrokerBody
V3_4_9: Final = 121  # sends maxReconsumeTimes in CONSUMER_SEND_MSG_BACK
V4_9_3: Final = 399  # applies the group's limit to a message sent back without maxReconsumeTimes
V4_9_4: Final = 401  # reads routes with quoted numeric keys
V5_0_0: Final = 413  # registers static topics in the compressed form

_V3 = "v3_x"
_V4_0_0 = V5_0_0 - 10 * 2 * 10


def name_of(version: int) -> str:
    """The release of a version in lower case, such as v5_3_3; ``_V3`` before 4.0.0. Each release has two
    numbers: its snapshot's and its own."""
    if version < _V4_0_0 - 1:
        return _V3
    release, final = divmod(version - _V4_0_0 + 1, 2)
    name = f"v{4 + release // 100}_{release // 10 % 10}_{release % 10}"
    return name if final else f"{name}_snapshot"


@lru_cache(maxsize=256)
def number_of(release: str) -> int:
    """The version of a release such as 5.2.0; 0 if Java's list has no place for its digits."""
    parts = release.split(".")
    if len(parts) != 3 or not all(len(part) == 1 and part in "0123456789" for part in parts):
        return 0
    major, minor, patch = map(int, parts)
    return _V4_0_0 + 2 * ((major - 4) * 100 + minor * 10 + patch) if major >= 4 else 0
