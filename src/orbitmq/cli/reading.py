"""Topics that commands read without a group, and what standard error says about their brokers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from orbitmq.cli.failures import EXIT_FAILED, EXIT_OK

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.cli.app import Common
    from orbitmq.client.consumer.reader import Reader
    from orbitmq.errors import NotAllReadError
    from orbitmq.message.model import ReceivedMessage


def reader_of(
    topic: str,
    begin: int | str,
    common: Common,
    *,
    tags: str = "*",
    sql: str | None = None,
    follow: bool = False,
) -> Reader:
    """A reader that begins at ``first``, ``last``, or milliseconds since 1970."""
    from orbitmq.client.consumer.reader import Reader
    from orbitmq.client.model import ConsumeFrom
    from orbitmq.durations import instant

    named = {"first": ConsumeFrom.FIRST, "last": ConsumeFrom.LAST}
    return Reader(
        topic,
        start=named[begin] if isinstance(begin, str) else instant(begin),
        tags=tags,
        sql=sql,
        follow=follow,
        on_broker=tell_broker,
        name_servers=common.addresses,
    )


async def read(reader: Reader, take: Callable[[list[ReceivedMessage]], bool]) -> int:
    """Give lists of messages to ``take`` until it returns False or all are read; the exit code.

    Brokers that did not answer are named on standard error.
    """
    from contextlib import aclosing

    from orbitmq.errors import NotAllReadError

    async with reader:
        try:
            async with aclosing(reader.batches()) as batches:
                async for batch in batches:
                    if not take(list(batch)):
                        break
        except NotAllReadError as error:
            return tell_left_out(error)
    return EXIT_OK


def tell_left_out(error: NotAllReadError) -> int:
    """A line for each broker whose messages are missing; the exit code."""
    for broker, why in error.left_out.items():
        print(f"{broker}: {why}; its messages are not shown", file=sys.stderr, flush=True)
    return EXIT_FAILED


def tell_broker(broker: str, error: Exception | None) -> None:
    """One line when a broker that is followed is lost, or answers again."""
    text = "answers again" if error is None else f"{error}; trying again"
    print(f"{broker}: {text}", file=sys.stderr, flush=True)
