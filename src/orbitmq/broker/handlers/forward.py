"""Questions of administrators that a client answers: they are sent on to it (Broker2Client)."""

from __future__ import annotations

import asyncio

from orbitmq.broker.clients.registry import Client, ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.ids import parse_offset_message_id
from orbitmq.store import MessageStore
from orbitmq.transport.errors import RequestTimeoutError, TransportError
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.bodies import GetConsumerStatusBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError, WireError
from orbitmq.wire.headers import (
    ConsumeMessageDirectlyRequest,
    GetConsumerRunningInfoRequest,
    GetConsumerStatusFromClientRequest,
    InvokeBrokerToGetConsumerStatusRequest,
)

CLIENT_TIMEOUT_MS = 10_000
STATUS_TIMEOUT_MS = 5_000


class ForwardHandlers(Family):
    """Requests that a consumer answers."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        clients: ClientManager,
        store: MessageStore,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._store = store

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: self.running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self.consume_directly,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self.status,
        }

    def running_info(self, _connection: ServerConnection, command: Command) -> Answer:
        """What a consumer says about itself."""
        header = GetConsumerRunningInfoRequest.from_ext(command.ext)
        client = self._client(header.consumer_group, header.client_id)
        return self._ask(client, command, dict(command.ext), command.body)

    def consume_directly(self, _connection: ServerConnection, command: Command) -> Answer:
        """Let a consumer consume one stored message now."""
        header = ConsumeMessageDirectlyRequest.from_ext(command.ext)
        client = self._client(header.consumer_group, header.client_id or "")
        ext = {**command.ext, "brokerName": self._config.broker_name}
        topic = self._topics.get(header.topic or "")
        if topic is not None:
            ext["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._groups.get(header.consumer_group)
        if group is not None:
            ext["groupSysFlag"] = str(group.group_sys_flag)
        return self._ask(client, command, ext, self._record(header.msg_id or ""))

    def _record(self, message_id: str) -> bytes:
        try:
            offset = parse_offset_message_id(message_id)[2]
        except MessageFormatError as error:
            raise RemotingError(ResponseCode.INVALID_PARAMETER, f"msgId: {error}") from error
        record = self._store.record_at(offset)
        if record is None:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"can not find message by the id, {message_id}")
        return record

    def _client(self, group: str, client_id: str) -> Client:
        state = self._clients.consumers(group)
        client = state.find(client_id) if state is not None else None
        if client is None:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        return client

    async def _ask(self, client: Client, command: Command, ext: dict[str, str], body: bytes) -> Command:
        try:
            answer = await client.peer.request(Command(command.code, ext, body), CLIENT_TIMEOUT_MS)
        except RequestTimeoutError as error:
            raise RemotingError(
                ResponseCode.CONSUME_MSG_TIMEOUT,
                f"consumer <{client.client_id}> does not answer within {CLIENT_TIMEOUT_MS} ms",
            ) from error
        except TransportError as error:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR, f"consumer <{client.client_id}> cannot be reached: {error}"
            ) from error
        return command.reply(answer.code, answer.remark, answer.ext, answer.body)

    def status(self, _connection: ServerConnection, command: Command) -> Answer:
        """How far each consumer of a group says it is in a topic; those that do not answer are left out."""
        header = InvokeBrokerToGetConsumerStatusRequest.from_ext(command.ext)
        state = self._clients.consumers(header.group)
        if state is None:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{header.group}]"
            )
        clients = [c for c in state.members.values() if header.client_addr in (None, "", c.client_id)]
        return self._statuses(command, header, clients)

    async def _statuses(
        self, command: Command, header: InvokeBrokerToGetConsumerStatusRequest, clients: list[Client]
    ) -> Command:
        question = GetConsumerStatusFromClientRequest(
            topic=header.topic, group=header.group, client_addr=header.client_addr
        )

        async def one(client: Client) -> GetConsumerStatusBody | None:
            try:
                answer = await client.peer.request(question.command(), STATUS_TIMEOUT_MS)
                return GetConsumerStatusBody.decode(answer.body) if answer.code == 0 else None
            except (TransportError, WireError):
                return None

        bodies = await asyncio.gather(*map(one, clients))
        table = {
            client.client_id: body.message_queue_table
            for client, body in zip(clients, bodies, strict=True)
            if body is not None
        }
        return command.reply(body=GetConsumerStatusBody(consumer_table=table).encode())
