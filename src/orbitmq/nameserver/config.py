"""Settings of the name server, read from RocketMQ's ``namesrv.conf`` (Java properties)."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from orbitmq.wire import properties_text


class ConfigError(ValueError):
    """A setting that cannot be used. The text names the key, the value and what was expected."""

    def __init__(self, key: str, value: str, expected: str) -> None:
        super().__init__(f"{key}={value}: expected {expected}")
        self.key = key
        self.value = value
        self.expected = expected


def _text(key: str, value: str) -> str:
    if not value:
        raise ConfigError(key, value, "a text that is not empty")
    return value


def _path(key: str, value: str) -> str:
    return os.path.expanduser(_text(key, value))


def _flag(key: str, value: str) -> bool:
    lowered = value.lower()
    if lowered not in ("true", "false"):
        raise ConfigError(key, value, "true or false")
    return lowered == "true"


def _number(low: int, high: int) -> Callable[[str, str], int]:
    def parse(key: str, value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise ConfigError(key, value, f"a whole number from {low} to {high}")
        return number

    return parse


def _setting(default: Any, key: str, parse: Callable[[str, str], Any], *, live: bool = False) -> Any:
    """A field of the settings: its RocketMQ key, its parser, and whether a running server may change it."""
    return field(default=default, metadata={"key": key, "parse": parse, "live": live})


def _home(*parts: str) -> str:
    return os.path.join(os.path.expanduser("~"), "namesrv", *parts)


@dataclass(frozen=True, slots=True)
class NameServerConfig:
    """Settings of a name server; the defaults are RocketMQ's (NamesrvConfig, NettyServerConfig).

    Attributes:
        listen_port: TCP port; 0 takes any free one.
        kv_config_path: the file of the key-value table; empty keeps the table in memory only.
        config_store_path: where settings changed at run time are saved; empty does not save them.
        scan_interval_ms: how often dead brokers are looked for.
        wait_seconds_for_service: how long route queries are refused after the start when
            ``need_wait_for_service`` is on.
        support_acting_master: show the slave with the lowest id as master while there is no master.
    """

    listen_port: int = _setting(9876, "listenPort", _number(0, 65535))
    bind_address: str = _setting("0.0.0.0", "bindAddress", _text)  # noqa: S104 - RocketMQ's default
    kv_config_path: str = _setting("", "kvConfigPath", _path)
    config_store_path: str = _setting("", "configStorePath", _path)
    scan_interval_ms: int = _setting(5000, "scanNotActiveBrokerInterval", _number(10, 3_600_000))
    order_message_enable: bool = _setting(False, "orderMessageEnable", _flag, live=True)
    return_order_topic_config_to_broker: bool = _setting(
        True, "returnOrderTopicConfigToBroker", _flag, live=True
    )
    support_acting_master: bool = _setting(False, "supportActingMaster", _flag, live=True)
    notify_min_broker_id_changed: bool = _setting(False, "notifyMinBrokerIdChanged", _flag, live=True)
    enable_all_topic_list: bool = _setting(True, "enableAllTopicList", _flag, live=True)
    enable_topic_list: bool = _setting(True, "enableTopicList", _flag, live=True)
    need_wait_for_service: bool = _setting(False, "needWaitForService", _flag, live=True)
    wait_seconds_for_service: int = _setting(45, "waitSecondsForService", _number(0, 86_400), live=True)
    delete_topic_with_broker_registration: bool = _setting(
        False, "deleteTopicWithBrokerRegistration", _flag, live=True
    )
    config_black_list: str = _setting(
        "configBlackList;configStorePath;kvConfigPath", "configBlackList", _text
    )

    @classmethod
    def load(
        cls, text: str, overrides: Mapping[str, str] | None = None, *, path: str = ""
    ) -> tuple[NameServerConfig, list[str]]:
        """Read the text of a ``namesrv.conf``.

        Args:
            overrides: settings by RocketMQ's keys that win over the text, as from a command line.
            path: where the text comes from; settings changed at run time are saved there.

        Returns:
            The settings, and one sentence for each key that has no effect.

        Raises:
            ConfigError: a value of the wrong kind.
        """
        config, warnings = cls.default_files().updated(properties_text.parse(text))
        if path:
            config = replace(config, config_store_path=path)
        config, more = config.updated(overrides or {})
        return config, warnings + more

    @classmethod
    def default_files(cls) -> NameServerConfig:
        """RocketMQ's defaults with its files below ``~/namesrv``."""
        return cls(kv_config_path=_home("kvConfig.json"), config_store_path=_home("namesrv.properties"))

    def updated(self, settings: Mapping[str, str]) -> tuple[NameServerConfig, list[str]]:
        """These settings with ``settings`` (by RocketMQ's keys) put over them, and the warnings."""
        known = {f.metadata["key"]: f for f in fields(self)}
        changes: dict[str, Any] = {}
        warnings: list[str] = []
        for key, value in settings.items():
            entry = known.get(key)
            if entry is not None:
                changes[entry.name] = entry.metadata["parse"](key, value.strip())
            elif key in UNSUPPORTED:
                warnings.append(f"{key}={value} has no effect: {UNSUPPORTED[key]}")
            else:
                warnings.append(f"{key}={value} has no effect: unknown key")
        return replace(self, **changes), warnings

    def to_properties(self) -> dict[str, str]:
        """Every setting by its RocketMQ key."""
        return {f.metadata["key"]: _java(getattr(self, f.name)) for f in fields(self)}

    @staticmethod
    def live_keys() -> frozenset[str]:
        """Keys that UPDATE_NAMESRV_CONFIG may change while the server runs."""
        return frozenset(f.metadata["key"] for f in fields(NameServerConfig) if f.metadata["live"])


