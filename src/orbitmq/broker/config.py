"""Settings of the broker, read from RocketMQ's ``broker.conf`` (Java properties)."""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from orbitmq.broker import names
from orbitmq.broker.rocketmq_keys import KNOWN_KEYS
from orbitmq.wire import properties_text

_MIB = 1024 * 1024
_DAY_MS = 86_400_000


class ConfigError(ValueError):
    """A setting that cannot be used. The text names key, value, what was expected and, if known, the line."""

    def __init__(self, key: str, value: str, expected: str, line: int | None = None) -> None:
        at = f"line {line}: " if line else ""
        super().__init__(f"{at}{key}={value}: expected {expected}")
        self.key = key
        self.value = value
        self.expected = expected
        self.line = line


Parser = Callable[[str, str], Any]


def _text(key: str, value: str) -> str:
    if not value:
        raise ConfigError(key, value, "a text that is not empty")
    return value


def _any_text(_key: str, value: str) -> str:
    return value


def _path(key: str, value: str) -> str:
    return os.path.expanduser(_text(key, value))


def _name(key: str, value: str) -> str:
    """A name that becomes a topic and a folder, so a topic's characters are the rule."""
    if not re.fullmatch(r"[%|a-zA-Z0-9_-]{1,127}", value):
        raise ConfigError(key, value, "1 to 127 characters of %|a-zA-Z0-9_-")
    return value


def _flag(key: str, value: str) -> bool:
    lowered = value.lower()
    if lowered not in ("true", "false"):
        raise ConfigError(key, value, "true or false")
    return lowered == "true"


def _number(low: int, high: int) -> Parser:
    def parse(key: str, value: str) -> int:
        if not re.fullmatch(r"-?\d{1,19}", value) or not low <= int(value) <= high:
            raise ConfigError(key, value, f"a whole number from {low} to {high}")
        return int(value)

    return parse


def _one_of(*choices: str) -> Parser:
    def parse(key: str, value: str) -> str:
        if value not in choices:
            raise ConfigError(key, value, "one of " + ", ".join(choices))
        return value

    return parse


def _hours(key: str, value: str) -> str:
    """``04`` or ``04;16``: hours of the day."""
    if not re.fullmatch(r"\d{1,2}(;\d{1,2})*", value) or any(int(hour) > 23 for hour in value.split(";")):
        raise ConfigError(key, value, "hours from 00 to 23, separated by ';'")
    return value


def _addresses(key: str, value: str) -> str:
    """``host:port;host:port``, or nothing."""
    for address in filter(None, value.split(";")):
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ConfigError(key, value, "addresses as host:port, separated by ';'")
    return value


def _setting(default: Any, key: str, parse: Parser, *, live: bool = False) -> Any:
    """A field of the settings: its RocketMQ key, its parser, and whether a running broker may change it."""
    return field(default=default, metadata={"key": key, "parse": parse, "live": live})


