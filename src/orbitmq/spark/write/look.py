"""What the driver looks at before a task begins: do name servers answer, and does the topic take messages?"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import pyarrow as pa
from pyarrow import fs

from orbitmq.errors import TopicNotFoundError
from orbitmq.message.reserved import AUTO_CREATE_TOPIC, topic_fault
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.cluster.brokers import Brokers, Patience
from orbitmq.spark.cluster.routes import QueueAddresses
from orbitmq.spark.errors import UnreachableError
from orbitmq.spark.locations import pyarrow_uri
from orbitmq.spark.options import AT_LEAST_ONCE, WriteOptions

log = logging.getLogger("orbitmq.spark")

# How long an unknown topic is asked for again: it may have been made a moment ago.
UNKNOWN_MS = 1_000
# How long the driver asks name servers that do not answer.
LOOK_MS = 3_000
ANSWER_MS = 1_500


def looked_up(options: WriteOptions) -> Mapping[str, QueueAddresses]:
    """The route of the option topic; nothing when a column names the topics.

    A query that has committed a batch had the right name servers: its tasks wait for them.

    Raises:
        UnreachableError: no name server answers.
        TopicNotFoundError: there is no such topic.
        NotPermittedError: nobody may write there (or read, where that is needed).
    """
    brokers = Brokers(options.name_servers, min(options.request_timeout_ms, ANSWER_MS), options.routes)
    try:
        if options.topic is None:
            _ask_anything(brokers)
            return {}
        return {options.topic: route_to_write(brokers, options.topic, options, LOOK_MS)}
    except UnreachableError as error:
        if not has_committed(options):
            raise
        log.info("the tasks wait for the name servers: %s", error)
        return {}


def _ask_anything(brokers: Brokers) -> None:
    patience = Patience(LOOK_MS)
    while True:
        try:
            brokers.route(AUTO_CREATE_TOPIC)
        except TopicNotFoundError:
            return
        except UnreachableError:
            if patience.is_over:
                raise
            patience.pause()
        else:
            return


def route_to_write(brokers: Brokers, topic: str, options: WriteOptions, limit_ms: int) -> QueueAddresses:
    """The route of a topic that messages can be sent to.

    Args:
        limit_ms: how long to wait while no name server or broker answers.

    Raises:
        TopicNotFoundError: there is none, for :data:`UNKNOWN_MS`, or no topic can have this name.
        NotPermittedError: its permission does not allow it.
        UnreachableError: nobody answered in time.
    """
    fault = topic_fault(topic)
    if fault is not None:
        raise TopicNotFoundError(topic, f"no topic can be named {topic!r}: {fault}")
    clock = this_worker().clock
    unknown, silent = Patience(min(UNKNOWN_MS, limit_ms)), Patience(limit_ms)
    begin = clock.monotonic()
    while True:
        try:
            route = brokers.route(topic, refresh=True)
            brokers.check_may_write(topic)
            if options.delivery != AT_LEAST_ONCE:
                brokers.check_may_read(topic)
        except TopicNotFoundError:
            if unknown.is_over:
                raise
            unknown.pause()
        except UnreachableError:
            if silent.is_over or clock.monotonic() >= begin + limit_ms / 1000:
                raise
            silent.pause()
        else:
            return route


def has_committed(options: WriteOptions) -> bool:
    """Whether the checkpoint says that the query has committed a batch."""
    if options.checkpoint is None:
        return False
    commits = pyarrow_uri(options.checkpoint.rstrip("/")) + "/commits"
    try:
        files, path = fs.FileSystem.from_uri(commits) if "://" in commits else (fs.LocalFileSystem(), commits)
        return bool(files.get_file_info(fs.FileSelector(path, allow_not_found=True)))
    except (pa.ArrowException, OSError, ValueError) as error:
        log.info("the commits of the checkpoint cannot be listed: %s", error)
        return False
