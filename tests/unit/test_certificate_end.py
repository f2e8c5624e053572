"""The end of a certificate's validity, as ``cryptography`` reads it, and without it."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.runtime.certificate_end import ends_at_ms

KEY = ec.generate_private_key(ec.SECP256R1())
TIMES = st.datetimes(datetime(1951, 1, 1), datetime(9999, 12, 31, 23, 59, 59))


def certificate(ends: datetime, *, names: int = 1, serial: int = 7) -> bytes:
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, f"unit {n} " * 6) for n in range(names)]
    )
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(KEY.public_key())
        .serial_number(serial)
        .not_valid_before(ends - timedelta(days=1))
        .not_valid_after(ends)
        .sign(KEY, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


@pytest.mark.behaviour("MX-18")
@settings(max_examples=60)
@given(ends=TIMES, names=st.sampled_from([0, 1, 3, 30]), serial=st.integers(1, (1 << 159) - 1))
def test_the_end_is_what_cryptography_reads(ends: datetime, names: int, serial: int) -> None:
    pem = certificate(ends, names=names, serial=serial)
    wanted = x509.load_pem_x509_certificate(pem).not_valid_after_utc
    assert ends_at_ms(b"a comment\n" + pem) == int(wanted.timestamp() * 1000)


@pytest.mark.behaviour("MX-18")
def test_the_first_certificate_of_a_chain_counts() -> None:
    first, second = datetime(2030, 5, 6, 7, 8, 9), datetime(2050, 1, 1)
    key = KEY.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    text = key + certificate(first) + certificate(second)
    assert ends_at_ms(text) == int(first.replace(tzinfo=UTC).timestamp() * 1000)


@settings(max_examples=60)
@given(keep=st.floats(0, 0.99), noise=st.binary(max_size=40))
def test_what_is_no_certificate_is_refused(keep: float, noise: bytes) -> None:
    whole = certificate(datetime(2030, 1, 1))
    body = whole.splitlines(keepends=True)[1:-1]
    cut = b"".join(body[: int(len(body) * keep / 3)])
    begin, end = b"-----BEGIN CERTIFICATE-----\n", b"-----END CERTIFICATE-----\n"
    for text in (noise, begin + noise, begin + cut + end):
        with pytest.raises(ValueError):  # the text may be the library's
            ends_at_ms(text)


def test_cryptography_is_not_loaded_for_it() -> None:
    code = "import sys, orbitmq.runtime.server_tls; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
