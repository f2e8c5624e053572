"""Options as keywords: typed by a TypedDict, kept in a frozen dataclass, shown one by one to the user."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

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
