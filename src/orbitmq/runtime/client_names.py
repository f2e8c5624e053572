"""The user that a client's certificate names: which part of the certificate, and when it names none.

Only a certificate that was verified in the handshake is looked at: a server that requires one has no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import ssl

# The kinds of alternative names that may be a user's; addresses and directory names are none.
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
        user: empty: it names none.
        problem: why it names none; empty: it does, or nobody looks at certificates here.
    """

    user: str = ""
    problem: str = ""


NO_NAME: Final = CertificateName()


def name_in(session: ssl.SSLObject | None, part: NamePart) -> CertificateName:
    """The user that the certificate of the other side names.

    Args:
        session: of a finished handshake; None: the connection has no TLS.
    """
    if session is None or part is NamePart.OFF:
        return NO_NAME
    return name_of(session.getpeercert() or {}, part)


def name_of(certificate: dict[str, Any], part: NamePart) -> CertificateName:
    """The user that a certificate names, in the form of :meth:`ssl.SSLObject.getpeercert`.

    A name is taken as it stands. Of several names none is taken: which one counts would be a guess.
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
