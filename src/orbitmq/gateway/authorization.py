"""The header ``authorization``: the access key of a client, and the proof that it has the secret. Pure.

    MQv2-HMAC-SHA1 Credential=<access key>[/...], SignedHeaders=x-mq-date-time, Signature=<hex digits>

The signature is the HMAC-SHA1 of the header x-mq-date-time, and covers nothing else. That time ends in Z, but
Java's and Python's clients write their local time: a server that refuses old times has to allow 14 hours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orbitmq.gateway.status import Code, RefusalError

HEADER: Final = "authorization"
DATE_TIME: Final = "x-mq-date-time"
SESSION_TOKEN: Final = "x-mq-session-token"  # noqa: S105 - the name of a header
ALGORITHM: Final = "MQv2-HMAC-SHA1"
MAX_HEADER: Final = 2048  # characters
_SIGNATURE_BYTES: Final = 20


@dataclass(frozen=True, slots=True)
class Authorization:
    """The access key and signature of a call, unchecked.

    Attributes:
        access_key: the user's name; may be empty, as Python's client always sends the header.
        date_time: the signed text, as the client wrote it.
        session_token: empty when there is none.
    """

    access_key: str
    signature: bytes
    date_time: str
    session_token: str


def authorization(metadata: Mapping[str, str]) -> Authorization | None:
    """The authorization in a call's headers; None without the header.

    Raises:
        RefusalError: UNAUTHORIZED, the header cannot be read.
    """
    text = metadata.get(HEADER, "").strip()
    if not text:
        return None
    if len(text) > MAX_HEADER:
        raise _broken(f"it has {len(text)} characters, limit {MAX_HEADER}")
    algorithm, _, rest = text.partition(" ")
    if algorithm != ALGORITHM:
        raise _broken(f"it begins with {algorithm[:32]!r}, not with {ALGORITHM}")
    parts = {}
    for part in rest.split(","):
        name, equals, value = part.strip().partition("=")
        if not equals:
            raise _broken(f"{part.strip()[:32]!r} is no name=value")
        if name in parts:
            raise _broken(f"{name[:32]} is there twice")
        parts[name] = value
    for name in ("Credential", "SignedHeaders", "Signature"):
        if name not in parts:
            raise _broken(f"it has no {name}")
    if parts["SignedHeaders"].lower() != DATE_TIME:
        raise _broken(f"SignedHeaders is {parts['SignedHeaders'][:64]!r}, not {DATE_TIME}")
    date_time = metadata.get(DATE_TIME, "")
    if not date_time:
        raise _broken(f"the header {DATE_TIME}, which it signs, is missing")
    return Authorization(
        parts["Credential"].partition("/")[0],
        _signature(parts["Signature"]),
        date_time,
        metadata.get(SESSION_TOKEN, ""),
    )


def _signature(text: str) -> bytes:
    try:
        signature = bytes.fromhex(text) if text.isalnum() else b""
    except ValueError:
        signature = b""
    if len(signature) != _SIGNATURE_BYTES:
        raise _broken(f"Signature is {text[:64]!r}, not {2 * _SIGNATURE_BYTES} hexadecimal digits")
    return signature


def _broken(why: str) -> RefusalError:
    return RefusalError(Code.UNAUTHORIZED, f"the header {HEADER}: {why}")
