"""What is done about a broker that does not answer while a batch needs it."""

from __future__ import annotations

import logging

from orbitmq.runtime.worker import this_worker
from orbitmq.spark.cluster.brokers import Brokers, Missing, Patience
from orbitmq.spark.errors import UnreachableError
from orbitmq.spark.options import ReadOptions

log = logging.getLogger("orbitmq.spark")

WARNING_SECONDS = 60.0


class Silence:
    """Failures in a row of one broker, and how long they are borne.

    A batch read gives up when they have lasted for ``offsetTimeout``. What a batch of a stream reads is fixed
    when it is planned, and the death of one broker must not end a stream: it waits for as long as another
    broker answers, and tells so once a minute.

    Args:
        patience: the time-out; who reads tells it of successes.
    """

    def __init__(self, brokers: Brokers, options: ReadOptions, patience: Patience) -> None:
        self._brokers = brokers
        self._options = options
        self._patience = patience
        self._warned = -WARNING_SECONDS

    def bear(self, error: Missing, broker_name: str | None) -> None:
        """Wait a little after a failure.

        Args:
            error: what is wrong; raised when it is not borne any longer.
            broker_name: of the broker that does not answer; ``None``: it may be any.
        """
        if self._patience.is_over:
            # Name servers forget a topic with its last broker, so an unknown one is silence, too.
            if not self._is_outlasted(broker_name):
                raise error
            self._warn(error, broker_name)
            self._patience.succeeded()
        elif self._options.is_stream and self._patience.lasted_s >= WARNING_SECONDS:
            self._warn(error, broker_name)
        self._patience.pause()

    def _is_outlasted(self, broker_name: str | None) -> bool:
        if not self._options.is_stream:
            return False
        topics = self._options.topics
        if self._options.topic_pattern is not None:
            try:
                topics = self._brokers.topics_like(self._options.topic_pattern)
            except UnreachableError:
                topics = ()  # those whose routes are known have to do
        return self._brokers.another_answers(topics, broker_name)

    def _warn(self, error: Exception, broker_name: str | None) -> None:
        now = this_worker().clock.monotonic()
        if now - self._warned >= WARNING_SECONDS:
            self._warned = now
            log.warning("a batch waits for %s: %s", broker_name or "a broker that does not answer", error)
