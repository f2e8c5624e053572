"""Settings of the name server, read from RocketMQ's ``namesrv.conf`` (Java properties)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orbitmq.monitoring.listen import advice as exposed
from orbitmq.nameserver.config_keys import KNOWN_KEYS
from orbitmq.runtime.paths import expanded, joined
from orbitmq.settings import access, protection
from orbitmq.settings.exports import ExportSettings, exporter
from orbitmq.settings.tls import KEYS, TlsSettings
from orbitmq.settings.typed import (
    ConfigError,
    Settings,
    bind_host,
    flag,
    group,
    log_levels,
    networks,
    number,
    one_of,
    path,
    setting,
    text,
)
from orbitmq.transport.audit import AuditPlace
from orbitmq.wire.signing import Credentials

__all__ = ["ConfigError", "NameServerConfig"]

_STORE_PATH = "configStorePath"


def _home(*parts: str) -> str:
    return joined(expanded("~"), "namesrv", *parts)


@dataclass(frozen=True, slots=True)
class NameServerConfig(Settings):
    """Settings of a name server; the defaults are RocketMQ's (NamesrvConfig, NettyServerConfig).

    Attributes:
        listen_port: TCP port; 0 takes any free one.
        kv_config_path: the file of the key-value table; empty keeps the table in memory only.
        config_store_path: where settings changed at run time are saved; empty does not save them.
        scan_interval_ms: how often to look for dead brokers at least; also whenever one is due.
        wait_seconds_for_service: how long after the start route queries are refused when
            ``need_wait_for_service`` is on.
        auth_config_path: the folder of users and rules; needed to require keys.
        support_acting_master: show the slave with the lowest id as master while there is no master.
    """

    listen_port: int = setting(9876, "listenPort", number(0, 65535))
    bind_address: str = setting("0.0.0.0", "bindAddress", bind_host)  # noqa: S104 - RocketMQ's default
    kv_config_path: str = setting("", "kvConfigPath", path)
    config_store_path: str = setting("", _STORE_PATH, path)
    scan_interval_ms: int = setting(5000, "scanNotActiveBrokerInterval", number(10, 3_600_000))
    metrics_exporter: str = setting("DISABLE", "metricsExporterType", exporter)
    exports: ExportSettings = field(default_factory=ExportSettings, metadata=group(ExportSettings))
    metrics_host: str = setting("127.0.0.1", "metricsPromExporterHost", bind_host)
    metrics_port: int = setting(5558, "metricsPromExporterPort", number(0, 65535))
    metrics_token_file: str = setting("", "metricsTokenFile", path)
    log_format: str = setting("text", "logFormat", one_of("text", "json"))
    log_file: str = setting("", "logFile", path)
    log_file_max_bytes: int = setting(0, "logFileMaxBytes", number(0, 2**40))
    log_file_backups: int = setting(5, "logFileBackups", number(1, 1000))
    logger_levels: str = setting("", "logLevels", log_levels, live=True)
    order_message_enable: bool = setting(False, "orderMessageEnable", flag, live=True)
    return_order_topic_config_to_broker: bool = setting(
        True, "returnOrderTopicConfigToBroker", flag, live=True
    )
    support_acting_master: bool = setting(False, "supportActingMaster", flag, live=True)
    notify_min_broker_id_changed: bool = setting(False, "notifyMinBrokerIdChanged", flag, live=True)
    enable_all_topic_list: bool = setting(True, "enableAllTopicList", flag, live=True)
    enable_topic_list: bool = setting(True, "enableTopicList", flag, live=True)
    need_wait_for_service: bool = setting(False, "needWaitForService", flag, live=True)
    wait_seconds_for_service: int = setting(45, "waitSecondsForService", number(0, 86_400), live=True)
    delete_topic_with_broker_registration: bool = setting(
        False, "deleteTopicWithBrokerRegistration", flag, live=True
    )
    max_connections: int = setting(10_000, "maxConnections", number(1, 1_000_000))
    max_connections_per_address: int = setting(1000, "maxConnectionsPerAddress", number(1, 1_000_000))
    proxy_protocol_trusted: str = setting("", "proxyProtocolTrusted", networks)
    tls: TlsSettings = field(default_factory=TlsSettings, metadata=group(TlsSettings))
    authentication_enabled: bool = access.authentication()
    authorization_enabled: bool = access.authorization()
    auth_mode: str = access.mode()
    init_authentication_user: Credentials | str = access.first_user()  # noqa: RUF009  # it is a dataclass field
    inner_client_credentials: Credentials | str = access.inner_keys()  # noqa: RUF009  # it is a dataclass field
    auth_config_path: str = setting("", "authConfigPath", path)
    auth_key_file: str = access.key_file()
    auth_reveal_passwords: bool = access.reveals()
    audit_log_file: str = setting("", "auditLogFile", path)
    audit_log_max_bytes: int = setting(64 * 2**20, "auditLogFileMaxBytes", number(0, 2**40))
    audit_log_backups: int = setting(5, "auditLogFileBackups", number(1, 1000))
    protected_mode: bool = setting(True, "protectedMode", flag)
    admin_addresses: str = setting("", "adminAddresses", networks)
    allow_open: bool = setting(False, protection.OPEN_KEY, flag)
    config_black_list: str = setting("configBlackList;configStorePath;kvConfigPath", "configBlackList", text)

    @classmethod
    def load(
        cls, conf: str, overrides: Mapping[str, str] | None = None, *, path: str = ""
    ) -> tuple[NameServerConfig, list[str]]:
        """Read the text of a ``namesrv.conf``.

        Args:
            overrides: settings by RocketMQ's keys that win over the text, as from a command line.
            path: where the text comes from; settings changed at run time are saved there.

        Returns:
            The settings, and one sentence for each key that has no effect.

        Raises:
            ConfigError: a value of the wrong kind, settings of TLS that do not go together, or a setting for
                access control that does not exist here.
        """
        config, warnings = cls.default_files().loaded(conf, overrides or {})
        if path and _STORE_PATH not in (overrides or {}):
            config = replace(config, config_store_path=path)
        built = access.SWITCHES | KEYS
        protection.check(conf, overrides or {}, is_open=config.allow_open, built=built)
        access.check(conf, overrides or {}, config.authentication_enabled, access.OF_NAME_SERVERS)
        warnings += config.tls.check()
        warnings += [access.REVEALED] if config.auth_reveal_passwords else []
        config.exports.check(config.metrics_exporter)
        warnings += exposed(config.metrics_exporter, config.metrics_host, config.metrics_token_file)
        return config, warnings

    @classmethod
    def default_files(cls) -> NameServerConfig:
        """RocketMQ's defaults with its files below ``~/namesrv``."""
        return cls(
            kv_config_path=_home("kvConfig.json"),
            config_store_path=_home("namesrv.properties"),
            auth_config_path=_home("config"),
        )

    @property
    def audit_place(self) -> AuditPlace | None:
        """Where the audit log is; None: there is none."""
        default = joined(self.auth_config_path, "audit.log") if self.authentication_enabled else ""
        path = self.audit_log_file or default
        return AuditPlace(path, self.audit_log_max_bytes, self.audit_log_backups) if path else None

    def first_super_users(self) -> list[Credentials]:
        """The keys of the super users that the settings name."""
        return access.credentials_of(self.init_authentication_user, self.inner_client_credentials)

    def without_effect(self, key: str, value: str) -> str:
        if (about_protection := protection.sentence(key, value)) is not None:
            return about_protection
        if key in KNOWN_KEYS:
            return f"{key} is a setting of RocketMQ that has no effect here"
        if key in UNSUPPORTED:
            return f"{key}={value} has no effect: {UNSUPPORTED[key]}"
        return Settings.without_effect(self, key, value)


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
}