@dataclass(slots=True)
class BrokerConfig:
    """Settings of a broker; the defaults are RocketMQ's (BrokerConfig, MessageStoreConfig) except:

    * ``flush_disk_type`` is SYNC_FLUSH: an acknowledged message is on disk.
    * ``transfer_max_count`` is 1024 (RocketMQ 32): how many messages one pull may get at most.
    * ``broker_ip1`` is 127.0.0.1: RocketMQ asks the machine; the start-up code has to.

    Sizes are bytes. ``broker_permission`` is a sum of 2 (write) and 4 (read).
    """

    broker_name: str = _setting("broker-a", "brokerName", _name)
    broker_cluster_name: str = _setting("DefaultCluster", "brokerClusterName", _name)
    broker_id: int = _setting(0, "brokerId", _number(0, 2**62))
    broker_ip1: str = _setting("127.0.0.1", "brokerIP1", _text)
    broker_ip2: str = _setting("", "brokerIP2", _any_text)
    listen_port: int = _setting(10911, "listenPort", _number(0, 65535))
    bind_address: str = _setting("0.0.0.0", "bindAddress", _text)  # noqa: S104 - RocketMQ's default
    namesrv_addr: str = _setting("", "namesrvAddr", _addresses)
    store_path_root_dir: str = _setting(os.path.join("~", "store"), "storePathRootDir", _path)
    store_path_commit_log: str = _setting("", "storePathCommitLog", _path)
    mapped_file_size_commit_log: int = _setting(
        1024 * _MIB, "mappedFileSizeCommitLog", _number(128 * 1024, 2**31 - 1)
    )
    mapped_file_size_consume_queue: int = _setting(
        6_000_000, "mappedFileSizeConsumeQueue", _number(20, 2**31 - 1)
    )
    flush_disk_type: str = _setting("SYNC_FLUSH", "flushDiskType", _one_of("SYNC_FLUSH", "ASYNC_FLUSH"))
    flush_interval_commit_log_ms: int = _setting(500, "flushIntervalCommitLog", _number(1, 60_000))
    sync_flush_timeout_ms: int = _setting(5000, "syncFlushTimeout", _number(1, 600_000))
    broker_role: str = _setting("ASYNC_MASTER", "brokerRole", _one_of("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"))
    ha_listen_port: int = _setting(10912, "haListenPort", _number(0, 65535))

    broker_permission: int = _setting(6, "brokerPermission", _number(0, 6), live=True)
    default_topic_queue_nums: int = _setting(8, "defaultTopicQueueNums", _number(1, 65536), live=True)
    auto_create_topic_enable: bool = _setting(True, "autoCreateTopicEnable", _flag, live=True)
    cluster_topic_enable: bool = _setting(True, "clusterTopicEnable", _flag)
    broker_topic_enable: bool = _setting(True, "brokerTopicEnable", _flag)
    trace_topic_enable: bool = _setting(False, "traceTopicEnable", _flag)
    msg_trace_topic_name: str = _setting(names.TRACE_TOPIC, "msgTraceTopicName", _name)
    timer_wheel_enable: bool = _setting(True, "timerWheelEnable", _flag)
    revive_queue_num: int = _setting(8, "reviveQueueNum", _number(1, 1024))
    validate_system_topic: bool = _setting(True, "validateSystemTopicWhenUpdateTopic", _flag, live=True)
    auto_create_subscription_group: bool = _setting(True, "autoCreateSubscriptionGroup", _flag, live=True)
    enable_create_sys_group: bool = _setting(True, "enableCreateSysGroup", _flag, live=True)

    region_id: str = _setting("DefaultRegion", "regionId", _text)
    trace_on: bool = _setting(True, "traceOn", _flag)
    max_message_size: int = _setting(4 * _MIB, "maxMessageSize", _number(1, 15 * _MIB))
    reject_transaction_message: bool = _setting(False, "rejectTransactionMessage", _flag, live=True)

    long_polling_enable: bool = _setting(True, "longPollingEnable", _flag, live=True)
    short_polling_time_ms: int = _setting(1000, "shortPollingTimeMills", _number(1, 60_000), live=True)
    pull_queue_capacity: int = _setting(100_000, "pullThreadPoolQueueCapacity", _number(1, 10_000_000))
    reject_pull_consumer: bool = _setting(False, "rejectPullConsumerEnable", _flag, live=True)
    lite_pull_message_enable: bool = _setting(True, "litePullMessageEnable", _flag)
    slave_read_enable: bool = _setting(False, "slaveReadEnable", _flag)
    transfer_max_bytes: int = _setting(256 * 1024, "maxTransferBytesOnMessageInMemory", _number(1, 8 * _MIB))
    transfer_max_count: int = _setting(1024, "maxTransferCountOnMessageInMemory", _number(1, 65_536))

    file_reserved_time_hours: int = _setting(72, "fileReservedTime", _number(0, 1_000_000), live=True)
    delete_when: str = _setting("04", "deleteWhen", _hours, live=True)
    disk_max_used_space_ratio: int = _setting(75, "diskMaxUsedSpaceRatio", _number(10, 95), live=True)

    register_period_ms: int = _setting(30_000, "registerNameServerPeriod", _number(10_000, 60_000))
    register_timeout_ms: int = _setting(24_000, "registerBrokerTimeoutMills", _number(100, 600_000))
    broker_not_active_timeout_ms: int = _setting(
        10_000, "brokerNotActiveTimeoutMillis", _number(1000, _DAY_MS)
    )
    enable_slave_acting_master: bool = _setting(False, "enableSlaveActingMaster", _flag)
    flush_offset_interval_ms: int = _setting(5000, "flushConsumerOffsetInterval", _number(10, 3_600_000))
    offset_version_step: int = _setting(500, "consumerOffsetUpdateVersionStep", _number(1, 1_000_000_000))
    notify_consumer_ids_changed: bool = _setting(True, "notifyConsumerIdsChangedEnable", _flag, live=True)
    channel_expired_ms: int = _setting(120_000, "channelExpiredTimeout", _number(1000, _DAY_MS))

    def __post_init__(self) -> None:
        self.store_path_root_dir = os.path.expanduser(self.store_path_root_dir)

    @property
    def body_limit(self) -> int:
        """Most bytes of one body: ``maxMessageSize``, less when the log's files are small."""
        return min(self.max_message_size, self.mapped_file_size_commit_log // 2)

    @property
    def is_slave(self) -> bool:
        return self.broker_role == "SLAVE"

    @property
    def writable(self) -> bool:
        return self.broker_permission & names.PERM_WRITE != 0

    @property
    def readable(self) -> bool:
        return self.broker_permission & names.PERM_READ != 0

    @classmethod
    def load(cls, text: str, overrides: Mapping[str, str] | None = None) -> tuple[BrokerConfig, list[str]]:
        """Read the text of a ``broker.conf``; ``overrides`` (RocketMQ keys) win, as from a command line.

        Returns:
            The settings, and one sentence for each key that has no effect.

        Raises:
            ConfigError: a value of the wrong kind; it names the line of the text.
        """
        try:
            config, warnings = cls().updated(properties_text.parse(text))
        except ConfigError as error:
            raise ConfigError(error.key, error.value, error.expected, _line_of(text, error.key)) from None
        config, more = config.updated(overrides or {})
        return config, warnings + more

    def updated(self, settings: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
        """A copy with ``settings`` (RocketMQ keys) applied, and a warning for each key without effect.

        Raises:
            ConfigError: a value of the wrong kind.
        """
        changes: dict[str, Any] = {}
        warnings: list[str] = []
        for key, value in settings.items():
            known = _BY_KEY.get(key)
            if known is not None:
                changes[known.name] = known.metadata["parse"](key, value.strip())
            elif key in KNOWN_KEYS:
                warnings.append(f"{key} is a RocketMQ setting that this broker does not support yet: ignored")
            else:
                warnings.append(f"{key} is not a setting of RocketMQ: ignored")
        return replace(self, **changes), warnings

    def apply_live(self, settings: Mapping[str, str]) -> None:
        """Change a running broker's settings, all of them or none.

        Raises:
            ConfigError: a key that a running broker may not change, or a value of the wrong kind.
        """
        changes: dict[str, Any] = {}
        for key, value in settings.items():
            known = _BY_KEY.get(key)
            if known is None or not known.metadata["live"]:
                raise ConfigError(key, value, "a setting that may change while the broker runs")
            changes[known.name] = known.metadata["parse"](key, value.strip())
        for name, new in changes.items():
            setattr(self, name, new)

    def to_properties(self) -> dict[str, str]:
        """All settings by their RocketMQ keys, as GET_BROKER_CONFIG shows them."""
        return {setting.metadata["key"]: _shown(getattr(self, setting.name)) for setting in fields(self)}


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _line_of(text: str, key: str) -> int | None:
    """The last line of ``text`` that sets ``key``, counted from 1: Java lets the last one win."""
    found = None
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(rf"\s*{re.escape(key)}\s*[=:\s]", line):
            found = number
    return found


_BY_KEY = {setting.metadata["key"]: setting for setting in fields(BrokerConfig)}
