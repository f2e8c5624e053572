"""Options of clients: a dataclass defines them once, with types and defaults, and constructors accept its
fields.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.core.name_servers import parse_source
from orbitmq.client.ranges import check_kind
from orbitmq.durations import shown as shortened
from orbitmq.errors import UnknownOptionError, ValidationError
from orbitmq.parameters import check_names
from orbitmq.runtime.seam import Runtime
from orbitmq.wire.addresses import Source, shown

P = ParamSpec("P")
O = TypeVar("O")  # noqa: E741
C = TypeVar("C")


def takes(
    options: Callable[P, O],
) -> Callable[[Callable[[C, O], None]], Callable[Concatenate[C, P], None]]:
    """Make the decorated constructor accept the fields of ``options`` as its parameters; it receives the
    checked dataclass.

    Type checkers, editors, ``help`` and ``inspect.signature`` show them one by one, with their defaults.

    Args:
        options: a dataclass; its one positional field is the group, the topic or the name servers.
    """

    def decorate(body: Callable[[C, O], None]) -> Callable[Concatenate[C, P], None]:
        @wraps(body)
        def init(self: C, /, *args: P.args, **given: P.kwargs) -> None:
            body(self, options_of(options, args, given))

        signature = inspect.signature(body)
        own = next(iter(signature.parameters.values()))
        named = inspect.signature(options).parameters.values()
        # Parameters without a default come first.
        taken = sorted(named, key=lambda each: each.default is not inspect.Parameter.empty)
        init.__signature__ = signature.replace(parameters=[own, *taken])  # type: ignore[attr-defined]
        return init

    return decorate


def options_of(kind: Callable[..., O], args: Sequence[object], keywords: Mapping[str, Any]) -> O:
    """The options object for a user's arguments.

    Args:
        kind: the dataclass of the options, which checks them.
        args: the positional arguments: the group or the topic.

    Raises:
        UnknownOptionError: an option does not exist, or a required one is missing.
        ValidationError: an option is out of its range, or contradicts the shared client.
    """
    known = fields(kind)  # type: ignore[arg-type]
    first = next(field.name for field in known if not field.kw_only)
    others = [field.name for field in known if field.kw_only]
    check_names([name for name in keywords if name != first], others)
    if len(args) > 1 or (args and first in keywords):
        raise UnknownOptionError(
            f"options are given by name, as in name_servers='127.0.0.1:9876'; {shortened(args[-1])} has none"
        )
    given = {first: args[0], **keywords} if args else dict(keywords)
    for field in known:
        if field.default is MISSING and field.name not in given:
            raise UnknownOptionError(f"{field.name} is missing")
    client = given.get("client")
    if client is not None:
        _check_shared(client, given)
    elif given.get("runtime") is not None:
        check_kind("runtime", given["runtime"], Runtime)
    return kind(**given)


def _check_shared(client: object, keywords: Mapping[str, Any]) -> None:
    """Refuse options about connections beside a shared ``client``: its connections are already configured."""
    if not isinstance(client, ClientInstance):
        raise ValidationError(f"client must be a ClientInstance, got {client!r}")
    for name in ("max_async", "namespace_v2", "credentials", "tls"):
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
