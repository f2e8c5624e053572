"""The body of OrbitMQ's requests and answers about quotas, which RocketMQ does not have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orbitmq.wire.bodies.base import Body

__all__ = ["MAX_RATE", "Quota"]

# The highest limit, in bytes or messages a second: more than any machine carries.
MAX_RATE: Final = 2**50


@dataclass(slots=True)
class Quota(Body):
    """The limits of a user, an address or a topic at one broker; 0: no limit.

    Attributes:
        kind: ``user``, ``address`` or ``topic``.
        bytes_in, messages_in: the most bytes and messages a second from clients.
        bytes_out, messages_out: the most bytes and messages a second to clients.
        pauses_in, pauses_out: in answers, how often reading from a client paused because of this quota.
    """

    kind: str = ""
    name: str = ""
    bytes_in: int = 0
    messages_in: int = 0
    bytes_out: int = 0
    messages_out: int = 0
    pauses_in: int = 0
    pauses_out: int = 0

    @property
    def limits(self) -> tuple[int, int, int, int]:
        """The four limits, in the order of the fields."""
        return self.bytes_in, self.messages_in, self.bytes_out, self.messages_out
