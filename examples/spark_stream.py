"""Spark counts a topic by tag and keeps its place in a checkpoint. Needs Java and ``orbitmq[spark]``."""

import tempfile

from pyspark.sql import SparkSession

from orbitmq import Message
from orbitmq.sync import Producer

NAME_SERVERS = "127.0.0.1:9876"

if __name__ == "__main__":
    with Producer("till", name_servers=NAME_SERVERS) as producer:
        for number in range(100):
            producer.send(Message("example-sales", f"sale {number}", tags="paid" if number % 4 else "open"))

    spark = SparkSession.builder.master("local[2]").appName("sales").getOrCreate()
    sales = (
        spark.readStream.format("rocketmq")
        .option("nameServers", NAME_SERVERS)
        .option("startingOffsets", "earliest")
        .load("example-sales")
    )
    query = (
        sales.groupBy("tags")
        .count()
        .writeStream.format("memory")
        .queryName("counts")
        .outputMode("complete")
        .option("checkpointLocation", tempfile.mkdtemp())
        .trigger(availableNow=True)  # read what is there, then stop; leave it out to go on for ever
        .start()
    )
    query.awaitTermination()
    print({row["tags"]: row["count"] for row in spark.table("counts").orderBy("tags").collect()})
    spark.stop()
