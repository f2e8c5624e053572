"""Apache Kafka's broker, the only one of a cluster (KRaft), from jars of Maven Central."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

from benchmarks.ports import free_ports
from benchmarks.servers import (
    ROOT,
    PeerUnavailableError,
    Server,
    ServerError,
    child_settings,
    classpath,
    start,
)

POM = ROOT / "benchmarks" / "kafka-pom.xml"
VERSION = "4.0.0"
SPARK_VERSION = "4.2.0"
"""The newest version of Spark for which Maven Central has the connector."""
COMPANIONS = ("pyarrow", "pandas", "numpy", "msgspec", "typing_extensions")
"""Packages that PySpark and OrbitMQ need in addition, in the versions of this environment."""
CLUSTER_ID = "b3JiaXRtcS1iZW5jaG1hcg"
READY_S = 60.0
# The needed ones of the connector's jars: Spark brings the others.
CONNECTOR_JARS = ("spark-sql-kafka-0-10", "spark-token-provider-kafka-0-10", "kafka-clients", "commons-pool2")


def broker_classpath() -> str:
    """The broker's jars. Errors as with :func:`benchmarks.servers.classpath`."""
    return classpath(f"kafka-{VERSION}-tools", POM, "-Pbroker", f"-Dkafka.version={VERSION}")


def connector_python() -> Path:
    """A Python with the connector's PySpark, in an environment of its own.

    Raises:
        PeerUnavailableError: the environment cannot be made.
    """
    folder = ROOT / "build" / f"spark-{SPARK_VERSION}"
    python = folder / "bin" / "python"
    if not (folder / "done").exists():
        print(f"making {folder}, once", flush=True)
        wanted = [f"pyspark=={SPARK_VERSION}", *(f"{name}=={metadata.version(name)}" for name in COMPANIONS)]
        try:
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
            subprocess.run([str(python), "-m", "pip", "install", "-q", *wanted], check=True, timeout=900)
        except (subprocess.SubprocessError, OSError) as error:
            raise PeerUnavailableError(f"PySpark {SPARK_VERSION} cannot be installed: {error}") from None
        (folder / "done").touch()
    return python


def connector_jars() -> list[str]:
    """The jars that Spark lacks to read from Kafka. Errors as with :func:`benchmarks.servers.classpath`."""
    path = classpath(f"spark-kafka-{SPARK_VERSION}", POM, "-Pconnector", f"-Dspark.version={SPARK_VERSION}")
    return [jar for jar in path.split(":") if Path(jar).name.startswith(CONNECTOR_JARS)]


def start_broker(folder: Path, jars: str, *, queues: int, heap_mb: int = 1024) -> Server:
    """Start a broker that creates topics on the first message, with ``queues`` partitions.

    Raises:
        ServerError: the broker does not start.
    """
    folder.mkdir(parents=True, exist_ok=True)
    port = free_ports(2)
    properties = folder / "server.properties"
    properties.write_text(
        "\n".join(
            (
                "process.roles=broker,controller",
                "node.id=1",
                f"controller.quorum.voters=1@127.0.0.1:{port + 1}",
                f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{port + 1}",
                f"advertised.listeners=PLAINTEXT://127.0.0.1:{port}",
                "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name=PLAINTEXT",
                "controller.listener.names=CONTROLLER",
                f"log.dirs={folder / 'data'}",
                f"num.partitions={queues}",
                "offsets.topic.replication.factor=1",
                "transaction.state.log.replication.factor=1",
                "transaction.state.log.min.isr=1",
                "group.initial.rebalance.delay.ms=0",
                "",
            )
        )
    )
    java = ["java", f"-Xms{heap_mb}m", f"-Xmx{heap_mb}m", "-XX:+UseG1GC", "-cp", jars]
    subprocess.run(
        [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)],
        check=True,
        capture_output=True,
        timeout=120,
    )
    command = [*java, "kafka.Kafka", str(properties)]
    server = start("kafka", command, port, folder, None)
    _wait(server)
    return server


def _wait(server: Server) -> None:
    """Wait until the broker accepts connections, which means that it serves."""
    deadline = time.monotonic() + READY_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", server.port), 1).close()
        except OSError:
            if server.process.poll() is not None or time.monotonic() > deadline:
                server.kill()
                raise ServerError(f"Kafka did not start:\n{server.tail()}") from None
            time.sleep(0.1)
        else:
            return


def create_topic(jars: str, address: str, topic: str, queues: int) -> None:
    """Create a topic with this many partitions."""
    arguments = ["--create", "--topic", topic, "--partitions", str(queues), "--bootstrap-server", address]
    command = ["java", "-cp", jars, "org.apache.kafka.tools.TopicCommand", *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=120)


def send_steadily(
    jars: str, address: str, topic: str, per_second: int, seconds: int
) -> subprocess.Popen[bytes]:
    """Run Kafka's own program, which sends records of 1 KiB at a rate, each without delay.

    Each record goes to the next partition, like with a RocketMQ producer. By default Kafka's producer stays
    with one partition for 16 KiB of records without keys.
    """
    arguments = [
        *("--topic", topic, "--record-size", "1024"),
        *("--num-records", str(per_second * seconds), "--throughput", str(per_second)),
        *("--producer-props", f"bootstrap.servers={address}", "linger.ms=0"),
        "partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner",
    ]
    command = ["java", "-Xmx256m", "-cp", jars, "org.apache.kafka.tools.ProducerPerformance", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=child_settings
    )
