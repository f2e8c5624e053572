"""Requests to brokers and members about the reason of a group's lag."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from orbitmq.admin.answers import Partial
from orbitmq.admin.cluster_client import FAILURES, ClusterClient
from orbitmq.admin.group_model import GroupDetails, Member, QueueLag
from orbitmq.admin.lag_causes import BROADCASTING, POPPING, Holder, LagReport, report, worst_of
from orbitmq.message.model import MessageQueue
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.client import ConsumerRunningInfo, ProcessQueueInfo

# Most members that are asked for their queues; in a larger group the member that reads a queue is not
# searched.
MOST_ASKED = 32
# The pause between the two requests to a member.
WATCHED_S = 1.0

_Held = Mapping[MessageQueue, ProcessQueueInfo]


async def explained(
    cluster: ClusterClient, details: Partial[GroupDetails], lags: Partial[Sequence[QueueLag]]
) -> Partial[LagReport]:
    """The report on a group's lag. The members are asked if one queue has most of the lag, unless they pop,
    since members that pop share all queues.
    """
    found, worst = details.found, worst_of(lags.found)
    holder, unread = None, False
    counts = lags.found if found.message_model != BROADCASTING else ()
    pops = found.consume_type == POPPING or (worst is not None and worst.popped is not None)
    if worst is not None and counts and not pops and worst.lag * 2 > sum(one.lag for one in counts):
        holder, unread = await _holder(cluster, found, worst)
    left_out = {one.address: one for one in (*details.left_out, *lags.left_out)}
    return Partial(report(found, counts, holder, unread=unread), tuple(left_out.values()))


async def _holder(
    cluster: ClusterClient, details: GroupDetails, worst: QueueLag
) -> tuple[Holder | None, bool]:
    """The member that reads a queue, and whether no member reads it by the reports of all members."""
    queue = worst.queue
    address = next((one.address for one in await cluster.leaders() if one.name == queue.broker_name), None)
    members = details.members
    if address is None or not members or len(members) > MOST_ASKED:
        return None, False
    tables = await asyncio.gather(*(_held(cluster, address, details.group, one) for one in members))
    for member, table in zip(members, tables, strict=True):
        before = None if table is None else table.get(queue)
        if before is None:
            continue
        await cluster.sleep(WATCHED_S)
        again = await _held(cluster, address, details.group, member)
        after = before if again is None else again.get(queue, before)
        moved, done = after.commit_offset > before.commit_offset, after.commit_offset >= worst.end
        return Holder(member, after.cached_msg_count, done, moved, WATCHED_S), False
    return None, all(table is not None for table in tables)


async def _held(cluster: ClusterClient, address: str, group: str, member: Member) -> _Held | None:
    """The queues that a member reads; ``None`` if the member does not report them."""
    request = headers.GetConsumerRunningInfoRequest(consumer_group=group, client_id=member.client_id)
    try:
        answer = await cluster.ask(address, request.command())
        return ConsumerRunningInfo.decode(answer.body).mq_table
    except FAILURES:
        return None
