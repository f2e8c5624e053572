"""Reading topics without a group: for ``receive``, ``dlq`` and ``bench``."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from orbitmq.cli.tls_words import as_options

if TYPE_CHECKING:
    from orbitmq.admin import LeftOut
    from orbitmq.cli.where import Servers
    from orbitmq.client.consumer.reader import Reader
    from orbitmq.message.model import ReceivedMessage


def reader_of(
    topic: str,
    begin: int | str,
    servers: Servers,
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
        on_broker=_tell_broker,
        **servers.options,
    )


async def read(reader: Reader, lost: list[LeftOut]) -> AsyncGenerator[Sequence[ReceivedMessage], None]:
    """The messages in lists. Brokers whose messages could not all be read are added to ``lost`` at
    the end.
    """
    from orbitmq.admin import LeftOut
    from orbitmq.errors import NotAllReadError, OrbitError

    async with reader:
        try:
            async with aclosing(reader.batches()) as batches:
                async for batch in batches:
                    yield batch
        except NotAllReadError as error:
            for broker, why in error.left_out.items():
                cause = why if isinstance(why, OrbitError) else error
                lost.append(LeftOut(broker, getattr(why, "address", ""), str(why), cause))


def _tell_broker(broker: str, error: Exception | None) -> None:
    """Print one line when a followed broker is lost, or answers again."""
    text = "answers again" if error is None else f"{as_options(str(error))}; trying again"
    print(f"{broker}: {text}", file=sys.stderr, flush=True)
