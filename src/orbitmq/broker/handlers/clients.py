"""Clients: heartbeats, who is online (ClientManageProcessor, ConsumerManageProcessor)."""

from __future__ import annotations

from collections.abc import Awaitable

from orbitmq.broker.clients.heartbeats import Heartbeats
from orbitmq.broker.clients.listing import ClientListing
from orbitmq.broker.clients.registry import Client
from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.messaging.filters import Filters
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire import all_headers as headers
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command


async def _reply_when(done: Awaitable[None], reply: Command) -> Command:
    await done
    return reply


class ClientHandlers(Family):
    """Heartbeats and what follows from them."""

    def __init__(self, heartbeats: Heartbeats, listing: ClientListing, filters: Filters) -> None:
        self._heartbeats = heartbeats
        self._listing = listing
        self._filters = filters

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.HEART_BEAT: self.heart_beat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_config,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self.consumer_list,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self.consumer_connections,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self.producer_connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self.all_producers,
        }

    def heart_beat(self, connection: ServerConnection, command: Command) -> Answer:
        """Note who is there; the answer says whether the subscriptions are to be sent again."""
        data = bodies.HeartbeatData.decode(command.body)
        client = Client(connection, data.client_id, command.language, command.version)
        again = self._heartbeats.take(client, data)
        reply = command.reply(
            ext={"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if again else "false"}
        )
        waits = self._heartbeats.announced(data)
        return reply if waits is None else _reply_when(waits, reply)

    def unregister(self, connection: ServerConnection, command: Command) -> Answer:
        """A client leaves a producer group, a consumer group or both."""
        header = headers.UnregisterClientRequest.from_ext(command.ext)
        self._heartbeats.leave(
            connection, producer_group=header.producer_group, consumer_group=header.consumer_group
        )
        return command.reply()

    def check_config(self, _connection: ServerConnection, command: Command) -> Answer:
        """Whether this broker can filter by the client's expression, and what is wrong with it."""
        data = bodies.CheckClientRequestBody.decode(command.body).subscription_data
        if data is not None:
            self._filters.of_subscription(data)
        return command.reply()

    def consumer_list(self, _connection: ServerConnection, command: Command) -> Answer:
        """The client ids of a group, for rebalancing."""
        group = headers.GetConsumerListByGroupRequest.from_ext(command.ext).consumer_group
        ids = self._listing.consumer_ids(group)
        return command.reply(body=bodies.GetConsumerListByGroupResponseBody(consumer_id_list=ids).encode())

    def consumer_connections(self, _connection: ServerConnection, command: Command) -> Answer:
        """Who consumes for a group, and what."""
        group = headers.GetConsumerConnectionListRequest.from_ext(command.ext).consumer_group
        return command.reply(body=self._listing.consumers(group).encode())

    def producer_connections(self, _connection: ServerConnection, command: Command) -> Answer:
        """Who produces for a group."""
        group = headers.GetProducerConnectionListRequest.from_ext(command.ext).producer_group
        return command.reply(body=self._listing.producers(group).encode())

    def all_producers(self, _connection: ServerConnection, command: Command) -> Answer:
        """Every producer by group."""
        return command.reply(body=self._listing.all_producers().encode())
