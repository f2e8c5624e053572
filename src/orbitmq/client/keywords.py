"""Options as keywords: typed by a TypedDict, kept in a frozen dataclass, shown one by one to the user."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any, TypeVar

from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.core.name_servers import parse_source
from orbitmq.errors import UnknownOptionError, ValidationError
from orbitmq.wire.addresses import Source, shown

O = TypeVar("O")  # noqa: E741
F = TypeVar("F", bound=Callable[..., None])


def shows_keywords(options: type[Any]) -> Callable[[F], F]:
    """Let ``help``, notebooks and ``inspect.signature`` show the fields of ``options`` for ``**options``.

    Args:
        options: the dataclass that is made of the keywords.
    """

    def decorate(init: F) -> F:
        signature = inspect.signature(init)
        own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
        named = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for parameter in inspect.signature(options).parameters.values()
        ]
        init.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
        return init

    return decorate


def options_of(kind: type[O], keywords: Mapping[str, Any]) -> O:
    """The options made from a user's keyword arguments.

    Args:
        kind: the dataclass of the options, which checks them.

    Raises:
        ValidationError: an option is out of its range, or contradicts the shared client.
    """
    client = keywords.get("client")
    if client is not None:
        _check_shared(client, keywords)
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in keywords:
        if name not in names:
            near = get_close_matches(name, names, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
            raise UnknownOptionError(f"there is no option {name!r}: {hint}")
    return kind(**keywords)


def _check_shared(client: object, keywords: Mapping[str, Any]) -> None:
    """Refuse options about connections beside a shared ``client``, whose connections are used."""
    if not isinstance(client, ClientInstance):
        raise ValidationError(f"client must be a ClientInstance, got {client!r}")
    for name in ("max_async", "namespace_v2"):
        if keywords.get(name):
            raise ValidationError(f"{name} belongs to the connections: give it to the client that is shared")
    queues = keywords.get("default_topic_queues", client.default_topic_queues)
    if queues != client.default_topic_queues:
        raise ValidationError(
            f"default_topic_queues is {queues!r}, that of the client that is shared "
            f"{client.default_topic_queues}: give it to the client"
        )
    servers = keywords.get("name_servers")
    if servers is not None and _unordered(parse_source(servers)) != _unordered(client.name_servers.source):
        raise ValidationError(
            f"name_servers is {servers!r}, but the client that is shared uses "
            f"{shown(client.name_servers.source)!r}: leave out one of the two"
        )
    if keywords.get("client_id") not in (None, client.client_id):
        raise ValidationError(
            f"client_id is {keywords['client_id']!r}, that of the client that is shared "
            f"{client.client_id!r}: leave out one of the two"
        )
    if keywords.get("runtime") not in (None, client.runtime):
        raise ValidationError("runtime is not that of the client that is shared: leave out one of the two")


def _unordered(source: Source) -> object:
    return frozenset(source) if isinstance(source, tuple) else source
