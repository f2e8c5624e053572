"""Methods of a world that create its clients, with the options of the client's class."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, cast, overload

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Making(Protocol[P, T_co]):
    """Creates a client; the group may be left out."""

    @overload
    def __call__(self, group: str, /, *args: P.args, **options: P.kwargs) -> T_co: ...
    @overload
    def __call__(self, *args: P.args, **options: P.kwargs) -> T_co: ...


def making(kind: Callable[Concatenate[str, P], T], text: str, **defaults: Any) -> Making[P, T]:
    """A method of a world that creates a client of this class, with the world's name server and clock.

    Args:
        text: the method's docstring.
        defaults: defaults that differ from the class's own, including the group.
    """
    own, *options = inspect.signature(kind).parameters.values()

    def make(self: Any, *args: Any, **given: Any) -> T:
        taken = {**defaults, "name_servers": self.name_server, "runtime": self.runtime, **given}
        if args and own.name not in given:
            taken.pop(own.name, None)
        return kind(*args, **taken)

    make.__doc__ = text
    first = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    shown = [each.replace(default=defaults.get(each.name, each.default)) for each in (own, *options)]
    make.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [first, *shown], return_annotation=kind.__name__
    )
    return cast(Making[P, T], make)
