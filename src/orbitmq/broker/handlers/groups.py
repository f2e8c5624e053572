"""Subscription groups: create, change, delete, list, and their topics (AdminBrokerProcessor)."""

from __future__ import annotations

from orbitmq.broker.clients.registry import ClientManager
from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily, reply_after
from orbitmq.broker.handlers.tables import encode_with_tables
from orbitmq.broker.metadata.administration import GroupAdministration
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.offsets import ConsumerOffsets
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire import all_headers as headers
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError

PAGE_SIZE = 2000


class GroupHandlers(HandlerFamily):
    """Changes of the table of subscription groups, and of their forbidden topics."""

    def __init__(self, administration: GroupAdministration, groups: SubscriptionGroups) -> None:
        self._administration = administration
        self._groups = groups

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_list,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbid,
        }

    def update(self, _connection: ServerConnection, command: Command) -> Answer:
        """Create or change a group."""
        config = bodies.SubscriptionGroupConfig.decode(command.body)
        return reply_after(self._administration.update([config]), command)

    def update_list(self, _connection: ServerConnection, command: Command) -> Answer:
        """Create or change several groups."""
        configs = bodies.SubscriptionGroupList.decode(command.body).group_config_list
        return reply_after(self._administration.update(configs), command)

    def delete(self, connection: ServerConnection, command: Command) -> Answer:
        """Delete a group, and with ``cleanOffset`` its offsets."""
        header = headers.DeleteSubscriptiongroupRequest.from_ext(command.ext)
        deleted = self._administration.delete(
            header.group_name, with_offsets=header.clean_offset, by=connection.remote_address
        )
        return reply_after(deleted, command)

    async def forbid(self, _connection: ServerConnection, command: Command) -> Command:
        """Return whether a group may read a topic, after changing it if the request has ``readable``."""
        header = headers.UpdateAndGetGroupForbiddenRequest.from_ext(command.ext)
        if header.readable is not None:
            await self._administration.set_readable(header.group, header.topic, header.readable)
        readable = self._groups.may_read(header.group, header.topic)
        body = bodies.GroupForbidden(topic=header.topic, group=header.group, readable=readable)
        return command.reply(remark="", body=body.encode())


class GroupTableHandlers(HandlerFamily):
    """The table of subscription groups."""

    def __init__(self, groups: SubscriptionGroups) -> None:
        self._groups = groups

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all_configs,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.config,
        }

    async def all_configs(self, _connection: ServerConnection, command: Command) -> Command:
        """All groups; in pages if the request has one of the fields for pages, as from 5.x peers."""
        groups = self._groups
        # Only these fields mean pages: a request for all groups may have the fields of a signature.
        if not command.ext.keys().isdisjoint(("groupSeq", "dataVersion", "maxGroupNum")):
            header = headers.GetAllSubscriptiongroupConfigRequest.from_ext(command.ext)
            version = bodies.DataVersion.decode(header.data_version.encode()) if header.data_version else None
            count = min(PAGE_SIZE, header.max_group_num or PAGE_SIZE)
            table = groups.page(version, max(0, header.group_seq), count)
            forbidden = groups.forbidden(table)
        else:
            table = {config.group_name: config for config in groups}
            forbidden = groups.forbidden()
        body = bodies.SubscriptionGroupWrapper(data_version=groups.version)
        response = headers.GetAllSubscriptiongroupConfigResponse(total_group_num=len(groups))
        encoded = await encode_with_tables(
            body,
            subscriptionGroupTable=(sorted(table), table.get),
            forbiddenTable=(sorted(forbidden), forbidden.get),
        )
        return response.reply_to(command, body=encoded)

    def config(self, _connection: ServerConnection, command: Command) -> Answer:
        """One group's config. Unlike in RocketMQ, the request does not create the group."""
        group = headers.GetSubscriptiongroupConfigRequest.from_ext(command.ext).group
        config = self._groups.get(group)
        if config is None:
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {group}"
            )
        return command.reply(body=config.encode())


class GroupTopicHandlers(HandlerFamily):
    """The topics of a group, and its subscriptions.

    Args:
        address: this broker's address for clients, host:port.
    """

    def __init__(self, offsets: ConsumerOffsets, clients: ClientManager, address: str) -> None:
        self._offsets = offsets
        self._clients = clients
        self._address = address

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
        }

    def topics_of(self, _connection: ServerConnection, command: Command) -> Answer:
        """The topics in which a group has committed offsets."""
        group = headers.QueryTopicsByConsumerRequest.from_ext(command.ext).group
        body = bodies.TopicList(topic_list=self._offsets.topics_of(group), broker_addr=self._address)
        return command.reply(body=body.encode())

    def subscription(self, _connection: ServerConnection, command: Command) -> Answer:
        """A group's subscription to a topic."""
        header = headers.QuerySubscriptionByConsumerRequest.from_ext(command.ext)
        topic = header.topic or ""
        body = bodies.QuerySubscriptionResponseBody(
            group=header.group,
            topic=topic,
            subscription_data=self._clients.subscription(header.group, topic),
        )
        return command.reply(body=body.encode())
