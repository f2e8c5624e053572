"""A program that uses Spark Connect alone: it has no JVM and no session of its own.

    python -m tests.spark.connect_client sc://127.0.0.1:15002 NAME_SERVER FOLDER ROWS

prints one line of JSON with what it found.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession


def main(remote: str, name_server: str, folder: str, rows: str) -> None:
    spark: Any = SparkSession.builder.remote(remote).getOrCreate()
    options = {"nameServers": name_server}
    made = spark.range(0, int(rows), 1, 2).selectExpr("string(id) AS body", "concat('k', id) AS keys")
    made.write.format("rocketmq").options(topic="connected", **options).mode("append").save()
    table = spark.read.format("rocketmq").options(**options)
    (
        spark.readStream.format("rocketmq")
        .option("startingOffsets", "earliest")
        .options(**options)
        .load("connected")
        .select("body", "keys")
        .writeStream.format("rocketmq")
        .options(topic="streamed", checkpointLocation=folder, **options)
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    found = {
        topic: sorted(int(row[0]) for row in table.load(topic).selectExpr("string(body)").collect())
        for topic in ("connected", "streamed")
    }
    try:
        made.write.format("rocketmq").options(topic="nowhere", **options).mode("append").save()
        told = ""
    except Exception as error:
        told = str(error)
    spark.stop()
    print(json.dumps({"found": found, "told": told}))


if __name__ == "__main__":
    main(*sys.argv[1:])
