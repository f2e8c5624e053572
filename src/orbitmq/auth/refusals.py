"""Counts the gate's refusals, also those that it only observed, by user, right and address."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import Final

from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

# The most kinds of refusals that the broker's state lists. Further kinds are counted together.
MAX_KINDS: Final = 200
MAX_CHARACTERS: Final = 80
# The reasons for refusals that do not depend on the request's rights.
NO_KEYS: Final = "no keys"
WRONG_KEYS: Final = "wrong keys"
DISABLED: Final = "disabled"
UNKNOWN: Final = "unknown certificate"
OTHER_USER: Final = "certificate of another user"
_OF_KEYS: Final = frozenset({NO_KEYS, WRONG_KEYS, DISABLED, UNKNOWN, OTHER_USER})


@dataclass(frozen=True, slots=True)
class Refusal:
    """One kind of refusal.

    Attributes:
        user: the user that the requests named; empty without one.
        why: the reason, in a word or two.
        action: an action that would have been enough; empty if no rule was missing.
        resource: the resource of the missing rule, such as ``Topic:orders``; empty if no rule was missing.
        address: the peer's address.
    """

    user: str
    why: str
    action: str = ""
    resource: str = ""
    address: str = ""

    def plain(self, count: int) -> dict[str, str | int]:
        """The refusal for the broker's state. Its names, which any client may choose, are cut and cleaned."""
        return {
            "user": _shown(self.user),
            "why": self.why,
            "action": self.action,
            "resource": _shown(self.resource),
            "from": self.address,
            "count": count,
        }


class GateError(RemotingError):
    """A request that is not permitted."""

    def __init__(self, remark: str, refusal: Refusal) -> None:
        super().__init__(ResponseCode.NO_PERMISSION, remark)
        self.refusal = refusal

    @property
    def about_keys(self) -> bool:
        """Whether the refusal is about keys or a disabled user, not about a missing right."""
        return self.refusal.why in _OF_KEYS


class Refusals:
    """Counts refusals since the start.

    Attributes:
        others: the number of refusals of further kinds, after the first :data:`MAX_KINDS` kinds.
    """

    def __init__(self) -> None:
        self._counts: Counter[Refusal] = Counter()
        self.others = 0

    def note(self, refusal: Refusal) -> None:
        """Count a refusal."""
        if refusal in self._counts or len(self._counts) < MAX_KINDS:
            self._counts[refusal] += 1
        else:
            self.others += 1

    def plain(self) -> list[dict[str, str | int]]:
        """The kinds with their counts, the most frequent ones first."""
        return [refusal.plain(count) for refusal, count in self._counts.most_common()]

    def lines(self) -> dict[str, str]:
        """The counts, as lines of a server's state."""
        return {"refusals": json.dumps(self.plain()), "otherRefusals": str(self.others)}


def _shown(text: str) -> str:
    kept = "".join(each if each.isprintable() else "?" for each in text[:MAX_CHARACTERS])
    return kept if len(text) <= MAX_CHARACTERS else f"{kept}..."
