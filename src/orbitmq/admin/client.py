"""The operations library: what an operator wants to know of a cluster, or to change in it."""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.admin.asking import Asking
from orbitmq.admin.broker_admin import BrokerAdmin
from orbitmq.admin.dead_letters import DeadLetterAdmin
from orbitmq.admin.groups import GroupAdmin
from orbitmq.admin.messages import MessageAdmin
from orbitmq.admin.timers import TimerAdmin
from orbitmq.admin.topics import TopicAdmin
from orbitmq.client.core.name_servers import NameServers, name_servers_of
from orbitmq.durations import Duration, milliseconds, seconds
from orbitmq.errors import ValidationError
from orbitmq.runtime import Runtime, system_runtime
from orbitmq.transport.client import RemotingClient

TIMEOUT_S = 5.0
MAX_TIMEOUT_S = 3600.0


class Admin:
    """Operations on the cluster behind some name servers. Use it as an async context manager.

    Looking at a cluster changes nothing in it: no group is created, no offset moved. Several brokers are
    asked at the same time. A question to several brokers returns a :class:`~orbitmq.admin.Partial`: what the
    brokers that answered have (``found``), and the others (``left_out``); ``whole()`` raises when there are
    such. A change that was not made everywhere raises :class:`~orbitmq.admin.IncompleteError`.

    Attributes:
        brokers: the brokers, their state and settings.
        topics: topics, their routes and offsets.
        groups: consumer groups: members, lag, reset, clone.
        messages: stored messages by id and key, and their traces.
        dead_letters: how many there are, and sending them again.
        timers: messages that wait for their time.

    Example::

        async with Admin("127.0.0.1:9876") as admin:
            await admin.topics.create("flights", queues=8)
            status = await admin.topics.status("flights")
            for queue in status.whole():
                print(queue.queue, queue.count)
    """

    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        *,
        runtime: Runtime | None = None,
        timeout: Duration = TIMEOUT_S,
    ) -> None:
        """``name_servers``: "host:port;host:port" or such addresses, an address server's URL or
        ``dns://name:port``; without it what ``NAMESRV_ADDR`` says, else ``127.0.0.1:9876``. ``timeout``:
        limit of each request, in seconds or as a timedelta.

        Raises:
            ValidationError: not an address, or the timeout is not above 0 to 3,600 s.
        """
        text = name_servers if isinstance(name_servers, str | None) else ";".join(name_servers)
        used = runtime or system_runtime()
        source = name_servers_of(text, used.host)
        if not source:
            raise ValidationError("no name server is given; expected host:port;host:port")
        self._client = RemotingClient(used)
        self._name_servers = NameServers(self._client, source)
        timeout_s = seconds("timeout", timeout, 0, MAX_TIMEOUT_S, above=True)
        asking = Asking(self._client, self._name_servers, milliseconds(timeout_s))
        self.brokers = BrokerAdmin(asking)
        self.topics = TopicAdmin(asking)
        self.groups = GroupAdmin(asking)
        self.messages = MessageAdmin(asking)
        self.dead_letters = DeadLetterAdmin(asking)
        self.timers = TimerAdmin(asking, self.messages.by_unique_id, used.clock.now_ms)

    async def __aenter__(self) -> Admin:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._name_servers.close()
        await self._client.close()
