"""The job that is killed: a topic to another topic, each row with the place where it was read."""

from __future__ import annotations

import sys

from orbitmq.spark.session import session


def main(name_server: str, checkpoint: str, kind: str) -> None:
    # A task whose worker is killed is tried again; local[n] alone would end the query.
    spark = session("kills", master="local[2,20]")
    stream = spark.readStream.format("rocketmq").option("nameServers", name_server)
    rows = (
        stream.option("maxRowsPerTrigger", 3000)
        .option("offsetTimeout", "120s")
        .load("kills-in")
        .selectExpr("concat_ws('/', broker, queue_id, queue_offset) AS body")
    )
    if kind == "shuffle":
        rows = rows.repartition(3, "body")
    query = (
        rows.writeStream.format("rocketmq")
        .option("nameServers", name_server)
        .option("topic", "kills-out")
        .option("retryTimeout", "120s")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
