"""Errors of a peer on the link."""

from __future__ import annotations

from orbitmq.errors import OrbitError


class LinkError(OrbitError):
    """The peer sent something impossible, or is not a broker of this name. The link is closed."""


class RefusedError(LinkError):
    """A follower is not of this group, or cannot be served; it reconnects until an operator helps."""


class UnprovenError(RefusedError):
    """A follower does not prove that it has the keys of a user of this broker.

    Attributes:
        claimed: the user whose keys the follower claims to have.
    """

    def __init__(self, text: str, claimed: str) -> None:
        super().__init__(text)
        self.claimed = claimed


class OwnEndCountsError(LinkError):
    """The log to be copied differs from this broker's log, which is the one to keep (PO-26)."""
