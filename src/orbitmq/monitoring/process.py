"""The metrics of the process: processor time, memory, and delays of the event loop."""

from __future__ import annotations

from orbitmq.monitoring.exposition import Exposition
from orbitmq.runtime.histogram import Histogram
from orbitmq.runtime.log_output import dropped_lines
from orbitmq.runtime.seam import Clock, HostFacts

LOOK_S = 0.2
DELAY_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Process:
    """Measures this process while :meth:`watch` runs."""

    def __init__(self, clock: Clock, host: HostFacts) -> None:
        self._clock = clock
        self._host = host
        self._delays = Histogram(DELAY_BOUNDS_S)

    async def watch(self) -> None:
        """Measure, without end, how late the event loop wakes a task that sleeps."""
        clock, note = self._clock, self._delays.note
        while True:
            begin = clock.monotonic()
            await clock.sleep(LOOK_S)
            note(max(0.0, clock.monotonic() - begin - LOOK_S))

    def write(self, text: Exposition) -> None:
        """Add the metrics of this process."""
        usage = self._host.usage()
        text.family("process_cpu_seconds_total", "counter", "Processor time of this process").add(
            usage.cpu_seconds
        )
        text.family("process_resident_memory_bytes", "gauge", "Memory of this process").add(
            usage.resident_bytes
        )
        text.family(
            "orbitmq_log_lines_dropped_total",
            "counter",
            "Log lines that the disk was too slow for, or refused",
        ).add(dropped_lines())
        text.family(
            "orbitmq_event_loop_delay_seconds", "histogram", "How late the event loop comes to a task"
        ).add_histogram(self._delays)
