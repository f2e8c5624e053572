"""Commands of mqadmin that show groups: progress, connections, rates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from orbitmq.admin.model import BrokerInfo
from orbitmq.cli.failures import UsageError
from orbitmq.cli.mqadmin.looks import groups_of
from orbitmq.cli.mqadmin.offers import TOPIC, Flag, Offers, Options, Tool, boolean
from orbitmq.cli.mqadmin.text import front, laid, seconds_of, version
from orbitmq.errors import BrokerError, OrbitError, TopicNotFoundError
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.client import ConsumerConnection, ConsumeType, ProducerConnection
from orbitmq.wire.bodies.stats import BrokerStatsData, ConsumeStats, OffsetWrapper
from orbitmq.wire.codes import ResponseCode

GROUPS = Offers()


@GROUPS(
    "consumerProgress",
    "how far a group is, or all groups",
    Flag("g", "groupName", "name of the group"),
    Flag("t", "topicName", "only in this topic"),
    Flag("s", "showClientIP", "with the address of each queue's consumer: true or false"),
)
async def consumer_progress(tool: Tool, options: Options) -> AsyncIterator[str]:
    if options.g is None:
        async for line in _all_groups(tool):
            yield line
        return
    stats = await consume_stats(tool, options.g, options.t or "")
    owners = await _owners(tool, options.g) if boolean(options.s, False) else None
    middle = ["#Client IP"] if owners is not None else []
    yield _progress(
        "#Topic",
        "#Broker Name",
        "#QID",
        "#Broker Offset",
        "#Consumer Offset",
        middle,
        "#Diff",
        "#Inflight",
        "#LastTime",
    )
    behind = in_flight = 0
    for queue, one in sorted(stats.offset_table.items(), key=_queue):
        diff, fetched = one.broker_offset - one.consumer_offset, one.pull_offset - one.consumer_offset
        behind, in_flight = behind + diff, in_flight + fetched
        middle = [owners.get(queue, "N/A")] if owners is not None else []
        yield _progress(
            front(queue.topic, 64),
            front(queue.broker_name, 32),
            queue.queue_id,
            one.broker_offset,
            one.consumer_offset,
            middle,
            diff,
            fetched,
            seconds_of(one.last_timestamp),
        )
    yield ""
    yield f"Consume TPS: {stats.consume_tps:.2f}"
    yield f"Consume Diff Total: {behind}"
    yield f"Consume Inflight Total: {in_flight}"


def _queue(pair: tuple[MessageQueue, OffsetWrapper]) -> MessageQueue:
    return pair[0]


def _progress(
    topic: str,
    broker: str,
    number: object,
    end: object,
    committed: object,
    owner: Sequence[str],
    *rest: object,
) -> str:
    """A row. The last title follows the previous one without a space, as in mqadmin's output."""
    diff, in_flight, last = rest
    middle = "".join(f"{one:<20} " for one in owner)
    gap = "" if diff == "#Diff" else " "
    queue = f"{topic:<64}  {broker:<32}  {number:<4}  {end:<20}  {committed:<20}"
    return f"{queue}  {middle}{diff:<20} {in_flight:<20}{gap}{last}"


async def _all_groups(tool: Tool) -> AsyncIterator[str]:
    row = "%-64s  %-6s  %-24s %-5s  %-14s  %-7s  %s"
    yield laid(row, "#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total")
    for group in (await tool.admin.groups.list()).whole():
        stats = await consume_stats(tool, group, "")
        behind = sum(one.broker_offset - one.consumer_offset for one in stats.offset_table.values())
        online = await connections(tool, group)
        kind = model = ""
        if online is not None and online.consume_type is not None:
            kind = "PULL" if online.consume_type is ConsumeType.CONSUME_ACTIVELY else "PUSH"
            model = online.message_model.value if kind == "PUSH" and online.message_model else ""
        least = min((one.version for one in online.connection_set), default=0) if online else 0
        count = len(online.connection_set) if online else 0
        yield laid(
            row,
            front(group, 64),
            count,
            version(least) if count else "OFFLINE",
            kind,
            model,
            int(stats.consume_tps),
            behind,
        )


async def _owners(tool: Tool, group: str) -> dict[MessageQueue, str]:
    """The IP address of the consumer of each queue."""
    online = await connections(tool, group)
    found: dict[MessageQueue, str] = {}
    for one in online.connection_set if online else ():
        running = await tool.admin.clients.show(group, one.client_id)
        found |= {each.queue: one.client_id.partition("@")[0] for each in running.found.queues}
    return found


async def consume_stats(tool: Tool, group: str, topic: str) -> ConsumeStats:
    """A group's progress at all brokers."""
    request = headers.GetConsumeStatsRequest(consumer_group=group, topic=topic).command()
    answers = await tool.cluster.ask_all(
        await tool.cluster.leaders(),
        request,
        lambda _, answer: ConsumeStats.decode(answer.body),
        without=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
    )
    found = ConsumeStats()
    for _, stats in answers.partial(answers.pairs).whole():
        found.offset_table |= stats.offset_table
        found.consume_tps += stats.consume_tps
    return found


