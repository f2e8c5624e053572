"""Requests that only a consumer can answer: the broker passes them on (Broker2Client)."""

from __future__ import annotations

import asyncio

from orbitmq.broker.clients.registry import Client, ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.inspection.messages import MessageLookup
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.message.model import MessageQueue
from orbitmq.transport.errors import RequestTimeoutError, TransportError
from orbitmq.wire.bodies.stats import GetConsumerStatusBody
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError, WireError
from orbitmq.wire.headers.client import ConsumeMessageDirectlyRequest
from orbitmq.wire.headers.offset import GetConsumerStatusFromClientRequest

CLIENT_TIMEOUT_MS = 10_000
STATUS_TIMEOUT_MS = 5_000


class ConsumerRequests:
    """Sends requests to consumers that are online."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        clients: ClientManager,
        lookup: MessageLookup,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._lookup = lookup

    async def ask(self, group: str, client_id: str, question: Command) -> Command:
        """The answer of one member of a group.

        Raises:
            RemotingError: the client is not online, or does not answer in time.
        """
        return await _answer(self._member(group, client_id), question)

    def _member(self, group: str, client_id: str) -> Client:
        state = self._clients.consumers(group)
        client = state.find(client_id) if state is not None else None
        if client is None:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{client_id}> not online")
        return client

    async def consume_directly(self, request: ConsumeMessageDirectlyRequest, ext: dict[str, str]) -> Command:
        """Let a consumer consume one stored message now.

        Args:
            ext: the request's header fields; all are passed on to the client.

        Raises:
            RemotingError: as :meth:`ask`; or the message is not stored here.
        """
        client = self._member(request.consumer_group, request.client_id or "")
        ext = {**ext, "brokerName": self._config.broker_name}
        topic = self._topics.get(request.topic or "")
        if topic is not None:
            ext["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._groups.get(request.consumer_group)
        if group is not None:
            ext["groupSysFlag"] = str(group.group_sys_flag)
        record = self._lookup.by_message_id(request.msg_id or "")
        return await _answer(client, Command(request.code, ext, record))

    async def statuses(
        self, group: str, topic: str, client_id: str | None
    ) -> dict[str, dict[MessageQueue, int]]:
        """The offsets in a topic that a group's consumers report; those that do not answer are left out.

        Args:
            client_id: only this consumer; ``None`` or empty: all of them.

        Raises:
            RemotingError: SYSTEM_ERROR, no consumer of the group is online.
        """
        state = self._clients.consumers(group)
        if state is None:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR, f"No Any Consumer online in the consumer group: [{group}]"
            )
        clients = [c for c in state.members.values() if client_id in (None, "", c.client_id)]
        question = GetConsumerStatusFromClientRequest(topic=topic, group=group, client_addr=client_id)

        async def one(client: Client) -> GetConsumerStatusBody | None:
            try:
                answer = await client.peer.request(question.command(), STATUS_TIMEOUT_MS)
                return GetConsumerStatusBody.decode(answer.body) if answer.code == 0 else None
            except (TransportError, WireError):
                return None

        answers = await asyncio.gather(*map(one, clients))
        return {
            client.client_id: answer.message_queue_table
            for client, answer in zip(clients, answers, strict=True)
            if answer is not None
        }


async def _answer(client: Client, question: Command) -> Command:
    try:
        return await client.peer.request(question, CLIENT_TIMEOUT_MS)
    except RequestTimeoutError as error:
        raise RemotingError(
            ResponseCode.CONSUME_MSG_TIMEOUT,
            f"consumer <{client.client_id}> does not answer within {CLIENT_TIMEOUT_MS} ms",
        ) from error
    except TransportError as error:
        raise RemotingError(
            ResponseCode.SYSTEM_ERROR, f"consumer <{client.client_id}> cannot be reached: {error}"
        ) from error
