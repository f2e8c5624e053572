"""Certificates for tests of TLS, made with the library ``cryptography``."""

from __future__ import annotations

import ipaddress
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


@dataclass
class Made:
    """A certificate and its key, in files; ``cert`` is PEM of the certificate, ``key`` of the key."""

    cert: str
    key: str
    made: x509.Certificate
    private: ec.EllipticCurvePrivateKey


class Authority:
    """An authority of its own, and what it signs.

    Args:
        folder: where the files go.
    """

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.own = self._make(name, [], None, -DAY, 365 * DAY)

    @property
    def ca(self) -> str:
        """The file with the authority's certificate."""
        return self.own.cert

    def issue(
        self,
        name: str,
        hosts: Sequence[str] = ("127.0.0.1", "localhost"),
        *,
        since: timedelta = -DAY,
        until: timedelta = 365 * DAY,
        password: bytes | None = None,
    ) -> Made:
        """A certificate for these hosts, valid from and until that long from now."""
        return self._make(name, hosts, self.own, since, until, password)

    def _make(
        self,
        name: str,
        hosts: Sequence[str],
        issuer: Made | None,
        since: timedelta,
        until: timedelta,
        password: bytes | None = None,
    ) -> Made:
        private = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer.made.subject if issuer else subject)
            .public_key(private.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + since)
            .not_valid_after(now + until)
            .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False
            )
        made = builder.sign(issuer.private if issuer else private, hashes.SHA256())
        cert, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        key.write_bytes(
            private.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption(),
            )
        )
        return Made(str(cert), str(key), made, private)


def server_context(made: Made, *, trusts: str | None = None) -> ssl.SSLContext:
    """The context of a server; with ``trusts`` it asks clients for a certificate of that authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.cert, made.key)
    if trusts is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(trusts)
    return context


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
