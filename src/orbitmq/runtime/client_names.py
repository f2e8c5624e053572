"""Finds the user that a client's certificate names: which part counts, and when it names none.

Only certificates that were verified in the handshake are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import ssl

# The kinds of alternative names that may name a user; addresses and directory names do not.
_KINDS: Final = ("DNS", "URI", "email")


class NamePart(Enum):
    """The part of a client's certificate that is the name of a user."""

    OFF = "off"
    SAN = "san"
    CN = "cn"


@dataclass(frozen=True, slots=True)
class CertificateName:
    """The user of a certificate.

    Attributes:
        user: the user's name; empty: the certificate names none.
        problem: why the certificate names none; empty: it names one, or this server does not read names.
    """

    user: str = ""
    problem: str = ""


NO_NAME: Final = CertificateName()


def name_in(session: ssl.SSLObject | None, part: NamePart) -> CertificateName:
    """The user that the certificate of the other side names.

    Args:
        session: the TLS session after its handshake; None: the connection has no TLS.
    """
    if session is None or part is NamePart.OFF:
        return NO_NAME
    return name_of(session.getpeercert() or {}, part)


def name_of(certificate: dict[str, Any], part: NamePart) -> CertificateName:
    """The user that a certificate names, in the form of :meth:`ssl.SSLObject.getpeercert`.

    A name is used unchanged. If there are several names, none is used: which one counts would be a guess.
    """
    if part is NamePart.CN:
        what = "common name (CN)"
        subject = certificate.get("subject", ())
        found = [value for names in subject for key, value in names if key == "commonName"]
    else:
        what = "alternative name (SAN) that is a DNS name, URI or email address"
        found = [value for key, value in certificate.get("subjectAltName", ()) if key in _KINDS]
    if len(found) == 1 and found[0]:
        return CertificateName(str(found[0]))
    number = "no" if not found else "an empty" if len(found) == 1 else f"more than one ({len(found)})"
    return CertificateName(problem=f"it has {number} {what}")
