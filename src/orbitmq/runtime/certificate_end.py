"""When a certificate ends, read from its bytes (RFC 5280): loading ``cryptography`` for it takes 40 ms.

OpenSSL has accepted a certificate before it is read here. The fields before the end of validity are skipped
by their lengths.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import Final

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_VERSION: Final = 0xA0
_TWO_DIGITS_OF_THE_YEAR: Final = 0x17
# Serial number, algorithm and issuer lie between the version and the time that the certificate is valid for.
_BEFORE_VALIDITY: Final = 3


def ends_at_ms(pem: bytes) -> int:
    """When the first certificate of a PEM text ends, in milliseconds since the epoch.

    Raises:
        ValueError: the text has no certificate, or a damaged one.
    """
    text = pem.decode("latin-1")
    begin = text.index(_BEGIN)
    der = ssl.PEM_cert_to_DER_cert(text[begin : text.index(_END, begin) + len(_END)])
    try:
        return _ends_at_ms(der)
    except IndexError as error:
        raise ValueError("the certificate is cut") from error


def _ends_at_ms(der: bytes) -> int:
    _, at, _ = _part(der, 0)
    _, at, _ = _part(der, at)  # the part that is signed
    kind, _, end = _part(der, at)
    if kind == _VERSION:
        at = end
    for _ in range(_BEFORE_VALIDITY):
        _, _, at = _part(der, at)
    _, at, _ = _part(der, at)
    _, _, at = _part(der, at)  # the time when the certificate begins
    kind, start, end = _part(der, at)
    digits = der[start:end].decode("ascii").removesuffix("Z")
    if kind == _TWO_DIGITS_OF_THE_YEAR:
        digits = ("20" if digits < "5" else "19") + digits
    if len(digits) != len("20261130120000"):
        raise ValueError(f"the certificate ends at {digits!r}")
    year, (month, day, hour, minute, second) = int(digits[:4]), _pairs(digits[4:])
    return int(datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp() * 1000)


def _pairs(digits: str) -> list[int]:
    return [int(digits[at : at + 2]) for at in range(0, len(digits), 2)]


def _part(der: bytes, at: int) -> tuple[int, int, int]:
    """The kind of the part that begins at ``at``, and where its content starts and ends."""
    kind, length, start = der[at], der[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, start = int.from_bytes(der[start : start + size]), start + size
    if start + length > len(der):
        raise ValueError("the certificate is cut")
    return kind, start, start + length
