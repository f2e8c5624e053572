"""The writer of Spark's sink without Spark: sends prepared rows, and prints the costs as JSON.

`sink_paired` starts it. It prints a line when it is ready, and then waits for a line of input.
"""

from __future__ import annotations

import json
import sys
import time
import uuid

import pyarrow as pa
from benchmarks import spark_rows

from orbitmq.spark.options import WriteOptions
from orbitmq.spark.write.send import TaskSender
from orbitmq.spark.write.task import TaskId, new_run

# The batch size of Spark, and the number of different batches.
BATCH_ROWS = 10_000
BATCHES = 4


def main() -> None:
    name_server, topic, delivery, rows, body, partition = sys.argv[1:]
    options = WriteOptions(topic=topic, name_servers=(name_server,), delivery=delivery)
    task = TaskId(f"job-{uuid.uuid4().hex}", 0, int(partition), new_run(time.time_ns() // 1_000_000, 0), 1)
    sender = TaskSender(options, task, frozenset({"keys", "body"}), lambda _topic, _ends: None)
    batches = [
        pa.record_batch(
            {
                "keys": [spark_rows.key(number) for number in range(first, first + BATCH_ROWS)],
                "body": list(spark_rows.bodies(first, BATCH_ROWS, int(body))),
            }
        )
        for first in range(0, BATCHES * BATCH_ROWS, BATCH_ROWS)
    ]
    print("ready", flush=True)
    sys.stdin.readline()
    cpu, begin = time.process_time(), time.monotonic()
    for number in range(int(rows) // BATCH_ROWS):
        sender.add(batches[number % BATCHES])
    sender.finish()
    print(json.dumps({"cpu_s": time.process_time() - cpu, "seconds": time.monotonic() - begin}))
    sender.close()


if __name__ == "__main__":
    main()
