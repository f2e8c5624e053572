"""Subscription groups: what there is (AdminBrokerProcessor)."""

from __future__ import annotations

from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.broker.handlers.tables import encode_with_tables
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire import all_headers as headers
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError

PAGE_SIZE = 2000


class GroupTableHandlers(Family):
    """The table of subscription groups."""

    def __init__(self, groups: SubscriptionGroups) -> None:
        self._groups = groups

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all_configs,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.config,
        }

    async def all_configs(self, _connection: ServerConnection, command: Command) -> Command:
        """All groups; in pages for 5.x peers that ask so."""
        groups = self._groups
        if command.ext:
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
        """One group's config. It is not created by asking, other than RocketMQ does."""
        group = headers.GetSubscriptiongroupConfigRequest.from_ext(command.ext).group
        config = self._groups.get(group)
        if config is None:
            raise RemotingError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {group}"
            )
        return command.reply(body=config.encode())
