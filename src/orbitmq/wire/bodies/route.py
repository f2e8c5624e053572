"""The bodies of the name server's requests and answers: registrations, routes and clusters."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import Final

from orbitmq.message.compression import decompress
from orbitmq.message.errors import CompressionError
from orbitmq.message.record import body_crc
from orbitmq.wire import fastjson
from orbitmq.wire.bodies.base import Body
from orbitmq.wire.bodies.topic import (
    DataVersion,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicQueueMappingInfo,
)
from orbitmq.wire.errors import BodyError
from orbitmq.wire.versions import V3_0_11, V5_0_0

__all__ = [
    "MAX_REGISTRATION_BYTES",
    "BrokerData",
    "BrokerMemberGroup",
    "ClusterInfo",
    "GetBrokerMemberGroupResponseBody",
    "QueueData",
    "RegisterBrokerBody",
    "TopicRouteData",
    "registration_crc",
]

MAX_REGISTRATION_BYTES: Final = 256 * 1024 * 1024

_INT32 = struct.Struct(">i")


@dataclass(slots=True)
class RegisterBrokerBody(Body):
    """The registration of a broker, with its topics."""

    topic_config_serialize_wrapper: TopicConfigAndMappingSerializeWrapper = field(
        default_factory=TopicConfigAndMappingSerializeWrapper
    )
    filter_server_list: list[str] = field(default_factory=list)

    def encode_compressed(self, version: int = V5_0_0) -> bytes:
        """The binary, compressed form that a broker of ``version`` sends."""
        wrapper = self.topic_config_serialize_wrapper
        topics = [config.encode_text().encode() for _, config in sorted(wrapper.topic_config_table.items())]
        parts = [*_block(wrapper.data_version.encode()), _INT32.pack(len(topics))]
        for topic in topics:
            parts += _block(topic)
        parts += _block(fastjson.dumps(self.filter_server_list))
        if version >= V5_0_0:
            mappings = wrapper.topic_queue_mapping_info_map
            parts.append(_INT32.pack(len(mappings)))
            for _, info in sorted(mappings.items()):
                parts += _block(info.encode(java_keys=True))
        return zlib.compress(b"".join(parts), 9)

    @classmethod
    def decode_registration(cls, body: bytes, *, compressed: bool, version: int) -> RegisterBrokerBody:
        """Read the body of REGISTER_BROKER by its header's ``compressed`` and its command's version.

        Java's 5.x broker sends ``compressed=false`` even with a compressed body, so a body that begins like a
        zlib stream is always read as one.

        Raises:
            BodyError: the body does not have the form that its header names.
        """
        if compressed or body[:1] == b"\x78":
            return cls._decode_compressed(body, version)
        if version >= V3_0_11 or not body:
            return cls.decode(body) if body else cls()
        return cls(TopicConfigAndMappingSerializeWrapper.decode(body))

    @classmethod
    def _decode_compressed(cls, body: bytes, version: int) -> RegisterBrokerBody:
        try:
            blocks = _Blocks(decompress(body, 0, MAX_REGISTRATION_BYTES))
        except CompressionError as error:
            raise BodyError(f"registration: {error}") from error
        wrapper = TopicConfigAndMappingSerializeWrapper(DataVersion.decode(blocks.next("dataVersion")))
        for _ in range(blocks.count("topicConfig")):
            config = TopicConfig.decode_text(blocks.next("topicConfig").decode("utf-8", "replace"))
            wrapper.topic_config_table[config.topic_name] = config
        filters = fastjson.loads(blocks.next("filterServerList") or b"[]")
        if version >= V5_0_0:
            for _ in range(blocks.count("topicQueueMappingInfo")):
                info = TopicQueueMappingInfo.decode(blocks.next("topicQueueMappingInfo"))
                wrapper.topic_queue_mapping_info_map[info.topic] = info
        return cls(wrapper, [str(item) for item in filters] if isinstance(filters, list) else [])


def registration_crc(body: bytes) -> int:
    """The header's ``bodyCrc32`` for a registration's encoded body."""
    return body_crc(body)


def _block(data: bytes) -> tuple[bytes, bytes]:
    return _INT32.pack(len(data)), data


class _Blocks:
    """Reads the lengths and blocks of a compressed registration, never beyond its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def count(self, field_name: str) -> int:
        """Read a number of blocks. Each block needs at least its length field, so a false number is
        detected."""
        found = self._number(field_name)
        if not 0 <= found <= (len(self._data) - self._at) // 4:
            raise BodyError(
                f"registration: {found} entries of {field_name} do not fit {len(self._data)} bytes"
            )
        return found

    def next(self, field_name: str) -> bytes:
        length = self._number(field_name)
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise BodyError(f"registration: length {length} of {field_name} does not fit at byte {self._at}")
        block = self._data[self._at : end]
        self._at = end
        return block

    def _number(self, field_name: str) -> int:
        if self._at + 4 > len(self._data):
            raise BodyError(f"registration ends at byte {len(self._data)}, before {field_name}")
        (found,) = _INT32.unpack_from(self._data, self._at)
        self._at += 4
        return int(found)


@dataclass(slots=True)
class QueueData(Body):
    """The queues of a topic on one broker group.

    ``topic_syn_flag`` is the name of ``topic_sys_flag`` in clients up to 4.7; set both for them.
    """

    broker_name: str = ""
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 0
    topic_sys_flag: int = 0
    topic_syn_flag: int | None = None


@dataclass(slots=True)
class BrokerData(Body):
    """The addresses of one broker group by broker id; 0 is the master."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = field(default_factory=dict)
    zone_name: str | None = None
    enable_acting_master: bool = False


@dataclass(slots=True)
class TopicRouteData(Body):
    """The brokers and queues of a topic."""

    queue_datas: list[QueueData] = field(default_factory=list)
    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


@dataclass(slots=True)
class ClusterInfo(Body):
    """All brokers, and the clusters to which they belong."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, set[str]] = field(default_factory=dict)


@dataclass(slots=True)
class BrokerMemberGroup(Body):
    """The living members of a broker group."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class GetBrokerMemberGroupResponseBody(Body):
    """Body of the response to GET_BROKER_MEMBER_GROUP."""

    broker_member_group: BrokerMemberGroup | None = None
