"""One member of the consumer group: counts what it gets, and says in the end which offsets those were."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import zlib
from collections import defaultdict

from examples.flights.children import say
from examples.flights.data import TOPIC

from orbitmq import ConsumeFrom, Consumer, ReceivedMessage

GROUP = "flights_readers"
REPORT_EVERY_S = 0.5


class Seen:
    """What came: how much, a sum over all bodies, and every offset by queue."""

    def __init__(self) -> None:
        self.count = 0
        self.digest = 0
        self.offsets: defaultdict[str, list[int]] = defaultdict(list)

    async def take(self, message: ReceivedMessage) -> None:
        """The listener."""
        self.count += 1
        self.digest += zlib.crc32(message.body)
        self.offsets[f"{message.broker_name}/{message.queue_id}"].append(message.queue_offset)

    def ranges(self) -> dict[str, list[tuple[int, int]]]:
        """The offsets of each queue as runs ``(first, last)``; an offset that came twice begins a new run."""
        found: dict[str, list[tuple[int, int]]] = {}
        for queue, offsets in sorted(self.offsets.items()):
            runs: list[tuple[int, int]] = []
            for offset in sorted(offsets):
                if runs and runs[-1][1] + 1 == offset:
                    runs[-1] = (runs[-1][0], offset)
                else:
                    runs.append((offset, offset))
            found[queue] = runs
        return found


async def main(name_server: str) -> None:
    """Consume until the parent says ``finish`` or goes away."""
    seen = Seen()
    async with Consumer(GROUP, name_servers=name_server, consume_from=ConsumeFrom.FIRST) as consumer:
        consumer.subscribe(TOPIC)
        work = asyncio.create_task(consumer.run(seen.take))
        finish = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
        while not finish.done() and not work.done():
            say(count=seen.count, queues=len([q for q in consumer.assignment() if q.topic == TOPIC]))
            await asyncio.wait({finish, work}, timeout=REPORT_EVERY_S)
        if work.done():
            await work
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
    say(count=seen.count, digest=seen.digest, ranges=seen.ranges())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
