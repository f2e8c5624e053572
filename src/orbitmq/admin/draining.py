"""The groups that still need a broker before its stop: they have members there, or unread messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orbitmq.admin.cluster_client import ClusterClient, side_by_side
from orbitmq.message.reserved import is_built_in_group
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.client import ConsumerConnection
from orbitmq.wire.bodies.group import SubscriptionGroupWrapper
from orbitmq.wire.bodies.stats import ConsumeStats
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command


@dataclass(frozen=True, slots=True)
class Reader:
    """A group that still needs a broker.

    Attributes:
        members: number of the group's consumers that are connected to the broker.
        lag: number of the broker's messages that the group has not consumed.
    """

    group: str
    members: int
    lag: int


async def readers_of(cluster: ClusterClient, address: str) -> Sequence[Reader]:
    """The users' groups with members or unread messages at a broker, sorted by name."""
    request = Command(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    table = SubscriptionGroupWrapper.decode((await cluster.ask(address, request)).body)
    names = sorted(name for name in table.subscription_group_table if not is_built_in_group(name))

    async def reader(group: str) -> Reader:
        online = await cluster.ask_unless(
            address,
            headers.GetConsumerConnectionListRequest(consumer_group=group).command(),
            ResponseCode.CONSUMER_NOT_ONLINE,
        )
        stats = await cluster.ask_unless(
            address,
            headers.GetConsumeStatsRequest(consumer_group=group, topic="").command(),
            ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        )
        members = 0 if online is None else len(ConsumerConnection.decode(online.body).connection_set)
        offsets = {} if stats is None else ConsumeStats.decode(stats.body).offset_table
        lag = sum(
            max(0, one.broker_offset - one.consumer_offset) + (one.pop_in_flight or 0)
            for one in offsets.values()
        )
        return Reader(group, members, lag)

    return [one for one in await side_by_side(names, reader) if one.members or one.lag]
