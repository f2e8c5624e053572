"""Reading what brokers send to register."""

from __future__ import annotations

from collections.abc import Hashable

from orbitmq.nameserver.routes import Registration
from orbitmq.nameserver.topics import TopicQueues
from orbitmq.wire.bodies import RegisterBrokerBody, registration_crc
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import BodyError, RemotingError
from orbitmq.wire.headers import RegisterBrokerRequest

ZONE_NAME = "__ZONE_NAME"


def read_registration(command: Command, connection: Hashable) -> Registration:
    """Turn REGISTER_BROKER into a report for the route table.

    Raises:
        RemotingError: "crc32 not match", or a body that cannot be read.
    """
    header = RegisterBrokerRequest.from_ext(command.ext)
    if header.body_crc32 and header.body_crc32 != registration_crc(command.body):
        raise RemotingError(ResponseCode.SYSTEM_ERROR, "crc32 not match")
    try:
        body = RegisterBrokerBody.decode_registration(
            command.body, compressed=header.compressed, version=command.version
        )
    except BodyError as error:
        remark = f"Failed to decode RegisterBrokerBody: {error}"
        raise RemotingError(ResponseCode.SYSTEM_ERROR, remark) from error
    wrapper = body.topic_config_serialize_wrapper
    return Registration(
        cluster=header.cluster_name,
        group=header.broker_name,
        broker_id=header.broker_id,
        address=header.broker_addr,
        ha_address=header.ha_server_addr,
        zone=command.ext.get(ZONE_NAME),
        timeout_ms=header.heartbeat_timeout_millis,
        acting_master=header.enable_acting_master,
        version=wrapper.data_version,
        topics={
            name: TopicQueues(c.read_queue_nums, c.write_queue_nums, c.perm, c.topic_sys_flag)
            for name, c in wrapper.topic_config_table.items()
        },
        mappings=wrapper.topic_queue_mapping_info_map,
        filter_servers=tuple(body.filter_server_list),
        connection=connection,
    )
