"""Waits for a broker that does not answer although a batch needs it."""

from __future__ import annotations

import logging

from orbitmq.runtime.worker import this_worker
from orbitmq.spark.cluster.brokers import Brokers, Missing, RetryWindow
from orbitmq.spark.errors import UnreachableError
from orbitmq.spark.options import ReadOptions

log = logging.getLogger("orbitmq.spark")

WARNING_SECONDS = 60.0


class Silence:
    """Decides how long a read continues despite the failures of one broker.

    A batch read gives up after ``offsetTimeout``. A stream's batch has fixed ranges after its planning, and
    the loss of one broker must not end a stream: it waits while another broker answers, and logs that once a
    minute.

    Args:
        window: how long failures may last; a successful pull resets it.
    """

    def __init__(self, brokers: Brokers, options: ReadOptions, window: RetryWindow) -> None:
        self._brokers = brokers
        self._options = options
        self._window = window
        self._warned = -WARNING_SECONDS

    def wait_or_raise(self, error: Missing, broker_name: str | None) -> None:
        """Wait a little after a failure, or raise its error if the failures have lasted too long.

        Args:
            error: the error of the failure.
            broker_name: the broker that does not answer; ``None`` if it is unknown.
        """
        if self._window.is_over:
            # Name servers forget a topic with its last broker, so an unknown topic may also be a topic whose
            # broker is away.
            if not self._is_outlasted(broker_name):
                raise error
            self._warn(error, broker_name)
            self._window.succeeded()
        elif self._options.is_stream and self._window.lasted_s >= WARNING_SECONDS:
            self._warn(error, broker_name)
        self._window.pause()

    def _is_outlasted(self, broker_name: str | None) -> bool:
        if not self._options.is_stream:
            return False
        topics = self._options.topics
        if self._options.topic_pattern is not None:
            try:
                topics = self._brokers.topics_like(self._options.topic_pattern)
            except UnreachableError:
                topics = ()  # only topics with known routes are considered
        return self._brokers.another_answers(topics, broker_name)

    def _warn(self, error: Exception, broker_name: str | None) -> None:
        now = this_worker().clock.monotonic()
        if now - self._warned >= WARNING_SECONDS:
            self._warned = now
            log.warning("a batch waits for %s: %s", broker_name or "a broker that does not answer", error)
