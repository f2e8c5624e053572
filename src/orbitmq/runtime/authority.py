"""A certificate authority in two files, and the certificates that it signs, with ``cryptography``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from orbitmq.errors import ValidationError
from orbitmq.runtime.certificates import general_name

# A certificate is valid from this many days before now: a client whose clock is behind would refuse one that
# begins now.
_DAYS_BEFORE: Final = 1


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, PEM each."""

    certificate: bytes
    key: bytes


def make_authority(name: str, days: int, now_ms: int) -> Pair:
    """A new authority; its key is for elliptic curves (P-256)."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name)
    builder = (
        _builder(subject, subject, key.public_key(), days, now_ms)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
    )
    return _pair(builder.sign(key, hashes.SHA256()), key)


def make_certificate(authority: Pair, name: str, hosts: Iterable[str], days: int, now_ms: int) -> Pair:
    """A new certificate for servers and clients.

    Args:
        name: its subject (CN).
        hosts: host names and IP addresses that it is for.

    Raises:
        ValidationError: the authority cannot be read, or is not one.
    """
    issuer, issuer_key = _read(authority)
    if issuer.not_valid_after_utc.timestamp() * 1000 <= now_ms + days * 86_400_000:
        ends = issuer.not_valid_after_utc.date().isoformat()
        raise ValidationError(f"the authority ends on {ends}, before the certificate would: give fewer days")
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(_subject(name), issuer.subject, key.public_key(), days, now_ms)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
            critical=False,
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    )
    names = [general_name(host) for host in dict.fromkeys(hosts)]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def _read(authority: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate(authority.certificate)
        key: PrivateKeyTypes = serialization.load_pem_private_key(authority.key, None)
    except (ValueError, TypeError) as error:
        raise ValidationError(
            f"these are not the certificate and the key, without a password, of an authority: {error}"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or certificate.public_key() != key.public_key():
        raise ValidationError("the authority's certificate and key do not belong together")
    try:
        is_authority = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        is_authority = False
    if not is_authority:
        raise ValidationError("the certificate is not one of an authority")
    return certificate, key


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int, now_ms: int
) -> x509.CertificateBuilder:
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=_DAYS_BEFORE))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), private)
