"""An authority, and a server certificate for this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from orbitmq.runtime.authority import make_authority, make_certificate

DAYS = 365
"""Long enough that no server warns about the certificate's end."""


@dataclass(frozen=True)
class Pair:
    """The PEM files of a certificate.

    Attributes:
        ca: the authority's certificate.
    """

    ca: Path
    cert: Path
    key: Path

    @property
    def server(self) -> dict[str, str]:
        """The settings with which a server uses TLS."""
        return {"tls.server.certPath": str(self.cert), "tls.server.keyPath": str(self.key)}


def made(folder: Path) -> Pair:
    """An authority and a certificate for 127.0.0.1, with elliptic-curve keys (P-256)."""
    folder.mkdir(parents=True, exist_ok=True)
    pair = Pair(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    now_ms = int(time.time() * 1000)
    authority = make_authority("bench", DAYS + 1, now_ms)
    server = make_certificate(authority, "server", ["127.0.0.1", "localhost"], DAYS, now_ms)
    pair.ca.write_bytes(authority.certificate)
    pair.cert.write_bytes(server.certificate)
    pair.key.write_bytes(server.key)
    return pair
