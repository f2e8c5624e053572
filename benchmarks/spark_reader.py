"""The reader of the format ``rocketmq`` without Spark: the costs of the pulls and the decoder alone.

Runs in a separate process, so that the CPU time is the reader's only. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import resource
import sys
import time

from orbitmq.spark.options import ReadOptions
from orbitmq.spark.pulling.arrow import BatchMaker
from orbitmq.spark.pulling.pull import RangeReader
from orbitmq.spark.pulling.ranges import QueueRange
from orbitmq.spark.read.positions import Positions
from orbitmq.spark.schema import message_schema


def read(name_server: str, topic: str, columns: tuple[str, ...], *, properties: str) -> int:
    """Read a whole topic in this process; returns the number of rows."""
    options = ReadOptions(topics=(topic,), name_servers=(name_server,))
    positions = Positions(options)
    start, end = positions.start(), positions.end()
    ranges = [QueueRange(queue, start[queue], end[queue]) for queue in sorted(end)]
    maker = BatchMaker(message_schema(columns, properties=properties))
    rows: int = sum(
        batch.num_rows for batch in RangeReader(positions.brokers, options).batches(ranges, maker)
    )
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name_server")
    parser.add_argument("topic")
    parser.add_argument("--columns", default="", help="separated by commas; default: the usual ones")
    parser.add_argument("--properties", default="none")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="show where Python spends its time")
    options = parser.parse_args()
    columns = tuple(name for name in options.columns.split(",") if name)
    if options.profile:
        cProfile.runctx(
            "read(options.name_server, options.topic, columns, properties=options.properties)",
            globals(),
            locals(),
            sort="tottime",
        )
        return 0
    runs = []
    for _ in range(options.repeat):
        begin, cpu = time.monotonic(), time.process_time()
        rows = read(options.name_server, options.topic, columns, properties=options.properties)
        runs.append({"rows": rows, "seconds": time.monotonic() - begin, "cpu_s": time.process_time() - cpu})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"runs": runs, "peak_mb": peak}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
