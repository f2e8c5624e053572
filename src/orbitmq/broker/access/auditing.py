"""The audit log as a part of a broker, and how it describes the targets of changes."""

from __future__ import annotations

from typing import Any

from orbitmq.auth.changes import Look, Sights, access_looks, settings_look
from orbitmq.auth.needs import asked_of
from orbitmq.auth.requests import REQUESTS, BrokerFacts
from orbitmq.auth.rules import Rules
from orbitmq.auth.users import Users
from orbitmq.broker.access.topics import topic_at
from orbitmq.broker.component import Component
from orbitmq.broker.extension import Host
from orbitmq.broker.parts import Services
from orbitmq.broker.quotas.table import QuotaTable
from orbitmq.settings import properties_text
from orbitmq.transport.audit import Audit
from orbitmq.wire import all_bodies as bodies
from orbitmq.wire import all_headers as headers
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.command import Command


class AuditLog(Component):
    """Begins the audit log before requests are served, and ends it after the last one."""

    name = "audit log"

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    async def start(self) -> None:
        self._audit.start()

    async def stop(self) -> None:
        await self._audit.stop()

    async def end_work(self) -> None:
        await self._audit.end_work()


def sights(host: Host, users: Users, rules: Rules) -> Sights:
    """How the audit log of this broker finds the targets of changes and their states."""
    s = host.services
    place = BrokerFacts(s.config.broker_cluster_name, lambda offset: topic_at(s.store, offset))
    quotas = host.offered(QuotaTable)

    def quota(command: Command) -> dict[str, Any]:
        asked = bodies.Quota.decode(command.body)
        found = quotas.get(asked.kind, asked.name)
        return {f"quota of {asked.kind} {asked.name}": None if found is None else found.to_plain()}

    looks: dict[int, Look] = {
        **access_looks(users, rules),
        **_table_looks(s),
        Code.UPDATE_BROKER_CONFIG: settings_look(s.config.to_properties, properties_text.parse),
        Code.SET_QUOTA: quota,
    }
    return Sights(asked_of(REQUESTS, place), looks)


def _table_looks(s: Services) -> dict[int, Look]:
    def topic(name: str) -> dict[str, Any]:
        found = s.topics.get(name)
        return {f"Topic:{name}": None if found is None else found.to_plain()}

    def group(name: str) -> dict[str, Any]:
        found = s.groups.get(name)
        return {f"Group:{name}": None if found is None else found.to_plain()}

    def topics(command: Command) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for config in bodies.CreateTopicListRequestBody.decode(command.body).topic_config_list:
            found |= topic(config.topic_name)
        return found

    def groups(command: Command) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for config in bodies.SubscriptionGroupList.decode(command.body).group_config_list:
            found |= group(config.group_name)
        return found

    def offsets(command: Command) -> dict[str, Any]:
        header = headers.InvokeBrokerToResetOffsetRequest.from_ext(command.ext)
        queues = s.offsets.queues(header.group, header.topic)
        shown = {str(queue): offset for queue, offset in sorted(queues.items())}
        return {f"Group:{header.group} in Topic:{header.topic}": shown}

    def mode(command: Command) -> dict[str, Any]:
        asked = bodies.SetMessageRequestModeRequestBody.decode(command.body)
        found = s.modes.get(asked.topic, asked.consumer_group)
        key = f"Group:{asked.consumer_group} in Topic:{asked.topic}"
        return {key: None if found is None else found.to_plain()}

    return {
        Code.UPDATE_AND_CREATE_TOPIC: lambda command: topic(command.ext.get("topic", "")),
        Code.UPDATE_AND_CREATE_TOPIC_LIST: topics,
        Code.DELETE_TOPIC_IN_BROKER: lambda command: topic(command.ext.get("topic", "")),
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: lambda command: group(
            bodies.SubscriptionGroupConfig.decode(command.body).group_name
        ),
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: groups,
        Code.DELETE_SUBSCRIPTIONGROUP: lambda command: group(command.ext.get("groupName", "")),
        Code.INVOKE_BROKER_TO_RESET_OFFSET: offsets,
        Code.SET_MESSAGE_REQUEST_MODE: mode,
    }
