"""The jobs that are killed, in one Spark session: a topic to other topics, each row with its place, and to an
archive. A query that ends, since its planner was killed, is started again."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from orbitmq.spark.jobs import ArchiveJob, archive
from orbitmq.spark.session import session

SOURCE = "kills-in"
# Longer than any broker is frozen or cut off.
PATIENCE = "300s"
LIMITS = {"maxRowsPerTrigger": "3000", "offsetTimeout": PATIENCE}


def main(name_server: str, folder: str, *kinds: str) -> None:
    # A task whose worker is killed is tried again; local[n] alone would end the query.
    spark = session("kills", master="local[2,20]")
    threads = [
        threading.Thread(target=keep_up, args=(spark, name_server, folder, kind), daemon=True)
        for kind in kinds
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def keep_up(spark: Any, name_server: str, folder: str, kind: str) -> None:
    # Makes the session the active one of this thread, where writers look for the format.
    spark.createDataFrame([(1,)], "number INT")
    while True:
        try:
            (keep if kind == "archive" else copy)(spark, name_server, folder, kind)
        except Exception as error:
            print(f"kill_job: {kind}: {error}", file=sys.stderr, flush=True)
        time.sleep(0.2)


def keep(spark: Any, name_server: str, folder: str, _kind: str) -> None:
    job = ArchiveJob([SOURCE], f"{folder}/archive", name_server, trigger="2 seconds", options=LIMITS)
    archive(spark, job, continuous=True)


def copy(spark: Any, name_server: str, folder: str, kind: str) -> None:
    rows = (
        spark.readStream.format("rocketmq")
        .option("startingOffsets", "earliest")
        .option("nameServers", name_server)
        .options(**LIMITS)
        .load(SOURCE)
        .selectExpr("concat_ws('/', broker, queue_id, queue_offset) AS body")
    )
    if kind == "shuffle":
        rows = rows.repartition(3, "body")
    query = (
        rows.writeStream.format("rocketmq")
        .option("nameServers", name_server)
        .option("topic", copies(kind))
        .option("retryTimeout", PATIENCE)
        .option("checkpointLocation", f"{folder}/{kind}")
        .trigger(processingTime="1 second")
        .start()
    )
    query.awaitTermination()


def copies(kind: str) -> str:
    """The topic of the copies."""
    return f"kills-{kind}"


if __name__ == "__main__":
    main(*sys.argv[1:])
