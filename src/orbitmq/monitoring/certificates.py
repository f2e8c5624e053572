"""When the certificates of a server end."""

from __future__ import annotations

from orbitmq.monitoring.exposition import Exposition


def write_end(text: Exposition, ends_ms: int | None, path: str) -> None:
    """Add the end of a certificate.

    Args:
        ends_ms: milliseconds since the epoch; ``None``: there is no certificate, or its end is not known.
        path: its file; empty: the server made it.
    """
    family = text.family(
        "orbitmq_certificate_end_seconds", "gauge", "When a certificate of this server ends, since 1970"
    )
    if ends_ms is not None:
        family.add(ends_ms / 1000, certificate=path)
