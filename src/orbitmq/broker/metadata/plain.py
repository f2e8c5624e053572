"""Bodies as plain values, as the table files need them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from orbitmq.wire import fastjson
from orbitmq.wire.bodies.base import Body

B = TypeVar("B", bound=Body)


def to_plain(body: Body) -> dict[str, Any]:
    """A body as nested dicts and lists under its wire names."""
    plain: dict[str, Any] = fastjson.loads(body.encode())
    return plain


def from_plain(kind: type[B], plain: Mapping[str, Any]) -> B:
    """The body of class ``kind`` that has the values of ``plain``."""
    return kind.from_json(dict(plain))