def _java(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_ONE_LOOP = "one event loop serves all requests, there is no thread pool or queue to size"
_NOT_YET = "not supported yet"

# Keys of NamesrvConfig, NettyServerConfig and NettyClientConfig that a working namesrv.conf may carry.
UNSUPPORTED: Mapping[str, str] = {
    "rocketmqHome": "this server needs no installation folder",
    "productEnvName": "only used by clusterTest",
    "clusterTest": _NOT_YET,
    "enableControllerInNamesrv": _NOT_YET,
    "clientRequestThreadPoolNums": _ONE_LOOP,
    "defaultThreadPoolNums": _ONE_LOOP,
    "clientRequestThreadPoolQueueCapacity": _ONE_LOOP,
    "defaultThreadPoolQueueCapacity": _ONE_LOOP,
    "unRegisterBrokerQueueCapacity": "a broker is taken from the routes at once, without a queue",
    "serverWorkerThreads": _ONE_LOOP,
    "serverCallbackExecutorThreads": _ONE_LOOP,
    "serverSelectorThreads": _ONE_LOOP,
    "serverOnewaySemaphoreValue": _ONE_LOOP,
    "serverAsyncSemaphoreValue": _ONE_LOOP,
    "serverChannelMaxIdleTimeSeconds": _NOT_YET,
    "serverSocketSndBufSize": _NOT_YET,
    "serverSocketRcvBufSize": _NOT_YET,
    "writeBufferHighWaterMark": _NOT_YET,
    "writeBufferLowWaterMark": _NOT_YET,
    "serverSocketBacklog": _NOT_YET,
    "serverNettyWorkerGroupEnable": _ONE_LOOP,
    "serverPooledByteBufAllocatorEnable": _ONE_LOOP,
    "enableShutdownGracefully": _NOT_YET,
    "shutdownWaitTimeSeconds": _NOT_YET,
    "useEpollNativeSelector": _ONE_LOOP,
    "useTLS": _NOT_YET,
    "tlsEnable": _NOT_YET,
}
