"""An authority, and a certificate of a server on this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from orbitmq.runtime.authority import make_authority, make_certificate

DAYS = 365
"""As long as a certificate that no server warns of."""


@dataclass(frozen=True)
class Pair:
    """Files in PEM.

    Attributes:
        ca: the authority's certificate.
    """

    ca: Path
    cert: Path
    key: Path

    @property
    def server(self) -> dict[str, str]:
        """The settings with which a server speaks TLS."""
        return {"tls.server.certPath": str(self.cert), "tls.server.keyPath": str(self.key)}


def made(folder: Path) -> Pair:
    """An authority and a certificate for 127.0.0.1, with keys for elliptic curves (P-256)."""
    folder.mkdir(parents=True, exist_ok=True)
    pair = Pair(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    now_ms = int(time.time() * 1000)
    authority = make_authority("bench", DAYS + 1, now_ms)
    server = make_certificate(authority, "server", ["127.0.0.1", "localhost"], DAYS, now_ms)
    pair.ca.write_bytes(authority.certificate)
    pair.cert.write_bytes(server.certificate)
    pair.key.write_bytes(server.key)
    return pair
