"""Commands of mqadmin that change brokers, topics and groups."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from orbitmq.admin.group_model import Move
from orbitmq.cli.failures import UsageError
from orbitmq.cli.mqadmin.offers import TOPIC, Flag, Offers, Options, Tool, boolean, moment, number
from orbitmq.cli.mqadmin.text import front, group_config, laid, topic_config
from orbitmq.durations import instant
from orbitmq.errors import BrokerError, OrbitError
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import AUTO_CREATE_TOPIC, DLQ_PREFIX, RETRY_PREFIX
from orbitmq.transport.errors import TransportError
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.group import GroupRetryPolicy, SubscriptionGroupConfig
from orbitmq.wire.bodies.topic import TopicConfig
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import BodyError
from orbitmq.wire.headers.base import RequestHeader

CHANGES = Offers()
GROUP = Flag("g", "groupName", "name of the group", required=True)


# -- brokers ---------------------------------------------------------------------------------------------


@CHANGES(
    "updateBrokerConfig",
    "change a setting of a running broker",
    Flag("k", "key", "the setting", required=True),
    Flag("v", "value", "its value", required=True),
    Flag("a", "updateAllBroker", "of the slaves, too: true or false"),
    places=True,
)
async def update_broker_config(tool: Tool, options: Options) -> AsyncIterator[str]:
    for address in await tool.addresses(options, slaves=options.a is not None):
        await tool.admin.brokers.change_settings(address, {options.k: options.v})
        yield f"update broker config success, {address}"


@CHANGES(
    "wipeWritePerm",
    "take a broker's write permission",
    Flag("b", "brokerName", "name of the broker", required=True),
)
async def wipe_write_perm(tool: Tool, options: Options) -> AsyncIterator[str]:
    request = headers.WipeWritePermOfBrokerRequest(broker_name=options.b)
    read = headers.WipeWritePermOfBrokerResponse.from_ext
    async for line in _write_perm(
        tool, options.b, "wipe", request, lambda answer: read(answer.ext).wipe_topic_count
    ):
        yield line


@CHANGES(
    "addWritePerm",
    "give a broker its write permission back",
    Flag("b", "brokerName", "name of the broker", required=True),
)
async def add_write_perm(tool: Tool, options: Options) -> AsyncIterator[str]:
    request = headers.AddWritePermOfBrokerRequest(broker_name=options.b)
    read = headers.AddWritePermOfBrokerResponse.from_ext
    async for line in _write_perm(
        tool, options.b, "add", request, lambda answer: read(answer.ext).add_topic_count
    ):
        yield line


async def _write_perm(
    tool: Tool, name: str, verb: str, request: RequestHeader, count: Callable[[Command], int]
) -> AsyncIterator[str]:
    failed: OrbitError | None = None
    for address in await tool.name_servers():
        what = f"{verb} write perm of broker[{name}] in name server[{address}]"
        try:
            answer = await tool.cluster.ask(address, request.command())
        except (BrokerError, TransportError) as error:
            failed = error
            yield f"{what} Failed"
        else:
            yield f"{what} OK, {count(answer)}"
    if failed is not None:
        raise failed


# -- topics ----------------------------------------------------------------------------------------------


@CHANGES(
    "updateTopic",
    "create a topic, or change it",
    TOPIC,
    Flag("r", "readQueueNums", "read queues (8)"),
    Flag("w", "writeQueueNums", "write queues (8)"),
    Flag("p", "perm", "2: write, 4: read, 6: both (6)"),
    Flag("o", "order", "ordered: true or false"),
    Flag("u", "unit", "unit topic: true or false"),
    Flag("s", "hasUnitSub", "has unit subscriptions: true or false"),
    Flag("a", "attributes", "+a=b,+c=d,-e"),
    places=True,
)
async def update_topic(tool: Tool, options: Options) -> AsyncIterator[str]:
    config = TopicConfig(
        topic_name=options.t,
        read_queue_nums=number("r", options.r, 8),
        write_queue_nums=number("w", options.w, 8),
        perm=number("p", options.p, 6),
        topic_sys_flag=boolean(options.u, False) | boolean(options.s, False) << 1,
        order=boolean(options.o, False),
        attributes=dict(_attribute(one) for one in (options.a or "").split(",") if one),
    )
    for address in await tool.addresses(options):
        await _make_topic(tool, address, config, options.a)
        yield f"create topic to {address} success."
    if config.order:
        async for line in _order(tool, options, config):
            yield line
    yield topic_config(config)


async def _make_topic(tool: Tool, address: str, config: TopicConfig, attributes: str | None) -> None:
    request = headers.UpdateAndCreateTopicRequest(
        topic=config.topic_name,
        default_topic=AUTO_CREATE_TOPIC,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
        attributes=attributes,
    )
    await tool.cluster.ask(address, request.command())


def _attribute(text: str) -> tuple[str, str]:
    key, _, value = text.strip().partition("=")
    if not key.startswith(("+", "-")) or key.startswith("+") != bool(value):
        raise UsageError(f"-a {text}: expected +name=value or -name")
    return key, value


async def _order(tool: Tool, options: Options, config: TopicConfig) -> AsyncIterator[str]:
    """Set or remove the order configuration of a topic at the name servers, too."""
    brokers = [
        one
        for one in await tool.cluster.brokers()
        if options.b == one.address or (options.c == one.cluster and one.is_master)
    ]
    value = ";".join(f"{one.name}:{config.write_queue_nums}" for one in brokers)
    request = headers.PutKvConfigRequest(namespace="ORDER_TOPIC_CONFIG", key=config.topic_name, value=value)
    for address in await tool.name_servers():
        await tool.cluster.ask(address, request.command())
    yield f"set {'broker' if options.b else 'cluster'} orderConf. isOrder=true, orderConf=[{value}]"


@CHANGES(
    "updateTopicPerm",
    "change the permission of a topic",
    TOPIC,
    Flag("p", "perm", "2: write, 4: read, 6: both", required=True),
    places=True,
)
async def update_topic_perm(tool: Tool, options: Options) -> AsyncIterator[str]:
    entries = await tool.cluster.route(options.t)
    perm = number("p", options.p, 6)
    places = [
        (entry, entry.addresses[0])
        for entry in entries
        if 0 in entry.addresses and (entry.addresses[0] == options.b or entry.cluster == options.c)
    ]
    if not places:
        raise UsageError(f"{options.b or options.c} has no master with topic {options.t}")
    for entry, address in places:
        config = TopicConfig(options.t, entry.read_queues, entry.write_queues, perm)
        await _make_topic(tool, address, config, None)
        yield f"update topic perm from {entry.perm} to {perm} in {address} success."
        if options.b:
            yield f"{topic_config(config)}."


@CHANGES(
    "deleteTopic", "delete a topic", TOPIC, Flag("c", "clusterName", "name of the cluster", required=True)
)
async def delete_topic(tool: Tool, options: Options) -> AsyncIterator[str]:
    await tool.brokers(options.c)
    await tool.admin.topics.delete(options.t, cluster=options.c)
    yield f"delete topic [{options.t}] from cluster [{options.c}] success."
    yield f"delete topic [{options.t}] from NameServer success."


# -- groups ----------------------------------------------------------------------------------------------


@CHANGES(
    "updateSubGroup",
    "create a group, or change it",
    GROUP,
    Flag("s", "consumeEnable", "may read: true or false (true)"),
    Flag("m", "consumeFromMinEnable", "begins with the first message: true or false (false)"),
    Flag("d", "consumeBroadcastEnable", "broadcast: true or false (false)"),
    Flag("o", "consumeMessageOrderly", "in order: true or false (false)"),
    Flag("q", "retryQueueNums", "queues of the retry topic (1)"),
    Flag("r", "retryMaxTimes", "retries (16)"),
    Flag("p", "groupRetryPolicy", "when messages are tried again, as JSON"),
    Flag("i", "brokerId", "id of the broker to read from (0)"),
    Flag("w", "whichBrokerWhenConsumeSlowly", "id of the broker for a slow group (1)"),
    Flag("a", "notifyConsumerIdsChanged", "tell members of each other: true or false (true)"),
    Flag("", "attributes", "+a=b,+c=d,-e"),
    places=True,
)
async def update_sub_group(tool: Tool, options: Options) -> AsyncIterator[str]:
    try:
        policy = GroupRetryPolicy.decode(options.p.encode()) if options.p else GroupRetryPolicy()
    except BodyError as error:
        raise UsageError(f"-p {options.p}: {error}") from error
    config = SubscriptionGroupConfig(
        group_name=options.g,
        consume_enable=boolean(options.s, True),
        consume_from_min_enable=boolean(options.m, False),
        consume_broadcast_enable=boolean(options.d, False),
        consume_message_orderly=boolean(options.o, False),
        retry_queue_nums=number("q", options.q, 1),
        retry_max_times=number("r", options.r, 16),
        group_retry_policy=policy,
        broker_id=number("i", options.i, 0),
        which_broker_when_consume_slowly=number("w", options.w, 1),
        notify_consumer_ids_changed_enable=boolean(options.a, True),
        attributes=dict(_attribute(one) for one in (options.attributes or "").split(",") if one),
    )
    for address in await tool.addresses(options):
        command = Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())
        await tool.cluster.ask(address, command)
        yield f"create subscription group to {address} success."
    yield group_config(config)


@CHANGES(
    "deleteSubGroup",
    "delete a group",
    GROUP,
    Flag("r", "removeOffset", "its offsets, too: true or false (false)"),
    places=True,
)
async def delete_sub_group(tool: Tool, options: Options) -> AsyncIterator[str]:
    clean = boolean(options.r, False)
    request = headers.DeleteSubscriptiongroupRequest(group_name=options.g, clean_offset=clean)
    for address in await tool.addresses(options):
        await tool.cluster.ask(address, request.command())
        where = "" if options.b else f" in cluster [{options.c}]"
        yield f"delete subscription group [{options.g}] from broker [{address}]{where} success."
    if options.c:
        for topic in (f"{RETRY_PREFIX}{options.g}", f"{DLQ_PREFIX}{options.g}"):
            await tool.admin.topics.delete(topic, cluster=options.c)


@CHANGES(
    "resetOffsetByTime",
    "move a group to a time",
    TOPIC,
    Flag("g", "group", "name of the group", required=True),
    Flag("s", "timestamp", "now, milliseconds or yyyy-MM-dd#HH:mm:ss:SSS", required=True),
    Flag("f", "force", "back too: true; false is refused"),
    Flag("b", "broker", "address of a broker"),
    Flag("q", "queue", "only this queue of that broker"),
    Flag("o", "offset", "to this offset"),
)
async def reset_offset_by_time(tool: Tool, options: Options) -> AsyncIterator[str]:
    if not boolean(options.f, True):
        raise UsageError("-f false: a reset that never goes back is not offered: orbitmq group reset")
    if (options.b is None) != (options.q is None):
        raise UsageError("-b and -q name a queue of a broker: give both or none")
    when = moment("s", options.s)
    plan = (await tool.admin.groups.plan_to_time(options.g, options.t, instant(when))).whole()
    if options.b is not None:
        plan = await _one_queue(tool, options, plan)
        yield (
            f"start reset consumer offset by specified, group[{options.g}], topic[{options.t}], "
            f"queueId[{options.q}], broker[{options.b}], timestamp(string)[{options.s}], "
            f"timestamp(long)[{when}]"
        )
        await tool.admin.groups.move(options.g, plan)
        yield f"reset consumer offset to {plan[0].to}"
        return
    await tool.admin.groups.move(options.g, plan)
    yield (
        f"start reset consumer offset by specified, group[{options.g}], topic[{options.t}], force[true], "
        f"timestamp(string)[{options.s}], timestamp(long)[{when}]"
    )
    for line in _moves(plan):
        yield line


async def _one_queue(tool: Tool, options: Options, plan: Sequence[Move]) -> Sequence[Move]:
    names = {one.address: one.name for one in await tool.cluster.brokers()}
    if options.b not in names:
        raise UsageError(f"-b {options.b}: no broker has this address; see mqadmin clusterList")
    queue = MessageQueue(options.t, names[options.b], number("q", options.q, 0))
    if options.o is not None:
        return (await tool.admin.groups.plan(options.g, {queue: number("o", options.o, 0)})).whole()
    found = [move for move in plan if move.queue == queue]
    if not found:
        raise UsageError(f"-q {options.q}: {options.b} has no such queue of {options.t}")
    return found


def _moves(plan: Sequence[Move]) -> list[str]:
    row = "%-40s  %-40s  %-40s"
    rows = [laid(row, front(move.queue.broker_name, 32), move.queue.queue_id, move.to) for move in plan]
    return [laid(row, "#brokerName", "#queueId", "#offset"), *rows]


@CHANGES(
    "skipAccumulatedMessage",
    "move a group to the end",
    TOPIC,
    Flag("g", "group", "name of the group", required=True),
    Flag("f", "force", "true or false; without effect"),
)
async def skip_accumulated_message(tool: Tool, options: Options) -> AsyncIterator[str]:
    plan = (await tool.admin.groups.plan_to_last(options.g, options.t)).whole()
    await tool.admin.groups.move(options.g, plan)
    for line in _moves(plan):
        yield line


@CHANGES(
    "cloneGroupOffset",
    "give a group the offsets of another",
    TOPIC,
    Flag("s", "srcGroup", "the group that has them", required=True),
    Flag("d", "destGroup", "the group that gets them", required=True),
    Flag("o", "offline", "without effect"),
)
async def clone_group_offset(tool: Tool, options: Options) -> AsyncIterator[str]:
    await tool.admin.groups.clone(options.s, options.d, topic=options.t)
    yield f"clone group offset success. srcGroup[{options.s}], destGroup=[{options.d}], topic[{options.t}]"
