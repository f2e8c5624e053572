"""Telling that there are messages to pop (NotificationProcessor)."""

from __future__ import annotations

from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.handlers.waiting import WaitingClient
from orbitmq.broker.pop.service import Pops, PopsFullError
from orbitmq.runtime.seam import Clock
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_headers as headers
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command


class PopNoticeHandlers(Family):
    """NOTIFICATION: for clients that pop only when there is something."""

    def __init__(self, clock: Clock, pops: Pops) -> None:
        self._clock = clock
        self._pops = pops

    def routes(self) -> dict[int, Handler]:
        return {RequestCode.NOTIFICATION: self.notification}

    def notification(self, connection: ServerConnection, command: Command) -> Answer:
        """Say whether there are messages, now or when some come."""
        now = self._clock.now_ms()
        command.ext.setdefault("bornTime", str(now))
        header = headers.NotificationRequest.from_ext(command.ext)
        client = _NoticeClient(connection, command)
        way_ms = connection.clock.way_ms(header.born_time or now, now)
        wait_ms = header.poll_time - way_ms if header.poll_time > 0 else 0
        try:
            found = self._pops.has_messages(
                header.consumer_group,
                header.topic,
                header.queue_id,
                ordered=header.order,
                attempt_id=header.attempt_id,
                wait_ms=wait_ms,
                client=client,
            )
        except PopsFullError:
            return headers.NotificationResponse(has_msg=False, polling_full=True).reply_to(command)
        return None if found is None else client.response(found)


class _NoticeClient(WaitingClient):
    """The client behind a request for a notice."""

    __slots__ = ()

    def answer(self, has_messages: bool) -> None:
        self._connection.send(self.response(has_messages))

    def response(self, has_messages: bool) -> Command:
        """The command for an answer."""
        return headers.NotificationResponse(has_msg=has_messages).reply_to(self._command)
