"""Connections, routes, heartbeats and requests from servers, shared by the clients of one process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

from orbitmq.client.core.heartbeats import Heartbeats
from orbitmq.client.core.name_servers import TIMEOUT_MS, NameServers, name_servers_of
from orbitmq.client.core.namespaced import NamespacedRemoting
from orbitmq.client.core.routes import RouteCache
from orbitmq.client.core.routing import TopicRoute, topic_route
from orbitmq.client.validation import check_client_id
from orbitmq.errors import ClientStateError, NotPermittedError, OrbitError, TopicNotFoundError
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import AUTO_CREATE_TOPIC, MASTER_ID
from orbitmq.message.utf8 import check_utf8
from orbitmq.runtime.client_tls import Tls
from orbitmq.runtime.seam import Runtime
from orbitmq.runtime.tasks import Background
from orbitmq.transport.client import MAX_IN_FLIGHT, RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.transport.identity import Identity
from orbitmq.wire.bodies.client import ConsumerData
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.connection import not_supported
from orbitmq.wire.refusals import error_of
from orbitmq.wire.signing import CredentialsSource
from orbitmq.wording import counted

log = logging.getLogger("orbitmq.client")

# Shortest time between two refreshes of the routes.
LEAST_ROUTE_PAUSE_S = 0.02
REQUEST_TIMEOUT_MS = 3000
# How long a broker that has left the routes may still answer its requests.
LAST_ANSWERS_S = 0.5
DEFAULT_TOPIC_QUEUES = 4

# Broker requests about a consumer group, and the field that holds the group's name.
GROUP_FIELDS: Mapping[int, str] = {
    int(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED): "consumerGroup",
    int(RequestCode.RESET_CONSUMER_CLIENT_OFFSET): "group",
    int(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT): "group",
    int(RequestCode.GET_CONSUMER_RUNNING_INFO): "consumerGroup",
    int(RequestCode.CONSUME_MESSAGE_DIRECTLY): "consumerGroup",
}

P = TypeVar("P")

ServerRequestHandler = Callable[[Any, Command], "Command | Awaitable[Command | None] | None"]


class GroupMember(Protocol):
    """The interface of a consumer to the shared core."""

    def consumer_data(self) -> ConsumerData: ...

    def handle_request(self, command: Command) -> Command | Awaitable[Command | None] | None:
        """Handle a request of a broker about this consumer."""
        ...

    def route_changed(self, topic: str) -> None: ...


class ClientInstance:
    """The shared core of producers and consumers.

    Args:
        runtime: the machine.
        name_servers: ``host:port;host:port``, the URL of an address server
            (``http://host:8080/rocketmq/nsaddr``), or ``dns://name:port``. None: ``NAMESRV_ADDR``, else
            ``127.0.0.1:9876``.
        client_id: the name by which brokers know this client; by default made of host, process and a random
            number.
        default_topic_queues: queues of a topic that a broker creates on the first message.
        namespace_v2: sent along with every request (NamespaceRpcHook), empty for none.
        max_async: the most requests that wait for an answer at a time (clientAsyncSemaphoreValue, AS-01).
        max_oneway: the most one-way requests in the course of writing (clientOnewaySemaphoreValue, AS-02).
        credentials: the keys that every request is signed with, or a function that gives them.
        tls: the TLS settings for name servers and brokers; None: plain TCP.
    """

    def __init__(
        self,
        runtime: Runtime,
        name_servers: str | None = None,
        *,
        client_id: str | None = None,
        default_topic_queues: int = DEFAULT_TOPIC_QUEUES,
        namespace_v2: str = "",
        max_async: int = MAX_IN_FLIGHT,
        max_oneway: int = MAX_IN_FLIGHT,
        credentials: CredentialsSource | None = None,
        tls: Tls | None = None,
    ) -> None:
        check_utf8("namespace_v2", namespace_v2)
        if client_id is not None:
            check_client_id(client_id)
        self.runtime = runtime
        self.identity = identity = Identity(credentials, tls)
        self.client_id = client_id or _make_client_id(runtime)
        self.default_topic_queues = default_topic_queues
        self.remoting = (
            NamespacedRemoting(
                namespace_v2, runtime, identity, self._handle, max_async, max_oneway, self._lost
            )
            if namespace_v2
            else RemotingClient(
                runtime,
                identity=identity,
                handle=self._handle,
                max_async=max_async,
                max_oneway=max_oneway,
                on_lost=self._lost,
            )
        )
        source = name_servers_of(name_servers, runtime.host)
        self.name_servers = NameServers(self.remoting, source, spread=True)
        self._routes = RouteCache()
        # Set when a route may have to be refreshed before its regular time.
        self._routes_changed = asyncio.Event()
        self._send_topics: set[str] = set()
        self._refreshing: dict[str, asyncio.Task[TopicRoute | None]] = {}
        self._producers: dict[str, int] = {}
        self._consumers: dict[str, GroupMember] = {}
        self._handlers: dict[int, ServerRequestHandler] = {}
        self._shared_parts: dict[Callable[[ClientInstance], Any], Any] = {}
        self._background = Background("client")
        self._heartbeats = Heartbeats(
            runtime,
            self._background,
            self.client_id,
            self.invoke,
            self._brokers,
            self._producers,
            self._consumers,
        )
        self._users = 0
        self._started = False
        self._closed = False

    # -- life ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the background loops; each start needs its own :meth:`close`.

        Raises:
            ClientStateError: the last user has closed this instance, or it was started in another event loop.
        """
        if self._closed:
            raise ClientStateError("this client instance was closed; make a new one")
        self.remoting.use_here()
        self._users += 1
        if not self._started:
            self._started = True
            self._heartbeats.start()
            self._background.spawn(self._keep_routes_fresh(), "routes")

    async def close(self) -> None:
        """Stop the instance when its last user closes it."""
        self._users -= 1
        if self._users > 0 or not self._started:
            return
        self._started = False
        self._closed = True
        refreshing = list(self._refreshing.values())
        for task in refreshing:
            task.cancel()
        await asyncio.gather(*refreshing, return_exceptions=True)
        await self._background.stop()
        await self.name_servers.close()
        await self.remoting.close()

    def now_ms(self) -> float:
        """Milliseconds on the monotonic clock that routes, faults and budgets use."""
        return self.runtime.clock.monotonic() * 1000

    # -- groups ----------------------------------------------------------------------------------------

    def register_producer(self, group: str) -> None:
        self._producers[group] = self._producers.get(group, 0) + 1

    async def unregister_producer(self, group: str) -> None:
        """Unregister this client from the producers of ``group`` at the brokers."""
        count = self._producers.get(group, 0) - 1
        if count > 0:
            self._producers[group] = count
            return
        self._producers.pop(group, None)
        await self._unregister({"producerGroup": group})

    def register_consumer(self, group: str, member: GroupMember) -> None:
        """Add a consumer.

        Raises:
            ClientStateError: this client has a consumer of the group already, or works in another event loop.
        """
        self.remoting.use_here()
        if group in self._consumers:
            raise ClientStateError(f"this client instance has a consumer of group {group!r} already")
        self._consumers[group] = member
        # The brokers do not have the new group yet: send all of them a heartbeat.
        self._heartbeats.greeted.clear()

    async def unregister_consumer(self, group: str) -> None:
        """Remove a consumer and unregister it at the brokers, so that other members take over at once."""
        if self._consumers.pop(group, None) is not None:
            await self._unregister({"consumerGroup": group})

    async def _unregister(self, fields: dict[str, str]) -> None:
        ext = {"clientID": self.client_id, **fields}

        async def tell(address: str) -> None:
            try:
                await self.remoting.request(
                    address, Command(code=RequestCode.UNREGISTER_CLIENT, ext=dict(ext)), 1000
                )
            except TransportError as error:
                log.info("could not unregister from %s: %s", address, error)

        await asyncio.gather(*(tell(address) for address in sorted(self._heartbeats.told)))

    def on_server_request(self, code: int, handler: ServerRequestHandler) -> None:
        """Register ``handler(connection, command)`` for requests of this code from brokers."""
        self._handlers[code] = handler

    def shared(self, kind: Callable[[ClientInstance], P]) -> P:
        """This client's only object of the class ``kind``, made on first use."""
        found: P | None = self._shared_parts.get(kind)
        if found is None:
            found = self._shared_parts[kind] = kind(self)
        return found

    def consumer(self, group: str) -> GroupMember | None:
        return self._consumers.get(group)

    # -- requests --------------------------------------------------------------------------------------

    async def invoke(self, address: str, command: Command, timeout_ms: float = REQUEST_TIMEOUT_MS) -> Command:
        """Send one request; returns the answer if its code is SUCCESS.

        Raises:
            BrokerError: another response code; NotPermittedError: this client lacks the right.
            TransportError: no answer.
        """
        answer = await self.remoting.request(address, command, max(1, int(timeout_ms)))
        if answer.code != ResponseCode.SUCCESS:
            raise error_of(command, answer, address)
        return answer

    def _handle(self, connection: Any, command: Command) -> Command | Awaitable[Command | None] | None:
        handler = self._handlers.get(command.code)
        if handler is not None:
            return handler(connection, command)
        field = GROUP_FIELDS.get(command.code)
        if field is None:
            return not_supported(command)
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            self._slave_speaks(connection.address)
        group = command.ext.get(field, "")
        member = self._consumers.get(group)
        if member is None:
            return command.reply(
                ResponseCode.SYSTEM_ERROR, f"The Consumer Group <{group}> not exist in this consumer"
            )
        return member.handle_request(command)

    # -- routes ----------------------------------------------------------------------------------------

    def route(self, topic: str) -> TopicRoute | None:
        """The last known route, without a request."""
        return self._routes.get(topic)

    async def find_route(self, topic: str, *, for_send: bool, timeout_ms: float = TIMEOUT_MS) -> TopicRoute:
        """The known route, or if there is none a new one from the name servers.

        Args:
            for_send: an unknown topic takes the route of the default topic, where the first message
                creates it (RT-02).

        Raises:
            NameServerError: no name server is configured, or none answered.
            TopicNotFoundError: the name servers do not have the topic.
        """
        route = self._routes.get(topic)
        if route is not None and (for_send or not route.from_default):
            return route
        self.watch(topic)
        if for_send:
            self._send_topics.add(topic)
        route = await self.refresh(topic, timeout_ms=timeout_ms)
        if route is None or (route.from_default and not for_send):
            if for_send:
                # No caller waits for the route; the topics of consumers are still refreshed.
                self._routes.forget(topic)
            hint = f" and no broker offers {AUTO_CREATE_TOPIC} (autoCreateTopicEnable)" if for_send else ""
            raise TopicNotFoundError(
                topic,
                f"topic {topic!r} is unknown to the name servers "
                f"{';'.join(self.name_servers.addresses)}{hint}",
            )
        return route

    async def refresh(self, topic: str, *, timeout_ms: float = TIMEOUT_MS) -> TopicRoute | None:
        """Request the route from the name servers; concurrent callers share one request.

        Returns the route, None if there is none.

        Raises:
            NameServerError: no name server is configured, or none answered.
        """
        return await asyncio.shield(self._begin_refresh(topic, timeout_ms))

    def _begin_refresh(self, topic: str, timeout_ms: float = TIMEOUT_MS) -> asyncio.Task[TopicRoute | None]:
        task = self._refreshing.get(topic)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._ask(topic, timeout_ms))
            self._refreshing[topic] = task
            task.add_done_callback(lambda done: self._refreshed(topic, done))
        return task

    def _refreshed(self, topic: str, task: asyncio.Task[TopicRoute | None]) -> None:
        if self._refreshing.get(topic) is task:
            del self._refreshing[topic]
        if not task.cancelled() and task.exception() is not None:
            log.debug("route of %s: %s", topic, task.exception())

    async def _ask(self, topic: str, timeout_ms: float) -> TopicRoute | None:
        self._routes.asked(topic, self.now_ms())
        data = await self.name_servers.topic_route(topic, timeout_ms)
        known = self._routes.get(topic)
        if data is not None:
            return self._learn(topic, topic_route(topic, data))
        if topic not in self._send_topics or (known is not None and not known.from_default):
            # The topic has had a route, so its brokers may only be away: keep the old route.
            return known
        data = await self.name_servers.topic_route(AUTO_CREATE_TOPIC, timeout_ms)
        if data is None:
            return known
        return self._learn(topic, topic_route(topic, data, default_queues=self.default_topic_queues))

    def _learn(self, topic: str, route: TopicRoute) -> TopicRoute:
        before = self._routes.get(topic)
        changed = self._routes.put(topic, route, self.now_ms())
        if changed and before is not None:
            self._gone(before.members - route.members)
        self._routes_changed.set()
        if changed:
            log.debug(
                "route of %s: %s to write, %d to read",
                topic,
                counted(len(route.publish), "queue"),
                len(route.subscribe),
            )
            for member in list(self._consumers.values()):
                member.route_changed(topic)
            if self._started and (self._producers or self._consumers):
                self._background.spawn(self.heartbeat(only_new=True), "greet")
        return route

    def _gone(self, addresses: set[str]) -> None:
        """End requests to addresses that have left all routes: the brokers may be frozen."""
        if addresses and self._started:
            self._ask_about(addresses)
            asyncio.get_running_loop().call_later(LAST_ANSWERS_S, self._leave, addresses)

    def _leave(self, addresses: set[str]) -> None:
        named = {address for topic in self._routes.topics() for address in self._members_in(topic)}
        for address in sorted(addresses - named):
            self.remoting.drop_connection(address)
            self._heartbeats.forget(address)

    def _members_in(self, topic: str) -> set[str]:
        route = self._routes.get(topic)
        return route.members if route is not None else set()

    def _ask_about(self, addresses: set[str]) -> None:
        """Refresh all routes with one of these addresses."""
        for topic in self._routes.topics():
            if addresses & self._members_in(topic):
                self._routes.ask_soon(topic)
        self._routes_changed.set()

    def _slave_speaks(self, address: str) -> None:
        """Handle a slave's notice of a change: the slave may act for its master from here on."""
        for topic in self._routes.topics():
            route = self._routes.get(topic)
            if route is not None and address in route.members - route.masters:
                self._routes.ask_soon(topic)
        self._routes_changed.set()

    def has_acting_master(self, broker_name: str) -> bool:
        """Whether this broker has an acting master: a slave that its routes name as master, without a
        writable queue.
        """
        return self.master_of(broker_name) is not None and self.any_queue_of(broker_name) is None

    def suspect(self, topic: str) -> None:
        """Refresh a route after a dead address or a stale answer; concurrent sends that notice it share one
        refresh.
        """
        if self._started and self._routes.suspect(topic, self.now_ms()):
            self._begin_refresh(topic)
        self._routes_changed.set()

    async def settled(self, topic: str) -> None:
        """Return when no request for the route of ``topic`` is in flight.

        Raises:
            NameServerError: the running request got no answer.
        """
        task = self._refreshing.get(topic)
        if task is not None:
            await asyncio.shield(task)

    async def _refresh_quietly(self, topic: str) -> None:
        try:
            await self.refresh(topic)
        except OrbitError as error:
            log.warning("route of %s is not refreshed: %s", topic, error)

    async def _keep_routes_fresh(self) -> None:
        """Refresh each route when it is due."""
        while True:
            self._routes_changed.clear()
            now = self.now_ms()
            try:
                await asyncio.gather(*map(self._refresh_quietly, self._routes.due(now)))
            except Exception:
                # Without fresh routes a client fails sooner or later, so the loop continues after any error.
                log.exception("refreshing routes failed")
            await self.runtime.clock.sleep(LEAST_ROUTE_PAUSE_S)
            now = self.now_ms()
            await self._routes_due((self._routes.next_due_ms(now) - now) / 1000)

    async def _routes_due(self, seconds: float) -> None:
        """Sleep for this time, or until a route has to be refreshed."""
        if seconds <= 0:
            return
        timer = None
        if seconds < float("inf"):
            timer = asyncio.get_running_loop().call_later(seconds, self._routes_changed.set)
        try:
            await self._routes_changed.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def master_of(self, broker_name: str, topic: str = "") -> str | None:
        """Address of a broker's master, preferably from the route of ``topic``.

        The topic's own route comes first because routes are refreshed one by one: the route of another topic
            may still name the slave that acted for the master.
        """
        for known in (topic, *self._routes.topics()):
            route = self._routes.get(known)
            address = route.master(broker_name) if route is not None else None
            if address is not None:
                return address
        return None

    def any_queue_of(self, broker_name: str) -> tuple[str, MessageQueue] | None:
        """A broker's master and one of its queues to write to, from any known route."""
        for topic in self._routes.topics():
            route = self._routes.get(topic)
            address = route.master(broker_name) if route is not None else None
            if route is not None and address is not None:
                for queue in route.publish:
                    if queue.broker_name == broker_name:
                        return address, queue
        return None

    def watch(self, topic: str) -> None:
        """Refresh the route of this topic from here on; consumers receive it through ``route_changed``."""
        self._routes.watch(topic)
        self._routes_changed.set()

    # -- heartbeats ------------------------------------------------------------------------------------

    def _brokers(self) -> set[str]:
        """The masters in use, and their slaves if this client has consumers."""
        found: set[str] = set()
        for topic in self._routes.topics():
            route = self._routes.get(topic)
            if route is None:
                continue
            for members in route.addresses.values():
                found.update(a for i, a in members.items() if i == MASTER_ID or self._consumers)
        return found

    def _lost(self, address: str) -> None:
        if self._started:
            self._heartbeats.lost(address)

    async def heartbeat(self, *, only_new: bool = False) -> None:
        """Send HEART_BEAT to the brokers; returns when they have answered or failed.

        Args:
            only_new: leave out brokers that have had a heartbeat on their present connection.
        """
        await self._heartbeats.send(only_new=only_new)

    def refusal(self) -> NotPermittedError | None:
        """The refusal if a broker refuses this client's keys or rights; else None."""
        return self._heartbeats.refusal()

    def broker_version(self, address: str | None = None) -> int:
        """The protocol version of a broker, or the oldest of all; 0 while it is not known."""
        return self._heartbeats.version(address)


def _make_client_id(runtime: Runtime) -> str:
    return f"{runtime.host.name}@{runtime.host.pid}#{runtime.random.getrandbits(48):012x}"
