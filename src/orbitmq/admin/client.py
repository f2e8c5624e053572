"""``Admin``: inspects and changes a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from orbitmq.admin.access import AccessAdmin
from orbitmq.admin.broker_admin import BrokerAdmin
from orbitmq.admin.clients import ClientAdmin
from orbitmq.admin.cluster_client import ClusterClient
from orbitmq.admin.dead_letters import DeadLetterAdmin
from orbitmq.admin.definitions import DefinitionAdmin
from orbitmq.admin.groups import GroupAdmin
from orbitmq.admin.messages import MessageAdmin
from orbitmq.admin.quotas import QuotaAdmin
from orbitmq.admin.tables import GROUPS, TOPICS, Tables
from orbitmq.admin.timers import TimerAdmin
from orbitmq.admin.topics import TopicAdmin
from orbitmq.client.core.name_servers import NameServers, name_servers_of
from orbitmq.client.keywords import takes
from orbitmq.client.ranges import check_options
from orbitmq.durations import Duration, milliseconds
from orbitmq.errors import ValidationError
from orbitmq.runtime import Runtime, system_runtime
from orbitmq.runtime.client_tls import Tls
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.identity import Identity
from orbitmq.wire.signing import CredentialsSource

TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminOptions:
    name_servers: str | Sequence[str] | None = field(default=None, kw_only=False)
    timeout: Duration = TIMEOUT_S
    credentials: CredentialsSource | None = None
    tls: Tls | None = None
    runtime: Runtime | None = None

    def __post_init__(self) -> None:
        check_options(self)
        given = self.name_servers
        if given is None or isinstance(given, str):
            return
        if not isinstance(given, Sequence) or not all(isinstance(each, str) for each in given):
            raise ValidationError(f"name_servers must be a string or a list of strings, got {given!r:.80}")

    @property
    def text(self) -> str | None:
        """The name servers as one text."""
        given = self.name_servers
        return given if given is None or isinstance(given, str) else ";".join(given)


class Admin:
    """Operations on the cluster behind some name servers. Use it as an async context manager.

    Reading operations change nothing in the cluster: they create no group and move no offset. Requests to
    several brokers are sent at the same time, and return a :class:`~orbitmq.admin.Partial`: the result of the
    brokers that answered (``found``), and the other brokers (``left_out``); ``whole()`` raises an error if a
    broker is left out. A change that was not made everywhere raises :class:`~orbitmq.admin.IncompleteError`.

    Attributes:
        brokers: the brokers, their state and settings.
        clients: connected producers and consumers.
        topics: topics, their routes and offsets.
        groups: consumer groups: members, lag, reset, clone.
        messages: stored messages by id and key, and their traces.
        dead_letters: dead letters: their numbers, and sending them again.
        timers: timer messages that wait for their delivery time.
        definitions: export of topics and groups from one cluster and import into another.
        access: users and their rules.

    Example::

        async with Admin("127.0.0.1:9876") as admin:
            await admin.topics.create("flights", queues=8)
            status = await admin.topics.status("flights")
            for queue in status.whole():
                print(queue.queue, queue.count)

    Args:
        name_servers: "host:port;host:port" or a list of such addresses, an address server's URL or
            ``dns://name:port``; default: the value of ``NAMESRV_ADDR``, else ``127.0.0.1:9876``.
        timeout: limit of each request, in seconds or as a timedelta.
        credentials: ``Credentials(access_key, secret_key)`` that every request is signed with, or a function
            that is called for each request and returns them.
        tls: ``Tls(ca=, cert=, key=)`` for servers that speak TLS; without it connections are plain TCP.
        runtime: the machine; the real one by default.

    Raises:
        ValidationError: an address is invalid, or the timeout is not 0.001 to 600 s.
    """

    @takes(AdminOptions)
    def __init__(self, settings: AdminOptions) -> None:
        used = settings.runtime or system_runtime()
        source = name_servers_of(settings.text, used.host)
        if not source:
            raise ValidationError("no name server is given; expected host:port;host:port")
        self._client = RemotingClient(used, identity=Identity(settings.credentials, settings.tls))
        self._name_servers = NameServers(self._client, source)
        cluster = ClusterClient(self._client, self._name_servers, milliseconds(settings.timeout))
        self._cluster = cluster
        self.brokers = BrokerAdmin(cluster)
        groups = Tables(cluster, GROUPS)
        self.clients = ClientAdmin(cluster, groups)
        self.topics = TopicAdmin(cluster, Tables(cluster, TOPICS))
        self.groups = GroupAdmin(cluster, groups)
        self.messages = MessageAdmin(cluster)
        self.dead_letters = DeadLetterAdmin(cluster)
        self.timers = TimerAdmin(cluster, self.messages.by_unique_id, used.clock.now_ms)
        self.access = AccessAdmin(cluster)
        self.quotas = QuotaAdmin(cluster)
        self.definitions = DefinitionAdmin(cluster, self.topics, self.groups, self.access)

    async def __aenter__(self) -> Admin:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._name_servers.close()
        await self._client.close()


def cluster_of(admin: Admin) -> ClusterClient:
    """The connections of an ``Admin``, for requests without a method of their own."""
    return admin._cluster
