"""The tables that a RocketMQ slave copies from its master (SlaveSynchronize), and their refusal."""

from __future__ import annotations

from functools import partial

from orbitmq.broker.handlers.base import Answer, Handler
from orbitmq.broker.role import RoleState
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError

# Each answer replaces the slave's table: after an empty one the slave deletes its topics, groups and modes,
# and begins anew with its timers. After a refusal the slave keeps everything and tries again.
CODES = frozenset(
    {
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_TIMER_CHECK_POINT,
        RequestCode.GET_TIMER_METRICS,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
    }
)


class SlaveTables:
    """Refuses to send these tables while this broker may have lost their content."""

    def __init__(self, role: RoleState) -> None:
        self._role = role

    def around(self, _code: int, handler: Handler) -> Handler:
        """``handler``, refused while the tables may be lost."""
        return partial(self._tell, handler)

    def _tell(self, handler: Handler, connection: ServerConnection, command: Command) -> Answer:
        if self._role.lacks_tables():
            raise RemotingError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "this master began without a log: it gives no tables before it has asked the other brokers "
                "of its name, since its disk may have been lost and one of them may have what was there",
            )
        return handler(connection, command)
