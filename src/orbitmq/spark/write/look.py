"""Checks on the driver before a task begins: name servers answer, and the topic accepts messages."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from orbitmq.errors import TopicNotFoundError
from orbitmq.message.reserved import AUTO_CREATE_TOPIC, topic_fault
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.cluster.brokers import Brokers, RetryWindow
from orbitmq.spark.cluster.routes import QueueAddresses
from orbitmq.spark.errors import OptionError, SinkStateError, UnreachableError
from orbitmq.spark.options import WriteOptions, state_beside
from orbitmq.spark.write.sink_state import FolderState

log = logging.getLogger("orbitmq.spark")

# How long to wait for an unknown topic, which may have just been created.
UNKNOWN_MS = 1_000
# How long the driver tries name servers that do not answer.
LOOK_MS = 3_000
ANSWER_MS = 1_500


def looked_up(options: WriteOptions) -> Mapping[str, QueueAddresses]:
    """The route of the topic in the option topic; empty if a column names the topics.

    A stream's driver writes its routes to a file beside its checkpoint, since Spark creates a writer for each
    batch and another for each commit, often in another process. While no name server answers, a batch uses
    that file.

    Raises:
        UnreachableError: no name server answers, and there is no file of routes.
        TopicNotFoundError: the topic does not exist.
        NotPermittedError: the topic's permission does not allow writing (or reading, where that is needed).
    """
    folder = _folder(options)
    noted = folder.noted_routes() if folder is not None else None
    brokers = Brokers(
        options.name_servers, min(options.request_timeout_ms, ANSWER_MS), noted, options.identity
    )
    routes: dict[str, QueueAddresses] = {}
    if options.topic is not None:
        routes[options.topic] = route_to_write(brokers, options.topic, options, LOOK_MS)
    elif noted is None:
        _ask_anything(brokers)
    if folder is not None and routes != noted:
        try:
            folder.note_routes(routes)
        except SinkStateError as error:
            log.info("routes are not noted: %s", error)
    return routes


def _folder(options: WriteOptions) -> FolderState | None:
    """The folder of the file with a stream's routes: the folder of its state, else one beside its
    checkpoint.
    """
    if options.checkpoint is None:
        return None
    try:
        return FolderState(options.state_location or state_beside(options.checkpoint))
    except OptionError as error:
        log.info("routes are not noted: %s", error)
        return None


def _ask_anything(brokers: Brokers) -> None:
    window = RetryWindow(LOOK_MS)
    while True:
        try:
            brokers.route(AUTO_CREATE_TOPIC)
        except TopicNotFoundError:
            return
        except UnreachableError:
            if window.is_over:
                raise
            window.pause()
        else:
            return


def route_to_write(brokers: Brokers, topic: str, options: WriteOptions, limit_ms: int) -> QueueAddresses:
    """The route of a topic, after a check that messages can be sent to it.

    Args:
        limit_ms: how long to wait while no name server or broker answers.

    Raises:
        TopicNotFoundError: the topic did not exist for :data:`UNKNOWN_MS`, or its name is invalid.
        NotPermittedError: the topic's permission does not allow writing.
        UnreachableError: no name server or broker answered in time.
    """
    fault = topic_fault(topic)
    if fault is not None:
        raise TopicNotFoundError(topic, f"no topic can be named {topic!r}: {fault}")
    clock = this_worker().clock
    unknown, silent = RetryWindow(min(UNKNOWN_MS, limit_ms)), RetryWindow(limit_ms)
    begin = clock.monotonic()
    while True:
        try:
            route = brokers.route(topic, refresh=True)
            brokers.check_there(topic)
            brokers.check_may_write(topic)
            if options.is_exact:
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
