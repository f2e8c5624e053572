"""Measures how long administrators' requests that create topics or groups take."""

from __future__ import annotations

from inspect import isawaitable

from orbitmq.broker.counts import Counts
from orbitmq.broker.handlers.base import Answer, Handler
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.runtime.seam import Clock
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

OF_TOPICS = frozenset({RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST})
CODES = OF_TOPICS | {
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
}


class CreationTimes:
    """Notes the time of each request that makes topics or groups."""

    def __init__(self, clock: Clock, counts: Counts, topics: TopicConfigs) -> None:
        self._clock = clock
        self._counts = counts
        self._topics = topics

    def around(self, _code: int, handler: Handler) -> Handler:
        """``handler``, with the time noted that each call takes."""

        def timed(connection: ServerConnection, command: Command) -> Answer:
            return self._timed(handler, connection, command)

        return timed

    async def _timed(
        self, handler: Handler, connection: ServerConnection, command: Command
    ) -> Command | None:
        begin, success = self._clock.monotonic(), False
        try:
            answer = handler(connection, command)
            done = await answer if isawaitable(answer) else answer
            success = done is not None and done.code == ResponseCode.SUCCESS
            return done
        finally:
            took_ms = int((self._clock.monotonic() - begin) * 1000)
            if command.code in OF_TOPICS:
                system = self._topics.is_system(command.ext.get("topic", ""))
                self._counts.topic_ms[success, system].note(took_ms)
            else:
                self._counts.group_ms[success].note(took_ms)
