"""Errors of a peer on the link."""

from __future__ import annotations

from orbitmq.errors import OrbitError


class LinkError(OrbitError):
    """The other end of a link sent something impossible, or is no broker of ours. The link is closed."""


class RefusedError(LinkError):
    """A follower is not of this group, or cannot go on: it comes again with the same until somebody helps."""


class OwnEndCountsError(LinkError):
    """The log that is to be copied differs from ours, and ours counts (PO-26)."""
