"""Checks of the arguments of operations: wrong ones are refused before a server is asked."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import wraps
from typing import Any, TypeVar

from orbitmq.admin.group_settings import GroupSettings
from orbitmq.client.ranges import RANGES, check_kind, check_number
from orbitmq.durations import datetime, instant_ms
from orbitmq.errors import UnknownOptionError, ValidationError
from orbitmq.parameters import check_names

K = TypeVar("K")
_KINDS: Mapping[str, type[Any]] = {
    "str": str,
    "int": int,
    "bool": bool,
    "datetime": datetime,
    "Mapping": Mapping,
    "Iterable": Iterable,
    "GroupSettings": GroupSettings,
}


def checks_arguments(kind: type[K]) -> type[K]:
    """Class decorator: the class's operations check their arguments by the annotations and by the table of
    ranges.
    """
    for name, method in list(vars(kind).items()):
        if inspect.iscoroutinefunction(method) and not name.startswith("_"):
            setattr(kind, name, _checked(method))
    return kind


def _checked(method: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    signature = inspect.signature(method)
    names = [name for name in signature.parameters if name != "self"]

    @wraps(method)
    async def call(self: object, /, *args: Any, **given: Any) -> Any:
        check_names(given, names)
        try:
            taken = signature.bind(self, *args, **given).arguments
        except TypeError as error:
            raise UnknownOptionError(f"{method.__name__}: {error}") from None
        for name in names:
            if name in taken:
                _check(name, taken[name], str(signature.parameters[name].annotation))
        return await method(self, *args, **given)

    return call


def _check(name: str, value: object, annotation: str) -> None:
    """Refuse a value that does not match the annotation, or is out of its range.

    Raises:
        ValidationError: the value is wrong; the text names the argument and the accepted values.
    """
    first, *others = annotation.split(" | ")
    if value is None and "None" in others:
        return
    if f"Admin.{name}" in RANGES:
        check_number(f"Admin.{name}", value, called=name)
        return
    kind = _KINDS.get(first.partition("[")[0])
    if kind is None:
        return
    check_kind(name, value, kind)
    if first == "str" and not value:
        raise ValidationError(f"{name} must not be empty")
    if isinstance(value, datetime):
        instant_ms(name, value)
