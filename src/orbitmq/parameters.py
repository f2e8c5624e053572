"""Refuses unknown names of parameters, with an error that names the nearest known one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar

from orbitmq.errors import UnknownOptionError

K = TypeVar("K")


def check_names(given: Iterable[str], known: Sequence[str]) -> None:
    """Refuse names of parameters that are not known.

    Raises:
        UnknownOptionError: a name is unknown; the text names the nearest known name, or all of them.
    """
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise UnknownOptionError(f"there is no option {name!r}: {hint}")


def refuses_unknown(kind: type[K]) -> type[K]:
    """Make a class's constructor and public methods refuse unknown parameters by :func:`check_names`.

    The check runs only after Python's own error for an unknown name, so a correct call costs nothing.
    """
    for name, method in list(vars(kind).items()):
        if not inspect.isfunction(method) or (name[0] == "_" and name != "__init__"):
            continue
        names = parameter_names(method)
        if names:
            setattr(kind, name, _explained(method, names))
    return kind


def parameter_names(method: Callable[..., Any]) -> list[str]:
    """The parameters of a method that may be given by name."""
    _, *others = inspect.signature(method).parameters.values()
    return [each.name for each in others if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)]


def _explained(method: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(method):

        @wraps(method)
        async def call(*args: Any, **given: Any) -> Any:
            try:
                work = method(*args, **given)
            except TypeError:
                check_names(given, names)
                raise
            return await work

    else:

        @wraps(method)
        def call(*args: Any, **given: Any) -> Any:
            try:
                return method(*args, **given)
            except UnknownOptionError:
                raise
            except TypeError:
                check_names(given, names)
                raise

    return call
