"""Subscription groups: create, change, delete (AdminBrokerProcessor)."""

from __future__ import annotations

from orbitmq.broker.handlers.base import Answer, Family, Handler, reply_after
from orbitmq.broker.metadata.administration import GroupAdministration
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire import all_headers as headers
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command


class GroupHandlers(Family):
    """Changes of the table of subscription groups, and of what they may read."""

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
        """Delete a group, and its offsets when asked to."""
        header = headers.DeleteSubscriptiongroupRequest.from_ext(command.ext)
        deleted = self._administration.delete(
            header.group_name, with_offsets=header.clean_offset, by=connection.remote_address
        )
        return reply_after(deleted, command)

    async def forbid(self, _connection: ServerConnection, command: Command) -> Command:
        """Show, and change when asked to, whether a group may read a topic."""
        header = headers.UpdateAndGetGroupForbiddenRequest.from_ext(command.ext)
        if header.readable is not None:
            await self._administration.set_readable(header.group, header.topic, header.readable)
        readable = self._groups.may_read(header.group, header.topic)
        body = bodies.GroupForbidden(topic=header.topic, group=header.group, readable=readable)
        return command.reply(remark="", body=body.encode())