async def connections(tool: Tool, group: str, address: str | None = None) -> ConsumerConnection | None:
    """The consumers of a group, from the first broker that has some; ``None`` if the group is offline."""
    request = headers.GetConsumerConnectionListRequest(consumer_group=group)
    places = [address] if address else [one.address for one in await tool.cluster.leaders()]
    for place in places:
        answer = await tool.cluster.ask_unless(place, request.command(), ResponseCode.CONSUMER_NOT_ONLINE)
        if answer is not None:
            return ConsumerConnection.decode(answer.body)
    return None


@GROUPS(
    "consumerConnection",
    "consumers of a group and what they subscribe to",
    Flag("g", "consumerGroup", "name of the group", required=True),
    Flag("b", "brokerAddr", "address of a broker"),
)
async def consumer_connection(tool: Tool, options: Options) -> AsyncIterator[str]:
    found = await connections(tool, options.g, options.b)
    if found is None:
        raise OrbitError(f"the consumer group[{options.g}] not online")
    row = "%-36s %-22s %-10s %s"
    yield laid(row, "#ClientId", "#ClientAddr", "#Language", "#Version")
    for one in found.connection_set:
        yield laid(row, one.client_id, one.client_addr, one.language, version(one.version))
    yield ""
    yield "Below is subscription:"
    yield laid("%-20s %s", "#Topic", "#SubExpression")
    for _, data in sorted(found.subscription_table.items()):
        yield laid("%-20s %s", data.topic, data.sub_string)
    yield ""
    for title, value in (
        ("ConsumeType", found.consume_type),
        ("MessageModel", found.message_model),
        ("ConsumeFromWhere", found.consume_from_where),
    ):
        yield f"{title}: {'null' if value is None else value.name}"


@GROUPS(
    "producerConnection",
    "producers of a group",
    TOPIC,
    Flag("g", "producerGroup", "name of the group", required=True),
)
async def producer_connection(tool: Tool, options: Options) -> AsyncIterator[str]:
    request = headers.GetProducerConnectionListRequest(producer_group=options.g)
    problem: BrokerError | None = None
    for broker in await tool.cluster.readers(options.t):
        try:
            answer = await tool.cluster.ask(broker.address, request.command())
        except BrokerError as error:
            problem = error
            continue
        for number, one in enumerate(ProducerConnection.decode(answer.body).connection_set, 1):
            yield laid(
                "%04d  %-32s %-22s %-8s %s",
                number,
                one.client_id,
                one.client_addr,
                one.language,
                version(one.version),
            )
        return
    raise problem or UsageError(f"-t {options.t}: no broker has this topic")


@GROUPS(
    "statsAll",
    "rates of topics and their groups",
    Flag("t", "topic", "only this topic"),
    Flag("a", "activeTopic", "only topics with messages of today", takes=False),
)
async def stats_all(tool: Tool, options: Options) -> AsyncIterator[str]:
    yield laid(
        "%-64s  %-64s %12s %11s %11s %14s %14s",
        "#Topic",
        "#Consumer Group",
        "#Accumulation",
        "#InTPS",
        "#OutTPS",
        "#InMsg24Hour",
        "#OutMsg24Hour",
    )
    for topic in await tool.admin.topics.list():
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or options.t not in (None, topic):
            continue
        try:
            masters = [one for one in await tool.cluster.readers(topic) if one.is_master]
            groups = await groups_of(tool, topic)
        except TopicNotFoundError:
            continue
        in_tps, came = await _rate(tool, masters, "TOPIC_PUT_NUMS", topic)
        for group in groups:
            out_tps, left = await _rate(tool, masters, "GROUP_GET_NUMS", f"{topic}@{group}")
            stats = await consume_stats(tool, group, topic)
            behind = sum(one.broker_offset - one.consumer_offset for one in stats.offset_table.values())
            if not options.a or came or left:
                yield laid(
                    "%-64s  %-64s %12d %11.2f %11.2f %14d %14d",
                    front(topic, 64),
                    front(group, 64),
                    max(0, behind),
                    in_tps,
                    out_tps,
                    came,
                    left,
                )
        if not groups and (not options.a or came):
            yield laid(
                "%-64s  %-64s %12d %11.2f %11s %14d %14s",
                front(topic, 64),
                "",
                0,
                in_tps,
                "",
                came,
                "NO_CONSUMER",
            )


async def _rate(tool: Tool, masters: Sequence[BrokerInfo], name: str, key: str) -> tuple[float, int]:
    """Messages per second in the last minute, and messages of the last 24 hours, as far as known."""
    request = headers.ViewBrokerStatsDataRequest(stats_name=name, stats_key=key).command()
    answers = await tool.cluster.ask_all(
        masters, request, lambda _, answer: BrokerStatsData.decode(answer.body)
    )
    tables = [table for _, table in answers.pairs]
    # A broker computes the daily sum once an hour; until then the sum of the hour, or of the minute, is used.
    count = sum(table.stats_day.sum or table.stats_hour.sum or table.stats_minute.sum for table in tables)
    return sum(table.stats_minute.tps for table in tables), count
