"""The client of a call, as the call's headers and its connection name it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from sys import intern
from typing import Final, TypeAlias

from orbitmq.gateway.authorization import Authorization, authorization
from orbitmq.gateway.call import Call
from orbitmq.gateway.status import Code, RefusalError
from orbitmq.runtime.client_names import NO_NAME, CertificateName
from orbitmq.wire.command import Language

CLIENT_ID: Final = "x-mq-client-id"
MAX_CLIENT_ID = 255  # characters
MAX_VERSION = 64
_LANGUAGES: Final[Mapping[str, Language]] = {
    "JAVA": Language.JAVA,
    "CPP": Language.CPP,
    "DOT_NET": Language.DOTNET,
    "DOTNET": Language.DOTNET,
    "GO": Language.GO,
    "GOLANG": Language.GO,
    "RUST": Language.RUST,
    "PYTHON": Language.PYTHON,
    "PHP": Language.PHP,
    "NODE_JS": Language.NODE_JS,
    "RUBY": Language.RUBY,
}


@dataclass(frozen=True, slots=True)
class Caller:
    """The client of a call.

    Attributes:
        version: the version of the client's library, from the client's header.
        address: host:port of its side of the connection.
        user: the access key, else the user of its certificate; empty: the client has neither.
        authorization: the header as sent, for the check; None without one, or if keys are not checked.
        certificate: the user that the client's certificate names.
    """

    client_id: str
    language: Language
    version: str
    address: str
    user: str
    authorization: Authorization | None
    certificate: CertificateName = NO_NAME

    @property
    def keys(self) -> str | None:
        """The access key; None without one. Clients without keys send the header with an empty key."""
        return (self.authorization and self.authorization.access_key) or None


# Judges a call by its client, its method and its request message; raises RefusalError.
Check: TypeAlias = Callable[[Caller, str, object], None]
Count: TypeAlias = Callable[[Call, Caller, object], None]


def everybody(_caller: Caller, _method: str, _request: object) -> None:
    """A check that refuses no call."""


class Callers:
    """Finds the client of each call, and refuses the clients that the check refuses.

    Args:
        seen: called with the id of the client of each call.
        check: raises for a client that may not make a call.
        count: called for each call that is not refused, with its client and its request.
        slow: called with each refused call's error and address; returns for how many seconds its connection
            is not read.
    """

    def __init__(
        self,
        seen: Callable[[str], object],
        check: Check,
        count: Count,
        slow: Callable[[RefusalError, str], float],
    ) -> None:
        self._seen = seen
        self._count = count
        self._slow = slow
        self.check = check

    def of(self, call: Call, request: object) -> Caller:
        """The client of this call.

        Args:
            request: its message; None for a stream that has just begun.

        Raises:
            RefusalError: the client sends no id, its authorization cannot be read, or it is refused.
        """
        found = _caller(call, checked=self.check is not everybody)
        try:
            self.check(found, call.method, request)
        except RefusalError as error:
            call.rest(self._slow(error, found.address))
            raise
        self._seen(found.client_id)
        self._count(call, found, request)
        return found


def _caller(call: Call, *, checked: bool) -> Caller:
    client_id = call.metadata.get(CLIENT_ID, "").strip()
    if not client_id:
        raise RefusalError(Code.CLIENT_ID_REQUIRED, f"the header {CLIENT_ID} is missing or empty")
    if len(client_id) > MAX_CLIENT_ID:
        raise RefusalError(
            Code.CLIENT_ID_REQUIRED,
            f"the header {CLIENT_ID} has {len(client_id)} characters, limit {MAX_CLIENT_ID}",
        )
    language = call.metadata.get("x-mq-language", "").upper()
    sent = authorization(call.metadata)
    # Interned: all waiting calls of a client and its entry in GrpcClients share one copy of these texts.
    return Caller(
        intern(client_id),
        _LANGUAGES.get(language, Language.OTHER),
        intern(call.metadata.get("x-mq-client-version", "")[:MAX_VERSION]),
        call.peer,
        intern((sent and sent.access_key) or call.certificate.user),
        sent if checked else None,
        call.certificate,
    )
