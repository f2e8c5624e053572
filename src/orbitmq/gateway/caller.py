"""Who makes a call: what its headers and its connection say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from orbitmq.gateway.authorization import Authorization, authorization
from orbitmq.gateway.call import Call
from orbitmq.gateway.status import Code, RefusalError
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
        version: of the client's library, as it says.
        address: host:port of its side of the connection.
        timeout_ms: how long it waits for the answer; None: as long as it takes.
        authorization: as the client sent it, unchecked; None: it sent none.
    """

    client_id: str
    language: Language
    version: str
    address: str
    timeout_ms: int | None
    authorization: Authorization | None


# Judges a client by what it sent with a call of this method; raises RefusalError.
Admit: TypeAlias = Callable[[Caller, str], None]


def everybody(_caller: Caller, _method: str) -> None:
    """Let all clients in."""


class Callers:
    """Names the clients of calls, and lets them in or refuses them.

    Args:
        admit: raises for a client that is not let in.
    """

    def __init__(self, admit: Admit = everybody) -> None:
        self._admit = admit

    def of(self, call: Call) -> Caller:
        """The client of this call.

        Raises:
            RefusalError: the client sends no id, its authorization cannot be read, or it is not let in.
        """
        found = _caller(call)
        self._admit(found, call.method)
        return found


def _caller(call: Call) -> Caller:
    client_id = call.metadata.get(CLIENT_ID, "").strip()
    if not client_id:
        raise RefusalError(Code.CLIENT_ID_REQUIRED, f"the header {CLIENT_ID} is missing or empty")
    if len(client_id) > MAX_CLIENT_ID:
        raise RefusalError(
            Code.CLIENT_ID_REQUIRED,
            f"the header {CLIENT_ID} has {len(client_id)} characters, limit {MAX_CLIENT_ID}",
        )
    language = call.metadata.get("x-mq-language", "").upper()
    return Caller(
        client_id,
        _LANGUAGES.get(language, Language.OTHER),
        call.metadata.get("x-mq-client-version", "")[:MAX_VERSION],
        call.peer,
        call.timeout_ms,
        authorization(call.metadata),
    )
