"""Commands of mqadmin that show brokers, topics and groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

from orbitmq.cli.mqadmin.offers import INTERVAL, TOPIC, Flag, Offers, Options, Tool, again
from orbitmq.cli.mqadmin.text import clock, front, json_of, laid
from orbitmq.errors import OrbitError, TopicNotFoundError
from orbitmq.message.reserved import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.settings import properties_text
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.route import TopicRouteData
from orbitmq.wire.bodies.stats import TopicStatsTable
from orbitmq.wire.bodies.topic import GroupList
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

LOOKS = Offers()
CLUSTER = Flag("c", "clusterName", "name of the cluster")


# -- brokers ---------------------------------------------------------------------------------------------


@LOOKS(
    "clusterList",
    "brokers of all clusters, with their rates",
    CLUSTER,
    INTERVAL,
    Flag("m", "moreStats", "totals of today and yesterday", takes=False),
)
async def cluster_list(tool: Tool, options: Options) -> AsyncIterator[str]:
    async for line in again(options.i, lambda: _clusters(tool, options)):
        yield line


async def _clusters(tool: Tool, options: Options) -> AsyncIterator[str]:
    every = await tool.cluster.brokers()
    brokers = [one for one in every if options.c in (None, one.cluster)]
    tables = await asyncio.gather(
        *(tool.admin.brokers.runtime(one.address) for one in brokers), return_exceptions=True
    )
    if options.m:
        row = "%-16s  %-32s %14s %14s %14s %14s"
        yield laid(
            row,
            "#Cluster Name",
            "#Broker Name",
            "#InTotalYest",
            "#OutTotalYest",
            "#InTotalToday",
            "#OutTotalToday",
        )
    else:
        row = "%-22s  %-22s  %-4s  %-22s %-16s  %16s  %30s  %-22s  %-11s  %-12s  %-8s  %-10s"
        yield laid(
            row,
            "#Cluster Name",
            "#Broker Name",
            "#BID",
            "#Addr",
            "#Version",
            "#InTPS(LOAD)",
            "#OutTPS(LOAD)",
            "#Timer(Progress)",
            "#PCWait(ms)",
            "#Hour",
            "#SPACE",
            "#ACTIVATED",
        )
    for broker, told in zip(brokers, tables, strict=True):
        if isinstance(told, BaseException) and not isinstance(told, OrbitError):
            raise told
        known = {} if isinstance(told, BaseException) else told
        if options.m:
            yield laid(row, broker.cluster, broker.name, *_totals(known))
        else:
            yield laid(row, broker.cluster, broker.name, broker.broker_id, broker.address, *_load(known))


def _totals(known: Mapping[str, str]) -> Sequence[int]:
    """Messages in and out: yesterday's two numbers, then today's."""
    return [
        int(_float(known, f"msg{way}Total{end}") - _float(known, f"msg{way}Total{begin}"))
        for end, begin in (("TodayMorning", "YesterdayMorning"), ("TodayNow", "TodayMorning"))
        for way in ("Put", "Get")
    ]


def _load(known: Mapping[str, str]) -> Sequence[str]:
    from orbitmq.runtime.system import system_runtime

    oldest = _float(known, "earliestMessageTimeStamp")
    hours = (system_runtime().clock.now_ms() - oldest) / 3_600_000 if oldest > 0 else 0.0

    def queue(name: str) -> str:
        size, waits = (
            known.get(f"{name}ThreadPoolQueue{each}", "N") for each in ("Size", "HeadWaitTimeMills")
        )
        return f"{size},{waits}ms"

    return (
        known.get("brokerVersionDesc", ""),
        f"{_float(known, 'putTps'):9.2f}({queue('send')})",
        f"{_float(known, 'getTransferredTps'):9.2f}({queue('pull')}|{queue('ack')})",
        f"{_float(known, 'timerReadBehind'):.0f}-{_float(known, 'timerOffsetBehind'):.0f}"
        f"({_float(known, 'timerCongestNum') / 10_000:.1f}w, {_float(known, 'timerEnqueueTps'):.1f}, "
        f"{_float(known, 'timerDequeueTps'):.1f})",
        known.get("pageCacheLockTimeMills", "").rjust(11),
        f"{hours:2.2f}",
        f"{_float(known, 'commitLogDiskRatio'):.4f}",
        known.get("brokerActive", "false").rjust(10),
    )


def _float(known: Mapping[str, str], name: str) -> float:
    try:
        return float(known.get(name, "").split(" ")[0])
    except ValueError:
        return 0.0


@LOOKS("brokerStatus", "what a broker reports of itself", places=True)
async def broker_status(tool: Tool, options: Options) -> AsyncIterator[str]:
    for address in await tool.addresses(options, slaves=True):
        before = "" if options.b else f"{address:<24} "
        for name, value in sorted((await tool.admin.brokers.runtime(address)).items()):
            yield f"{before}{name:<32}: {value}"


@LOOKS("getBrokerConfig", "settings of a broker", places=True)
async def get_broker_config(tool: Tool, options: Options) -> AsyncIterator[str]:
    if options.b is not None:
        places = [(options.b, options.b)]
    else:
        brokers = await tool.brokers(options.c)
        masters = {one.name: one.address for one in brokers if one.is_master}
        places = [
            (
                one.address,
                f"Master: {one.address}"
                if one.is_master
                else f"My Master: {masters.get(one.name, 'NO_MASTER')}=====Slave: {one.address}",
            )
            for one in brokers
        ]
    for address, title in places:
        yield f"============{title}============"
        for name, value in (await tool.admin.brokers.settings(address)).items():
            yield f"{name:<50}=  {value}"
        yield ""


@LOOKS("getNamesrvConfig", "settings of the name servers")
async def get_namesrv_config(tool: Tool, _: Options) -> AsyncIterator[str]:
    for address in await tool.name_servers():
        answer = await tool.cluster.ask(address, Command(RequestCode.GET_NAMESRV_CONFIG))
        yield f"============{address}============"
        for name, value in properties_text.parse(answer.body.decode()).items():
            yield f"{name:<50}=  {value}"


@LOOKS("haStatus", "how far the slaves of a master are", INTERVAL, places=True)
async def ha_status(tool: Tool, options: Options) -> AsyncIterator[str]:
    async for line in again(options.i, lambda: _replication(tool, options)):
        yield line


async def _replication(tool: Tool, options: Options) -> AsyncIterator[str]:
    from orbitmq.wire.bodies.ha import HARuntimeInfo

    for address in await tool.addresses(options):
        answer = await tool.cluster.ask(address, Command(RequestCode.GET_BROKER_HA_STATUS))
        info = HARuntimeInfo.decode(answer.body)
        if not info.master:
            own = info.ha_client_runtime_info
            yield f"\n#MasterAddr\t{own.master_addr}\n#CommitLogMaxOffset\t{own.max_offset}"
            yield f"#TransferSpeed(KB/s)\t{own.transferred_byte_in_second / 1024:.2f}"
            yield f"#LastReadTime\t{clock(own.last_read_timestamp)}"
            yield f"#LastWriteTime\t{clock(own.last_write_timestamp)}"
            yield f"#MasterFlushOffset\t{own.master_flush_offset}"
            continue
        yield f"\n#MasterAddr\t{address}\n#MasterCommitLogMaxOffset\t{info.master_commit_log_max_offset}"
        yield f"#SlaveNum\t{len(info.ha_connection_info)}\n#InSyncSlaveNum\t{info.in_sync_slave_nums}"
        yield laid(
            "%-32s  %-16s %16s %16s %16s %16s",
            "#SlaveAddr",
            "#SlaveAckOffset",
            "#Diff",
            "#TransferSpeed(KB/s)",
            "#Status",
            "#TransferFromWhere",
        )
        for one in info.ha_connection_info:
            yield laid(
                "%-32s  %-16d %16d %16.2f %16s %16d",
                one.addr,
                one.slave_ack_offset,
                one.diff,
                one.transferred_byte_in_second / 1024,
                "OK" if one.in_sync else "Fall Behind",
                one.transfer_from_where,
            )


# -- topics ----------------------------------------------------------------------------------------------


@LOOKS("topicList", "names of all topics", Flag("c", "clusterModel", "with clusters and groups", takes=False))
async def topic_list(tool: Tool, options: Options) -> AsyncIterator[str]:
    names = await tool.admin.topics.list()
    if not options.c:
        for name in names:
            yield name
        return
    yield laid("%-20s  %-48s  %-48s", "#Cluster Name", "#Topic", "#Consumer Group")
    for name in names:
        if not name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            try:
                clusters = {entry.cluster: None for entry in await tool.cluster.route(name)}
                groups = await groups_of(tool, name)
            except TopicNotFoundError:
                clusters, groups = {}, []
            for group in groups or [""]:
                yield laid(
                    "%-20s  %-64s  %-64s",
                    front(next(iter(clusters), ""), 20),
                    front(name, 64),
                    front(group, 64),
                )


@LOOKS("topicClusterList", "clusters that have a topic", TOPIC)
async def topic_cluster_list(tool: Tool, options: Options) -> AsyncIterator[str]:
    for cluster in sorted({entry.cluster for entry in await tool.cluster.route(options.t)}):
        yield cluster


@LOOKS("topicRoute", "brokers and queues of a topic", TOPIC, Flag("l", "list", "as a table", takes=False))
async def topic_route(tool: Tool, options: Options) -> AsyncIterator[str]:
    route = await _route(tool, options.t)
    if not options.l:
        yield json_of(route.to_plain())
        return
    row = "%-45s %-32s %-50s %-10s %-11s %-5s"
    yield laid(row, "#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm")
    queues = {data.broker_name: data for data in route.queue_datas}
    read = write = 0
    for broker in sorted(route.broker_datas, key=lambda data: data.broker_name):
        own = queues[broker.broker_name]
        read, write = read + own.read_queue_nums, write + own.write_queue_nums
        addresses = ", ".join(
            f"{number}={address}" for number, address in sorted(broker.broker_addrs.items())
        )
        yield laid(
            row,
            broker.cluster,
            broker.broker_name,
            f"{{{addresses}}}",
            own.read_queue_nums,
            own.write_queue_nums,
            own.perm,
        )
    yield "-" * 158
    yield laid(row, "Total:", len(queues), "", read, write, "")


async def _route(tool: Tool, topic: str) -> TopicRouteData:
    route = await tool.cluster.name_servers.topic_route(topic, tool.cluster.timeout_ms)
    if route is None:
        raise TopicNotFoundError(topic, f"no broker has the topic {topic}")
    return route


@LOOKS("topicStatus", "offsets of a topic's queues", TOPIC, CLUSTER)
async def topic_status(tool: Tool, options: Options) -> AsyncIterator[str]:
    readers = [one for one in await tool.cluster.readers(options.t) if options.c in (None, one.cluster)]
    request = headers.GetTopicStatsInfoRequest(topic=options.t).command()
    answers = await tool.cluster.ask_all(
        readers, request, lambda _, answer: TopicStatsTable.decode(answer.body)
    )
    tables = [table for _, table in answers.partial(answers.pairs).whole()]
    yield laid(
        "%-32s  %-4s  %-20s  %-20s    %s",
        "#Broker Name",
        "#QID",
        "#Min Offset",
        "#Max Offset",
        "#Last Updated",
    )
    for queue, ends in sorted(pair for table in tables for pair in table.offset_table.items()):
        yield laid(
            "%-32s  %-4d  %-20d  %-20d    %s",
            front(queue.broker_name, 32),
            queue.queue_id,
            ends.min_offset,
            ends.max_offset,
            clock(ends.last_update_timestamp),
        )
    yield ""
    yield f"Topic Put TPS: {float(sum(table.topic_put_tps for table in tables))}"


async def groups_of(tool: Tool, topic: str) -> list[str]:
    request = headers.QueryTopicConsumeByWhoRequest(topic=topic).command()
    answers = await tool.cluster.ask_all(
        await tool.cluster.readers(topic), request, lambda _, answer: GroupList.decode(answer.body).group_list
    )
    return sorted({name for _, names in answers.pairs for name in names})
