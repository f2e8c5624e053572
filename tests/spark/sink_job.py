"""A streaming query from a topic through a shuffle to a topic, as a program of its own that can be killed.

    python -m tests.spark.sink_job NAME_SERVER FROM TO CHECKPOINT CORES PARTITIONS

It ends when it has written all that was there when it began.
"""

from __future__ import annotations

import sys

from orbitmq.spark import versions
from orbitmq.spark.session import session


def main(name_server: str, source: str, target: str, checkpoint: str, cores: str, parts: str) -> None:
    spark = session("sink-job", master=f"local[{cores}]", spark__sql__shuffle__partitions=parts)
    while True:
        query = (
            spark.readStream.format("rocketmq")
            .option("startingOffsets", "earliest")
            .options(nameServers=name_server, topic=source, maxRowsPerTrigger="50000")
            .load()
            .repartition(int(parts))
            .selectExpr("body", "map('from', broker) as properties")
            .writeStream.format("rocketmq")
            .options(nameServers=name_server, topic=target, checkpointLocation=checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        # Before 4.2 a limited run ends after its first batch.
        if versions.HAS_READ_LIMITS or not (query.lastProgress and query.lastProgress["numInputRows"]):
            break
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
