"""What commands print and return when some brokers do not answer, or refuse."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from orbitmq.cli.failures import EXIT_FAILED, EXIT_OK

if TYPE_CHECKING:
    from orbitmq.admin import LeftOut

T = TypeVar("T")


async def partly(work: Awaitable[T]) -> tuple[T, Sequence[LeftOut]]:
    """What the brokers that answer tell or did, and which others there are.

    Raises:
        IncompleteError: they have nothing of it.
    """
    from orbitmq.admin import IncompleteError

    try:
        return await work, ()
    except IncompleteError as error:
        if error.found is None:
            raise
        return error.found, error.left_out


async def all_or_nothing(work: Awaitable[T]) -> T:
    """What all brokers tell, for what is done at all of them or at none.

    Raises:
        IncompleteError: not all do; it says that nothing was done.
    """
    from orbitmq.admin import IncompleteError

    try:
        return await work
    except IncompleteError as error:
        text = "nothing was done, as it needs all brokers; run it again when they answer"
        raise IncompleteError(error.found, error.left_out, text) from error


def tell_not_shown(left_out: Sequence[LeftOut], what: str) -> int:
    """Say of which brokers something is missing above: ``what``. Returns the exit code."""
    for one in left_out:
        print(f"{one}; {what} not shown", file=sys.stderr)
    return EXIT_FAILED if left_out else EXIT_OK


def tell_not_done(
    left_out: Sequence[LeftOut], finish: str = "to finish, run it again when all answer"
) -> int:
    """Say where something was not done, and how to finish that. Returns the exit code."""
    for one in left_out:
        outcome = "it may still do it" if one.uncertain else "it was not done there"
        print(f"{one}; {outcome}", file=sys.stderr)
    if left_out:
        print(finish, file=sys.stderr)
    return EXIT_FAILED if left_out else EXIT_OK


def without(left_out: Sequence[LeftOut]) -> str:
    """What a total that is not complete says behind itself."""
    return f", without those of {', '.join(one.name for one in left_out)}" if left_out else ""


def plain_left_out(left_out: Sequence[LeftOut]) -> list[dict[str, Any]]:
    """The brokers as JSON has them, in a field ``leftOut`` that is always there."""
    return [{"brokerName": one.name, "address": one.address, "reason": one.reason} for one in left_out]
