"""A route in the form that its reader expects; parts that many routes share are encoded once."""

from __future__ import annotations

from functools import lru_cache

from orbitmq.wire.bodies.route import BrokerData, QueueData, TopicRouteData

VERSION_4_9_0 = 393  # from this version on peers read topicSysFlag, before it topicSynFlag


def encode_route(route: TopicRouteData, *, standard: bool, version: int) -> bytes:
    """The route as a peer of ``version`` reads it: the bytes of ``TopicRouteData.encode``.

    Args:
        standard: quoted numeric keys; otherwise fastjson's unquoted ones.
    """
    old = version < VERSION_4_9_0
    brokers = [
        _broker(
            data.cluster,
            data.broker_name,
            tuple(data.broker_addrs.items()),
            data.zone_name,
            data.enable_acting_master,
            not standard,
        )
        for data in route.broker_datas
    ]
    queues = [
        _queues(
            data.broker_name,
            data.read_queue_nums,
            data.write_queue_nums,
            data.perm,
            data.topic_sys_flag,
            old,
        )
        for data in route.queue_datas
    ]
    rest = TopicRouteData(
        filter_server_table=route.filter_server_table,
        order_topic_conf=route.order_topic_conf,
        topic_queue_mapping_by_broker=route.topic_queue_mapping_by_broker,
    ).encode(java_keys=not standard)
    # Fields are sorted, and neither list's name can occur inside a text: quotes there are escaped.
    head, _, tail = rest.partition(b'"brokerDatas":[]')
    middle, _, end = tail.partition(b'"queueDatas":[]')
    return b"".join(
        (
            head,
            b'"brokerDatas":[',
            b",".join(brokers),
            b"]",
            middle,
            b'"queueDatas":[',
            b",".join(queues),
            b"]",
            end,
        )
    )


@lru_cache(8192)
def _broker(
    cluster: str,
    name: str,
    addresses: tuple[tuple[int, str], ...],
    zone: str | None,
    acting_master: bool,
    java_keys: bool,
) -> bytes:
    data = BrokerData(
        cluster=cluster,
        broker_name=name,
        broker_addrs=dict(addresses),
        zone_name=zone,
        enable_acting_master=acting_master,
    )
    return data.encode(java_keys=java_keys)


@lru_cache(65536)
def _queues(name: str, read: int, write: int, perm: int, sys_flag: int, old: bool) -> bytes:
    data = QueueData(
        broker_name=name,
        read_queue_nums=read,
        write_queue_nums=write,
        perm=perm,
        topic_sys_flag=sys_flag,
        topic_syn_flag=sys_flag if old else None,
    )
    return data.encode()
