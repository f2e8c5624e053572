"""The costs of a scrape of a broker's metrics: CPU time, and the longest step of the event loop.

``python -m benchmarks.metrics_scrape`` runs a broker in this process with 1,000 topics of 8 queues and 50
groups, each behind in one queue of some topics, so that a scrape has about 50,000 series. It reads the
metrics several times, and prints the medians of the scrapes as one JSON line.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from typing import Any

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.metrics.page import MetricsPage
from orbitmq.broker.monitoring import BrokerMonitoring
from orbitmq.runtime.system import system_runtime
from orbitmq.store import NewMessage
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.topic import TopicConfig

QUEUES = 8
GROUPS = 50
SERIES_OF_A_PAIR = 5
"""Lag, its age, in flight, queueing, ready."""
SERIES_OF_A_TOPIC = 11
"""Messages, bytes, and nine sizes."""


class Steps:
    """Records the longest step of the event loop since the last reading."""

    def __init__(self) -> None:
        self._run: Any = asyncio.Handle._run
        self.longest_s = 0.0

    def watch(self) -> None:
        """Measure each callback of the loop from here on."""
        run, clock = self._run, time.perf_counter

        def timed(handle: asyncio.Handle) -> None:
            begin = clock()
            run(handle)
            self.longest_s = max(self.longest_s, clock() - begin)

        setattr(asyncio.Handle, "_run", timed)  # noqa: B010  # typed as a method


async def _fill(broker: Broker, topics: int, series: int) -> None:
    s = broker.services
    names = [f"topic-{number}" for number in range(topics)]
    for name in names:
        s.topics.update(TopicConfig(topic_name=name, read_queue_nums=QUEUES, write_queue_nums=QUEUES))
    body = b"x" * 100
    for name in names:
        for queue in range(QUEUES):
            s.append.put(NewMessage(name, queue, body, b""), {})
    pairs = (series - SERIES_OF_A_TOPIC * topics) // SERIES_OF_A_PAIR
    for number in range(GROUPS):
        group = f"group-{number}"
        s.groups.update(SubscriptionGroupConfig(group_name=group))
    for pair in range(pairs):
        group, name = f"group-{pair % GROUPS}", names[pair // GROUPS % topics]
        for queue in range(QUEUES):
            s.offsets.commit(group, name, queue, int(queue > 0))


async def _measure(topics: int, series: int, scrapes: int) -> dict[str, float]:
    steps = Steps()
    with tempfile.TemporaryDirectory() as folder:
        config = BrokerConfig(
            store_path_root_dir=folder,
            listen_port=0,
            ha_listen_port=0,
            metrics_exporter="PROM",
            metrics_port=0,
            metrics_series=2 * series,
            mapped_file_size_commit_log=1 << 26,
        )
        async with Broker(system_runtime(), config) as broker:
            await _fill(broker, topics, series)
            page = MetricsPage(broker.part(BrokerMonitoring).scrape())
            await page.answer()
            steps.watch()
            cpu, longest, wall, size, lines = [], [], [], 0, 0
            for _ in range(scrapes):
                await asyncio.sleep(0.2)
                steps.longest_s = 0.0
                begin, began = time.process_time(), time.perf_counter()
                answer = await page.answer()
                cpu.append(time.process_time() - begin)
                wall.append(time.perf_counter() - began)
                longest.append(steps.longest_s)
                text = b"".join(answer.body)
                size = len(text)
                lines = sum(not line.startswith(b"#") for line in text.splitlines())
    return {
        "series": lines,
        "megabytes": round(size / 1e6, 1),
        "cpu_s": round(statistics.median(cpu), 4),
        "longest_step_ms": round(statistics.median(longest) * 1000, 2),
        "wall_s": round(statistics.median(wall), 4),
    }


def measured(topics: int, series: int, scrapes: int) -> dict[str, float]:
    """The medians of some scrapes."""
    return asyncio.run(_measure(topics, series, scrapes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--series", type=int, default=50_000)
    parser.add_argument("--scrapes", type=int, default=7)
    args = parser.parse_args()
    print(json.dumps(measured(args.topics, args.series, args.scrapes)))


if __name__ == "__main__":
    main()
