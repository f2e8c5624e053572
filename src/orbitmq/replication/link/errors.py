"""Errors of a peer on the link."""

from __future__ import annotations

from orbitmq.errors import OrbitError


class LinkError(OrbitError):
    """The peer sent something impossible, or is not a broker of this name. The link is closed."""


class RefusedError(LinkError):
    """A follower is not of this group, or cannot be served; it reconnects until an operator helps."""


class UnprovenError(RefusedError):
    """A follower does not prove that it is a broker of ours.

    Attributes:
        claimed: the user whose keys it says it has.
    """

    def __init__(self, text: str, claimed: str) -> None:
        super().__init__(text)
        self.claimed = claimed


class OwnEndCountsError(LinkError):
    """The log to be copied differs from ours, and ours is the one to keep (PO-26)."""
