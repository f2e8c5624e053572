"""The settings of all topics and groups of a broker, fetched again only if they have changed.

A broker sends each table with its version. The next request carries that version and asks for the configs
after the last one: the answer is empty while the table is unchanged. Brokers without paging send the whole
table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from orbitmq.admin.cluster_client import ClusterClient
from orbitmq.admin.group_settings import GroupSettings, from_wire
from orbitmq.admin.model import BrokerInfo, TopicSettings
from orbitmq.message.numbers import whole_number
from orbitmq.message.reserved import PERM_READ, PERM_WRITE
from orbitmq.wire import all_headers as headers
from orbitmq.wire import fastjson
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.topic import DataVersion, TopicConfig
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import BodyError

# Most brokers whose tables are kept.
MOST_KEPT: Final = 256
# Most settings that are kept for reuse, so that equal settings share one object.
MOST_SAME: Final = 1000
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Kind(Generic[S]):
    """The kind of table: topics or groups.

    Attributes:
        whole: the code of the request for the whole table.
        after: builds the request for the configs after the first n, from n and the version of the table.
        total: the header field of an answer that holds the number of configs in the table.
        table: the field of the body that holds the table.
        name: the field of a config that holds its name.
        read: converts a config into settings.
    """

    whole: RequestCode
    after: Callable[[int, str], Command]
    total: str
    table: str
    name: str
    read: Callable[[Any], S]


def _topic_settings(plain: object) -> TopicSettings:
    config = TopicConfig.from_json(plain)
    queues = max(config.read_queue_nums, config.write_queue_nums)
    perm = config.perm & (PERM_READ | PERM_WRITE)
    return TopicSettings(queues, perm, config.order, dict(config.attributes or {}))


def _groups_after(number: int, version: str) -> Command:
    return headers.GetAllSubscriptiongroupConfigRequest(
        group_seq=number, data_version=version, max_group_num=1
    ).command()


def _topics_after(number: int, version: str) -> Command:
    return headers.GetAllTopicConfigRequest(topic_seq=number, data_version=version, max_topic_num=1).command()


GROUPS: Final[Kind[GroupSettings]] = Kind(
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    _groups_after,
    "totalGroupNum",
    "subscriptionGroupTable",
    "groupName",
    lambda plain: from_wire(SubscriptionGroupConfig.from_json(plain)),
)
TOPICS: Final[Kind[TopicSettings]] = Kind(
    RequestCode.GET_ALL_TOPIC_CONFIG,
    _topics_after,
    "totalTopicNum",
    "topicConfigTable",
    "topicName",
    _topic_settings,
)


@dataclass(frozen=True, slots=True)
class _Known(Generic[S]):
    version: DataVersion | None
    settings: Mapping[str, S]


class Tables(Generic[S]):
    """The tables of one kind, of all brokers."""

    def __init__(self, cluster: ClusterClient, kind: Kind[S]) -> None:
        self._cluster = cluster
        self._kind = kind
        self._known: dict[str, _Known[S]] = {}
        # Settings by the text of the config from which they were read.
        self._same: dict[str, S] = {}

    async def of(self, broker: BrokerInfo) -> Mapping[str, S]:
        """The settings of every topic or group of a broker by name, including RocketMQ's own.

        Raises:
            BrokerError, TransportError, WireError: the broker refuses, cannot be reached, or sends no valid
                table.
        """
        known = self._known.get(broker.address)
        if known is not None and known.version is not None:
            number, version = len(known.settings), known.version.encode().decode()
            answer = await self._cluster.ask(broker.address, self._kind.after(number, version))
            found = self._read(answer)
            if found.version == known.version and not found.settings:
                return known.settings
            total = whole_number(answer.ext.get(self._kind.total, ""))
            if total is None or total == len(found.settings):
                return self._keep(broker, found)
        answer = await self._cluster.ask(broker.address, Command(self._kind.whole))
        return self._keep(broker, self._read(answer))

    def _keep(self, broker: BrokerInfo, found: _Known[S]) -> Mapping[str, S]:
        self._known.pop(broker.address, None)
        self._known[broker.address] = found
        while len(self._known) > MOST_KEPT:
            del self._known[next(iter(self._known))]
        return found.settings

    def _read(self, answer: Command) -> _Known[S]:
        """The table in an answer. Most configs differ only in their names, so equal settings share one
        object.
        """
        kind = self._kind
        body = fastjson.loads(answer.body)
        table = body.get(kind.table) if isinstance(body, dict) else None
        if not isinstance(table, dict):
            raise BodyError(f"the answer to code {kind.whole} has no {kind.table}")
        settings: dict[str, S] = {}
        if len(self._same) > MOST_SAME:
            self._same.clear()
        same = self._same
        for name, plain in table.items():
            if isinstance(plain, dict):
                plain.pop(kind.name, None)
            key = repr(plain)
            if key not in same:
                same[key] = kind.read(plain)
            settings[name] = same[key]
        version = body.get("dataVersion")
        return _Known(None if version is None else DataVersion.from_json(version), settings)
