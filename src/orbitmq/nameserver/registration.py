"""Reads the requests with which brokers register."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

from orbitmq.nameserver.brokers import BrokerReport
from orbitmq.nameserver.topics import GroupQueues, shared_queues
from orbitmq.runtime.seam import Threads
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import fastjson
from orbitmq.wire.bodies.route import RegisterBrokerBody, registration_crc
from orbitmq.wire.bodies.topic import DataVersion, TopicConfig, TopicConfigAndMappingSerializeWrapper
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import BodyError, RemotingError
from orbitmq.wire.headers.route import RegisterBrokerRequest
from orbitmq.wire.versions import V3_0_11

ZONE_NAME = "__ZONE_NAME"
# A longer report is read and stored in slices: a report of this size takes about 0.5 ms.
SHORT_BYTES = 8 * 1024
# Topics read or stored before the event loop gets time for other work: about 0.4 ms.
READ_TOPICS = 64
STORE_TOPICS = 500


def read_registration(command: Command, connection: Hashable) -> BrokerReport:
    """Turn REGISTER_BROKER into a report for the route table.

    Raises:
        RemotingError: "crc32 not match", or a body that cannot be read.
    """
    header = RegisterBrokerRequest.from_ext(command.ext)
    _check_crc(header, command.body)
    try:
        body = RegisterBrokerBody.decode_registration(
            command.body, compressed=header.compressed, version=command.version
        )
    except BodyError as error:
        raise _unreadable(error) from error
    wrapper = body.topic_config_serialize_wrapper
    return _report(
        header,
        command,
        connection,
        version=wrapper.data_version,
        topics={name: _queues_of(config) for name, config in wrapper.topic_config_table.items()},
        mappings=wrapper.topic_queue_mapping_info_map,
        filter_servers=tuple(body.filter_server_list),
    )


def digest(command: Command) -> bytes:
    """The digest of a report, equal only for equal reports."""
    found = hashlib.blake2b(repr(sorted(command.ext.items())).encode("utf-8", "replace"), digest_size=16)
    found.update(command.body)
    return found.digest()


async def read_long_registration(command: Command, connection: Hashable, threads: Threads) -> BrokerReport:
    """As :func:`read_registration`, in slices between which the event loop does other work.

    Raises:
        RemotingError: as for :func:`read_registration`.
    """
    header = RegisterBrokerRequest.from_ext(command.ext)
    packed = header.compressed or command.body[:1] == b"\x78" or command.version < V3_0_11
    if packed:
        # Brokers send this form only with compressedRegister=true.
        return await threads.run(read_registration, command, connection)
    await threads.run(_check_crc, header, command.body)
    try:
        return await _walk(header, command, connection)
    except (BodyError, UnicodeDecodeError) as error:
        raise _unreadable(error) from error


async def _walk(header: RegisterBrokerRequest, command: Command, connection: Hashable) -> BrokerReport:
    walk = fastjson.Walk(bytes(command.body).decode())
    report = _report(header, command, connection)
    topics: dict[str, GroupQueues] = {}
    for name in walk.members():
        if name != "topicConfigSerializeWrapper":
            value = walk.value()
            if name == "filterServerList" and isinstance(value, list):
                report = replace(report, filter_servers=tuple(map(str, value)))
            continue
        for part in walk.members():
            if part == "topicConfigTable":
                for topic in walk.members():
                    topics[topic] = _queues(walk.quick_value())
                    if len(topics) % READ_TOPICS == 0:
                        await asyncio.sleep(0)
            elif part == "dataVersion":
                report = replace(report, version=DataVersion.from_json(walk.value()))
            elif part == "topicQueueMappingInfoMap":
                wrapper = TopicConfigAndMappingSerializeWrapper.from_json({part: walk.value()})
                report = replace(report, mappings=wrapper.topic_queue_mapping_info_map)
            else:
                walk.value()
    return replace(report, topics=topics)


def _report(
    header: RegisterBrokerRequest, command: Command, connection: Hashable, **content: Any
) -> BrokerReport:
    return BrokerReport(
        cluster=header.cluster_name,
        group=header.broker_name,
        broker_id=header.broker_id,
        address=header.broker_addr,
        ha_address=header.ha_server_addr,
        zone=command.ext.get(ZONE_NAME),
        timeout_ms=header.heartbeat_timeout_millis,
        acting_master=header.enable_acting_master,
        connection=connection,
        opened=opened(connection),
        **content,
    )


def opened(connection: Hashable) -> int:
    """The number of a connection, see :class:`~orbitmq.nameserver.brokers.BrokerReport`."""
    return connection.number if isinstance(connection, ServerConnection) else 0


def _queues(value: Any) -> GroupQueues:
    """The queues of a decoded topic config; the usual form is read without making a TopicConfig."""
    if type(value) is dict:
        found = (
            value.get("readQueueNums"),
            value.get("writeQueueNums"),
            value.get("perm"),
            value.get("topicSysFlag"),
        )
        if all(type(number) is int and -(2**31) <= number < 2**31 for number in found):
            return shared_queues(*found)
    return _queues_of(TopicConfig.from_json(value))


def _queues_of(config: TopicConfig) -> GroupQueues:
    return shared_queues(config.read_queue_nums, config.write_queue_nums, config.perm, config.topic_sys_flag)


def _check_crc(header: RegisterBrokerRequest, body: bytes) -> None:
    if header.body_crc32 and header.body_crc32 != registration_crc(body):
        raise RemotingError(ResponseCode.SYSTEM_ERROR, "crc32 not match")


def _unreadable(error: Exception) -> RemotingError:
    return RemotingError(ResponseCode.SYSTEM_ERROR, f"Failed to decode RegisterBrokerBody: {error}")
