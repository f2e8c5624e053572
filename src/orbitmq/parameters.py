"""Names of parameters: one that is not known is refused, and the error names the nearest one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar

from orbitmq.errors import UnknownOptionError

K = TypeVar("K")


def check_names(given: Iterable[str], known: Sequence[str]) -> None:
    """Refuse the names of parameters that are not known.

    Raises:
        UnknownOptionError: it names the nearest one, or all.
    """
    for name in given:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise UnknownOptionError(f"there is no option {name!r}: {hint}")


def refuses_unknown(kind: type[K]) -> type[K]:
    """The constructor and the public methods of a class refuse unknown parameters by :func:`check_names`.

    A call without a mistake is not checked: Python itself finds that a name is unknown.
    """
    for name, method in list(vars(kind).items()):
        if not inspect.isfunction(method) or (name[0] == "_" and name != "__init__"):
            continue
        names = parameter_names(method)
        if names:
            setattr(kind, name, _explained(method, names))
    return kind


def parameter_names(method: Callable[..., Any]) -> list[str]:
    """The parameters that may be given by name."""
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
