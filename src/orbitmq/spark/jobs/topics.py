"""Checks the topics of a job before Spark is started, which takes half a minute."""

from __future__ import annotations

from collections.abc import Sequence

from orbitmq.message import reserved
from orbitmq.spark.cluster.brokers import Brokers
from orbitmq.spark.errors import JobError
from orbitmq.spark.jobs.frames import is_archive
from orbitmq.spark.option_values import addresses

REQUEST_TIMEOUT_MS = 10_000


def check_read(topics: Sequence[str], name_servers: str) -> None:
    """Check that these topics can be read.

    Raises:
        JobError: a topic's name is invalid.
        TopicNotFoundError: a topic does not exist.
        NotPermittedError: a topic's permission does not allow reading.
        UnreachableError: no name server answers.
    """
    for topic in topics:
        if fault := reserved.topic_fault(topic):
            raise JobError(f"{topic!r} is no topic to read: {fault}")
    _brokers(name_servers).readable(topics)


def check_written(topic: str, name_servers: str) -> None:
    """Check that messages can be sent to this topic now. Errors as with :func:`check_read`."""
    if is_archive(topic) or (fault := reserved.topic_fault(topic)):
        raise JobError(f"{topic!r} is no topic to send to{'' if is_archive(topic) else f': {fault}'}")
    brokers = _brokers(name_servers)
    brokers.check_may_write(topic)
    if not brokers.route(topic).writable:
        raise JobError(f"topic {topic!r} has no queue that can be written now")


def _brokers(name_servers: str) -> Brokers:
    return Brokers(addresses(name_servers), REQUEST_TIMEOUT_MS)
