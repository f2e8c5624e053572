"""Calls all listeners, even if one of them fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

log = logging.getLogger(__name__)


def call_all(listeners: Sequence[Callable[..., object]], *what: object) -> None:
    """Call each of ``listeners`` with ``what``.

    Raises:
        Exception: the first failure of a listener, after all were called.
    """
    first: Exception | None = None
    for listener in list(listeners):
        try:
            listener(*what)
        except Exception as error:
            if first is None:
                first = error
            else:
                log.exception("one more listener of %s failed", what)
    if first is not None:
        raise first
