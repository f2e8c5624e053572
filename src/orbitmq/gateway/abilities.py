"""Which commands the clients of RocketMQ 5 carry out on their Telemetry streams, by language. Pure.

A client does not announce its abilities. It ignores a command that it does not know, or ends its stream.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orbitmq.gateway.schema import ClientType
from orbitmq.wire.command import Language

# Push consumers of these languages carry out VerifyMessageCommand: their listener consumes the message.
VERIFYING: Final = frozenset({Language.JAVA, Language.CPP, Language.DOTNET})
# Clients of these languages carry out PrintThreadStackTraceCommand; Node's dump is a placeholder.
DUMPING: Final = VERIFYING | {Language.NODE_JS, Language.GO}
# The first version of each language whose clients carry out ReconnectEndpointsCommand.
_RECONNECTING: Final[Mapping[Language, tuple[int, ...]]] = {
    Language.JAVA: (5, 1, 0),
    Language.GO: (5, 1, 4),
    Language.NODE_JS: (1, 0, 8),
}


def verifies(language: Language, kind: int) -> bool:
    """Whether a client carries out VerifyMessageCommand."""
    return kind == ClientType.PUSH_CONSUMER and language in VERIFYING


def dumps(language: Language) -> bool:
    """Whether a client carries out PrintThreadStackTraceCommand."""
    return language in DUMPING


def reconnects(language: Language, version: str) -> bool:
    """Whether a client carries out ReconnectEndpointsCommand."""
    first = _RECONNECTING.get(language)
    return first is not None and numbers_of(version) >= first


def numbers_of(version: str) -> tuple[int, ...]:
    """The numbers of a version such as 5.2.0 or 5.2.1-SNAPSHOT, up to the first part that is not a number."""
    found = []
    for part in version.partition("-")[0].split(".")[:3]:
        if not (part.isascii() and part.isdigit() and len(part) <= 6):
            break
        found.append(int(part))
    return tuple(found)
