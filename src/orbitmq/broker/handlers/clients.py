"""Clients: heartbeats, lists of clients online, sharing of queues (ClientManageProcessor)."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from functools import partial

from orbitmq.broker.change_feed import LOCKS
from orbitmq.broker.clients.assignment import Assignments
from orbitmq.broker.clients.consumer_requests import ConsumerRequests
from orbitmq.broker.clients.heartbeats import Heartbeats
from orbitmq.broker.clients.listing import ClientListing
from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.broker.clients.registry import Client
from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily, answer_with, reply_after
from orbitmq.broker.handlers.tables import encode_with_tables, table_of
from orbitmq.broker.messaging.filters import Filters
from orbitmq.broker.metadata.access import MetadataAccess
from orbitmq.message.model import MessageQueue
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.stats import GetConsumerStatusBody
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.client import ConsumeMessageDirectlyRequest, GetConsumerRunningInfoRequest
from orbitmq.wire.headers.offset import InvokeBrokerToGetConsumerStatusRequest


async def _reply_when(done: Awaitable[None], reply: Command) -> Command:
    await done
    return reply


class ClientHandlers(HandlerFamily):
    """Heartbeats, lists of clients, and checks of clients' filters."""

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
        """Register the client; the answer shows whether it has to send its subscriptions again."""
        data = bodies.HeartbeatData.decode(command.body)
        client = Client(connection, data.client_id, command.language, command.version)
        again = self._heartbeats.take(client, data)
        reply = command.reply(
            ext={"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true" if again else "false"}
        )
        waits = self._heartbeats.announced(data)
        return reply if waits is None else _reply_when(waits, reply)

    def unregister(self, connection: ServerConnection, command: Command) -> Answer:
        """Remove a client from a producer group, a consumer group or both."""
        header = headers.UnregisterClientRequest.from_ext(command.ext)
        self._heartbeats.leave(
            connection, producer_group=header.producer_group, consumer_group=header.consumer_group
        )
        return command.reply()

    def check_config(self, _connection: ServerConnection, command: Command) -> Answer:
        """Check whether this broker can filter by the client's expression; if not, the remark says why."""
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
        """The consumers of a group and their subscriptions."""
        group = headers.GetConsumerConnectionListRequest.from_ext(command.ext).consumer_group
        return command.reply(body=self._listing.consumers(group).encode())

    def producer_connections(self, _connection: ServerConnection, command: Command) -> Answer:
        """The producers of a group."""
        group = headers.GetProducerConnectionListRequest.from_ext(command.ext).producer_group
        return command.reply(body=self._listing.producers(group).encode())

    async def all_producers(self, _connection: ServerConnection, command: Command) -> Command:
        """Every producer by group; with the header field ``consumers=true`` also every consumer."""
        body, tables = bodies.ProducerTableInfo(), {"data": table_of(self._listing.all_producers())}
        if command.ext.get("consumers") == "true":
            body.consumers = {}
            tables["consumers"] = table_of(self._listing.all_consumers())
        return command.reply(body=await encode_with_tables(body, **tables))


class AssignmentHandlers(HandlerFamily):
    """QUERY_ASSIGNMENT, SET_MESSAGE_REQUEST_MODE, GET_ALL_MESSAGE_REQUEST_MODE."""

    def __init__(self, assignments: Assignments) -> None:
        self._assignments = assignments

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_ASSIGNMENT: self.query,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.modes,
        }

    async def query(self, _connection: ServerConnection, command: Command) -> Command:
        """The queues of one member; the body has no list when they are unknown now."""
        found = await self._assignments.of(bodies.QueryAssignmentRequestBody.decode(command.body))
        return command.reply(body=bodies.QueryAssignmentResponseBody(found).encode())

    def set_mode(self, _connection: ServerConnection, command: Command) -> Answer:
        """Switch a group between pulling and popping."""
        mode = bodies.SetMessageRequestModeRequestBody.decode(command.body)
        return reply_after(self._assignments.set_mode(mode), command)

    def modes(self, _connection: ServerConnection, command: Command) -> Answer:
        """The message request modes as ``messageRequestMode.json`` holds them, for slaves to copy."""
        return command.reply(body=self._assignments.modes().encode())


class ForwardHandlers(HandlerFamily):
    """Requests that the broker passes on to a consumer, which answers them."""

    def __init__(self, requests: ConsumerRequests) -> None:
        self._requests = requests

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.status,
        }

    def running_info(self, _connection: ServerConnection, command: Command) -> Answer:
        """A consumer's information about itself."""
        header = GetConsumerRunningInfoRequest.from_ext(command.ext)
        question = Command(command.code, dict(command.ext), command.body)
        answer = self._requests.ask(header.consumer_group, header.client_id, question)
        return answer_with(answer, partial(_passed_on, command))

    def consume_directly(self, _connection: ServerConnection, command: Command) -> Answer:
        """Let a consumer consume one stored message now."""
        header = ConsumeMessageDirectlyRequest.from_ext(command.ext)
        answer = self._requests.consume_directly(header, command.ext)
        return answer_with(answer, partial(_passed_on, command))

    def status(self, _connection: ServerConnection, command: Command) -> Answer:
        """The offsets in a topic that each consumer of a group reports."""
        header = InvokeBrokerToGetConsumerStatusRequest.from_ext(command.ext)
        statuses = self._requests.statuses(header.group, header.topic, header.client_addr)
        return answer_with(statuses, partial(_statuses, command))


def _passed_on(command: Command, answer: Command) -> Command:
    return command.reply(answer.code, answer.remark, answer.ext, answer.body)


def _statuses(command: Command, statuses: dict[str, dict[MessageQueue, int]]) -> Command:
    return command.reply(body=GetConsumerStatusBody(consumer_table=statuses).encode())


class QueueLockHandlers(HandlerFamily):
    """LOCK_BATCH_MQ and UNLOCK_BATCH_MQ of a broker without replication."""

    def __init__(self, locks: QueueLocks, metadata: MetadataAccess) -> None:
        self._locks = locks
        self._metadata = metadata

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.LOCK_BATCH_MQ: self.lock,
            RequestCode.UNLOCK_BATCH_MQ: self.unlock,
        }

    async def lock(self, _connection: ServerConnection, command: Command) -> Command:
        """Lock queues for an orderly consumer; a new lock is on the disk before the answer."""
        request = bodies.LockBatchRequestBody.decode(command.body)
        group, client_id = request.consumer_group, request.client_id
        held: Iterable[MessageQueue] = self._locks.lock(group, client_id, request.mq_set)
        if not self._locks.all_shared(group, held):
            await self._metadata.save(LOCKS)
            held = self._locks.share(group, client_id, held)
        return command.reply(body=bodies.LockBatchResponseBody(lock_ok_mq_set=set(held)).encode())

    def unlock(self, _connection: ServerConnection, command: Command) -> Answer:
        """Give locked queues back."""
        request = bodies.UnlockBatchRequestBody.decode(command.body)
        self._locks.unlock(request.consumer_group, request.client_id, request.mq_set)
        return command.reply()
