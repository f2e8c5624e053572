"""A certificate that a server makes for itself, with the library ``cryptography``."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAYS = 3650
# A certificate is valid from this many days before now: a client whose clock is behind would refuse one that
# begins now.
_DAYS_BEFORE = 1


def self_signed(names: Iterable[str], now_ms: int) -> bytes:
    """A new key (elliptic, P-256) and its certificate for ten years, in one PEM text.

    Args:
        names: host names and IP addresses that it is for; the first one is its subject.
    """
    every = list(dict.fromkeys(names))
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, every[0][:64])])
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=_DAYS_BEFORE))
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName([general_name(name) for name in every]), critical=False)
        # Clients that verify use the certificate as their authority.
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)


def general_name(name: str) -> x509.GeneralName:
    """A host name or an IP address, as certificates have it."""
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
