"""The job that is killed: a topic to another topic, each row with its place, or a topic to an archive."""

from __future__ import annotations

import sys

from orbitmq.spark.jobs import ArchiveJob, archive
from orbitmq.spark.session import session

# Longer than any broker is frozen or cut off.
PATIENCE = "300s"


def main(name_server: str, folder: str, kind: str) -> None:
    # A task whose worker is killed is tried again; local[n] alone would end the query.
    spark = session("kills", master="local[2,20]")
    options = {"maxRowsPerTrigger": "3000", "offsetTimeout": PATIENCE}
    if kind == "archive":
        job = ArchiveJob(["kills-in"], f"{folder}/archive", name_server, trigger="1 second", options=options)
        archive(spark, job, continuous=True)
        return
    rows = (
        spark.readStream.format("rocketmq")
        .option("nameServers", name_server)
        .options(**options)
        .load("kills-in")
        .selectExpr("concat_ws('/', broker, queue_id, queue_offset) AS body")
    )
    if kind == "shuffle":
        rows = rows.repartition(3, "body")
    query = (
        rows.writeStream.format("rocketmq")
        .option("nameServers", name_server)
        .option("topic", "kills-out")
        .option("retryTimeout", PATIENCE)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
