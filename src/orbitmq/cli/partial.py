"""Exit codes and lines for brokers that did not answer or refused."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Sequence
from typing import TYPE_CHECKING, TypeVar

from orbitmq.cli.failures import EXIT_FAILED, EXIT_OK
from orbitmq.cli.tls_words import as_options

if TYPE_CHECKING:
    from orbitmq.admin import LeftOut, Partial

T = TypeVar("T")


async def done(work: Awaitable[T]) -> tuple[T, Sequence[LeftOut]]:
    """The result of a change at the brokers that made it, and the brokers that did not make it."""
    from orbitmq.admin import IncompleteError

    try:
        return await work, ()
    except IncompleteError as error:
        return error.partial.found, error.left_out


def whole(answer: Partial[T]) -> T:
    """The result, if all brokers have answered: for a change that is made at all brokers or at none.

    Raises:
        IncompleteError: a broker did not answer; the text says that nothing was done.
    """
    from orbitmq.admin import IncompleteError

    if answer.left_out:
        text = "nothing was done, as it needs all brokers; run it again when they answer"
        raise IncompleteError(answer, text)
    return answer.found


def tell_not_shown(left_out: Sequence[LeftOut], what: str) -> int:
    """Print the brokers that did not answer, and what the output lacks because of that. Returns the exit
    code.
    """
    for one in left_out:
        print(f"{as_options(str(one))}; {what} not shown", file=sys.stderr)
    return EXIT_FAILED if left_out else EXIT_OK


def tell_not_done(
    left_out: Sequence[LeftOut], finish: str = "to finish, run it again when all answer"
) -> int:
    """Print the brokers at which a change was not made, and how to finish the change. Returns the
    exit code.
    """
    for one in left_out:
        outcome = "it may still do it" if one.uncertain else "it was not done there"
        print(f"{as_options(str(one))}; {outcome}", file=sys.stderr)
    if left_out:
        print(finish, file=sys.stderr)
    return EXIT_FAILED if left_out else EXIT_OK


def without(left_out: Sequence[LeftOut]) -> str:
    """The end of a line with a total that lacks brokers."""
    return f", without those of {', '.join(one.name for one in left_out)}" if left_out else ""


def lost_masters(names: Sequence[str]) -> list[str]:
    """The line that names the brokers where a change was not made because they have no master."""
    if not names:
        return []
    return [f"not on {', '.join(names)}: no master is online there; repeat the command when one is"]
