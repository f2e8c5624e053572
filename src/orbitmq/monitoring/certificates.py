"""The metric of when the certificates of a server expire."""

from __future__ import annotations

from orbitmq.monitoring.exposition import Exposition


def write_end(text: Exposition, ends_ms: int | None, path: str) -> None:
    """Add the time at which a certificate expires.

    Args:
        ends_ms: milliseconds since the epoch; ``None`` if there is no certificate, or its end is unknown.
        path: the certificate's file; empty if the server made the certificate.
    """
    family = text.family(
        "orbitmq_certificate_end_seconds", "gauge", "When a certificate of this server ends, since 1970"
    )
    if ends_ms is not None:
        family.add(ends_ms / 1000, certificate=path)
