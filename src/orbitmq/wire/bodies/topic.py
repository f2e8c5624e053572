"""The bodies about topics: their configuration and its version, static topics, and tables of topics."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from orbitmq.message.reserved import PERM_READ, PERM_WRITE
from orbitmq.wire import fastjson
from orbitmq.wire.bodies.base import Body
from orbitmq.wire.errors import BodyError

__all__ = [
    "CreateTopicListRequestBody",
    "DataVersion",
    "GroupList",
    "KVTable",
    "LogicQueueMappingItem",
    "MadeAt",
    "TopicConfig",
    "TopicConfigAndMappingSerializeWrapper",
    "TopicConfigAndQueueMapping",
    "TopicConfigSerializeWrapper",
    "TopicFilterType",
    "TopicList",
    "TopicQueueMappingDetail",
    "TopicQueueMappingInfo",
]


class TopicFilterType(StrEnum):
    """The values of ``TopicConfig.topic_filter_type``, which brokers do not read."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


@dataclass(slots=True)
class DataVersion(Body):
    """The version of a table; versions are equal when all three numbers are.

    Attributes:
        state_version: grows when a controller elects a new master.
        timestamp: when the table last changed, milliseconds since the epoch.
        counter: the number of changes.
    """

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def next(self, now_ms: int, state_version: int | None = None) -> DataVersion:
        """The version after one change."""
        state = self.state_version if state_version is None else state_version
        return DataVersion(state, now_ms, self.counter + 1)

    def is_newer_than(self, other: DataVersion) -> bool:
        """Whether this version is newer, in Java's order: by state version, then counter, then time."""
        mine = (self.state_version, self.counter, self.timestamp)
        return mine > (other.state_version, other.counter, other.timestamp)


@dataclass(slots=True)
class MadeAt(Body):
    """(OrbitMQ) Where a topic's messages begin, which separates them from those of a deleted topic of its
    name.

    Attributes:
        log_offset: the end of the commit log when the topic was created.
        time_ms: messages stored at that time or later belong to the topic, whatever their offset in the log:
            the log may have lost its end since then, and have got a new one.
    """

    log_offset: int = 0
    time_ms: int = 0

    def __str__(self) -> str:
        """The text in answers with an offset of the topic; clients only compare it."""
        return f"{self.log_offset}@{self.time_ms}"


@dataclass(slots=True)
class TopicConfig(Body):
    """One topic of a broker. ``perm``, ``topic_sys_flag``: bits of :mod:`orbitmq.message.reserved`.

    Attributes:
        made_at: where its messages begin; ``None`` if, as far as is known, all messages in its queues are its
            own. RocketMQ's programs ignore the field, and do not write it back.
    """

    topic_name: str = ""
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = PERM_READ | PERM_WRITE
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)
    made_at: MadeAt | None = None

    def encode_text(self) -> str:
        """The one-line form of compressed registrations; it has neither ``order`` nor ``topic_sys_flag``."""
        attributes = fastjson.dumps(self.attributes).decode()
        return (
            f"{self.topic_name} {self.read_queue_nums} {self.write_queue_nums} {self.perm} "
            f"{self.topic_filter_type.value} {attributes}"
        )

    @classmethod
    def decode_text(cls, text: str) -> TopicConfig:
        """Read the one-line form.

        Raises:
            BodyError: there are fewer than five words, a word that must be a number is none, or the
                attributes are not JSON.
        """
        words = text.split(" ", 5)
        try:
            name, read, write, perm, kind = words[:5]
            config = cls(name, int(read), int(write), int(perm), TopicFilterType(kind))
        except ValueError as error:
            raise BodyError(
                f"topic config {text[:200]!r} is not 'name readQueues writeQueues perm filterType attributes'"
            ) from error
        if len(words) == 6 and words[5].strip():
            config.attributes = _Attributes.from_json({"attributes": fastjson.loads(words[5])}).attributes
        return config


@dataclass(slots=True)
class _Attributes(Body):
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class CreateTopicListRequestBody(Body):
    """Body of UPDATE_AND_CREATE_TOPIC_LIST."""

    topic_config_list: list[TopicConfig] = field(default_factory=list)


@dataclass(slots=True)
class TopicConfigSerializeWrapper(Body):
    """The topic table of a broker, in topics.json and in old registrations."""

    data_version: DataVersion = field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)


@dataclass(slots=True)
class LogicQueueMappingItem(Body):
    """A part of a logical queue: from ``logic_offset`` on it lies in queue ``queue_id`` of broker ``bname``.

    An offset or a time of -1 is not known yet.
    """

    gen: int = 0
    queue_id: int = 0
    bname: str = ""
    logic_offset: int = 0
    start_offset: int = 0
    end_offset: int = -1
    time_of_start: int = -1
    time_of_end: int = -1


@dataclass(slots=True)
class TopicQueueMappingInfo(Body):
    """The logical queues of a static topic that a broker holds (``curr_id_map``: logical to physical id)."""

    topic: str = ""
    scope: str = "__global__"
    total_queues: int = 0
    bname: str = ""
    epoch: int = 0
    dirty: bool = False
    curr_id_map: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class TopicQueueMappingDetail(TopicQueueMappingInfo):
    """The whole mapping of a broker's share of a static topic."""

    hosted_queues: dict[int, list[LogicQueueMappingItem]] = field(default_factory=dict)


@dataclass(slots=True)
class TopicConfigAndQueueMapping(TopicConfig):
    """Body of GET_TOPIC_CONFIG."""

    mapping_detail: TopicQueueMappingDetail | None = None


@dataclass(slots=True)
class TopicConfigAndMappingSerializeWrapper(TopicConfigSerializeWrapper):
    """The topic table with static topics, in the registrations of 5.x brokers."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = field(default_factory=dict)
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] = field(default_factory=dict)
    mapping_data_version: DataVersion = field(default_factory=DataVersion)


@dataclass(slots=True)
class TopicList(Body):
    """Names of topics."""

    topic_list: set[str] = field(default_factory=set)
    broker_addr: str | None = None


@dataclass(slots=True)
class GroupList(Body):
    """Names of consumer groups."""

    group_list: set[str] = field(default_factory=set)


@dataclass(slots=True)
class KVTable(Body):
    """A table of texts by name."""

    table: dict[str, str] = field(default_factory=dict)
