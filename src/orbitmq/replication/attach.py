"""What replication adds to a broker."""

from __future__ import annotations

from orbitmq.broker.extension import Attachment, Host


def attach(host: Host) -> Attachment:
    """The extension of a broker that may have replicas."""
    del host
    return Attachment()
