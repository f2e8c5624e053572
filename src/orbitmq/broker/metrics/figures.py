"""The figures of the broker itself: one series each, or a few."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from orbitmq.broker.clients.registry import Client, ClientManager
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.doors import Doors
from orbitmq.broker.messaging.held_pulls import LongPolling
from orbitmq.broker.metadata.groups import SubscriptionGroups
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.role import Role, RoleState
from orbitmq.broker.statistics import Stats
from orbitmq.message.reserved import is_system_group
from orbitmq.monitoring.certificates import write_end
from orbitmq.monitoring.exposition import Exposition
from orbitmq.monitoring.process import Process
from orbitmq.runtime.seam import Runtime
from orbitmq.store import MessageStore
from orbitmq.wire.bodies.client import ConsumeType
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Language
from orbitmq.wire.versions import name_of

REMOTING: Final = "remoting"
# RocketMQ's thread pools, shown as empty: OrbitMQ's handlers have no request queues.
PROCESSORS: Final = (
    "send", "async_put", "pull", "ack", "query_message", "client_manager", "heartbeat", "lite_pull",
    "transaction", "consumer_manager", "admin", "reply",
)  # fmt: skip
MODES: Final = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}
# Lines of brokerStatus that are numbers: the metric, its meaning, and the factor to its unit.
STATUS: Final[Mapping[str, tuple[str, str, int]]] = {
    "timerOffsetBehind": ("rocketmq_timer_enqueue_lag", "Timer messages that were not looked at yet", 1),
    "timerReadBehind": (
        "rocketmq_timer_dequeue_latency_milliseconds",
        "How late the oldest timer message that is due is",
        1000,
    ),
    "timerCongestNum": ("orbitmq_timers_waiting", "Timer messages that wait for their time", 1),
    "haFollowers": ("orbitmq_ha_followers", "Slaves that are connected", 1),
    "haFollowersBehindBytes": (
        "orbitmq_ha_followers_behind_bytes",
        "How far the last connected slave is behind",
        1,
    ),
    "inSyncReplicaNums": ("orbitmq_ha_in_sync_replicas", "Brokers in sync, this one included", 1),
    "needAckReplicaNums": (
        "orbitmq_ha_needed_replicas",
        "Brokers that must have a message before its sender is answered",
        1,
    ),
    "answersWaiting": ("orbitmq_answers_waiting", "Answers to senders that wait for the disk or slaves", 1),
}
_STORED_ON: Final = {"storage_type": "local", "storage_medium": "disk"}


class Figures:
    """Reads figures that the broker counts for other purposes already.

    Args:
        status: functions that return attached parts' lines of brokerStatus; grows while parts are attached.

    Attributes:
        process: the figures of the process.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        doors: Doors,
        role: RoleState,
        store: MessageStore,
        topics: TopicConfigs,
        groups: SubscriptionGroups,
        clients: ClientManager,
        stats: Stats,
        long_polling: LongPolling,
        status: Sequence[Callable[[], Mapping[str, str]]],
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._doors = doors
        self.process = Process(runtime.clock, runtime.host)
        self._role = role
        self._store = store
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._stats = stats
        self._long_polling = long_polling
        self._status = status

    def write(self, text: Exposition) -> None:
        """Add all of the broker's figures."""
        self._broker(text)
        self._failures(text)
        self._times(text)
        self._storage(text)
        self._attached(text)
        self._connections(text)
        write_end(text, self._doors.tls.ends_ms, self._doors.tls.files.cert)

    def _broker(self, text: Exposition) -> None:
        role = text.family("orbitmq_role", "gauge", "1 at the role that the broker has")
        for each in Role:
            role.add(int(each is self._role.role), role=each.value)
        watermark = text.family("rocketmq_processor_watermark", "gauge", "Requests that wait for a thread")
        for processor in PROCESSORS:
            watermark.add(0, processor=processor)
        counters = self._stats.counters
        for name, kind, meaning, value in (
            ("rocketmq_broker_permission", "gauge", "Sum of 2 (write) and 4 (read)",
             self._config.broker_permission),
            ("rocketmq_topic_number", "gauge", "Topics", len(self._topics)),
            ("rocketmq_consumer_group_number", "gauge", "Consumer groups", len(self._groups)),
            ("orbitmq_messages_in_total", "counter", "Messages taken since the start", counters.messages_in),
            ("orbitmq_messages_out_total", "counter", "Messages handed out since the start",
             counters.messages_out),
            ("orbitmq_fast_path_messages_in_total", "counter", "Those of them that took the fast path",
             counters.fast_in),
            ("orbitmq_fast_path_messages_out_total", "counter", "Those of them that took the fast path",
             counters.fast_out),
            ("orbitmq_connections", "gauge", "Connections of the remoting protocol that are open",
             sum(server.open for server in self._doors.servers)),
            ("orbitmq_sends_failed_total", "counter", "Sends that the store or the disk refused",
             counters.failed),
            ("orbitmq_pulls_waiting", "gauge", "Pulls that wait for messages", len(self._long_polling)),
            ("orbitmq_start_time_seconds", "gauge", "When the broker began to serve, since 1970",
             self._stats.started_ms / 1000),
        ):  # fmt: skip
            text.family(name, kind, meaning).add(value)

    def _failures(self, text: Exposition) -> None:
        failures: Counter[tuple[str, str]] = Counter()
        for server in self._doors.servers:
            for (request, response), number in server.failures.items():
                failures[_name(RequestCode, request), _name(ResponseCode, response)] += number
        family = text.family(
            "orbitmq_requests_failed_total", "counter", "Requests that were not answered with success"
        )
        for (asked, told), number in failures.items():
            family.add(number, request_code=asked, response_code=told)

    def _times(self, text: Exposition) -> None:
        family = text.family(
            "rocketmq_rpc_latency_milliseconds", "histogram", "From a request's arrival to its answer"
        )
        if self._doors.times is None:
            return
        for (request, response, result), found in self._doors.times.read().items():
            family.add_histogram(
                found,
                protocol_type=REMOTING,
                request_code=request,
                response_code=response,
                is_long_polling="false",
                result=result,
            )

    def _storage(self, text: Exposition) -> None:
        store, files = self._store, self._runtime.files
        total, free = files.disk_bytes(store.config.commit_log_path)
        end = store.max_commit_log_offset

        def stored(name: str, meaning: str, value: int) -> None:
            text.family(name, "gauge", meaning, **_STORED_ON).add(value)

        stored("rocketmq_storage_size_bytes", "What is used of the store's file system", total - free)
        stored("rocketmq_storage_flush_behind_bytes", "Not on disk yet", max(0, end - store.flushed_offset))
        stored("rocketmq_storage_dispatch_behind_bytes", "In the log, not in its queue yet", 0)
        if store.earliest_store_time > 0:
            age = self._runtime.clock.now_ms() - store.earliest_store_time
            stored("rocketmq_storage_message_reserve_time_milliseconds", "Age of the oldest message", age)
        text.family("orbitmq_disk_free_bytes", "gauge", "Free in the store's file system").add(free)
        text.family("orbitmq_disk_size_bytes", "gauge", "Size of the store's file system").add(total)
        text.family("orbitmq_commit_log_start_bytes", "gauge", "Where the message log begins").add(
            store.min_commit_log_offset
        )
        text.family("orbitmq_commit_log_end_bytes", "gauge", "Where the message log ends").add(end)
        text.family(
            "orbitmq_flush_seconds", "histogram", "How long it takes to bring the message log to the device"
        ).add_histogram(store.flusher.times)
        text.family("orbitmq_store_refuses", "gauge", "1 while the store takes no messages").add(
            int(store.refusal is not None)
        )

    def _attached(self, text: Exposition) -> None:
        lines = {name: value for each in self._status for name, value in each().items()}
        for line, (name, meaning, factor) in STATUS.items():
            if line in lines:
                common = _STORED_ON if name.startswith("rocketmq_timer") else {}
                text.family(name, "gauge", meaning, **common).add(int(lines[line]) * factor)

    def _connections(self, text: Exposition) -> None:
        producers = text.family("rocketmq_producer_connections", "gauge", "Producers that are online")
        number = Counter(
            _program(client) for members in self._clients.producer_groups().values() for client in members
        )
        for (language, version), count in number.items():
            producers.add(count, language=language, version=version, protocol_type=REMOTING)
        consumers = text.family("rocketmq_consumer_connections", "gauge", "Consumers that are online")
        conflicts = text.family(
            "orbitmq_subscription_conflicts_total",
            "counter",
            "Heartbeats whose subscription contradicted that of another member",
        )
        for config in list(self._groups):
            group = config.group_name
            state = self._clients.consumers(group)
            if state is None:
                continue
            members = Counter(_program(client) for client in state.members.values())
            for (language, version), count in members.items():
                consumers.add(
                    count,
                    consumer_group=group,
                    language=language,
                    version=version,
                    consume_mode=MODES[state.consume_type],
                    protocol_type=REMOTING,
                    is_system=str(is_system_group(group)).lower(),
                )
            if found := self._clients.conflict_count(group):
                conflicts.add(found, consumer_group=group)


def _name(kind: type[RequestCode] | type[ResponseCode], code: int) -> str:
    try:
        return kind(code).name.lower()
    except ValueError:
        return "other"


def _program(client: Client) -> tuple[str, str]:
    try:
        language = Language(client.language).name.lower()
    except ValueError:
        language = "other"
    return language, name_of(client.version)
