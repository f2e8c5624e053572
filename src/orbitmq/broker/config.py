"""Settings of the broker, read from RocketMQ's ``broker.conf`` (Java properties)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from orbitmq.broker.config_advice import advice
from orbitmq.broker.config_keys import KNOWN_KEYS
from orbitmq.broker.config_values import (
    delay_levels,
    host_or_none,
    hours,
    labels,
    one_address,
    one_folder,
    region,
    subgroup,
    timer_precision,
    topic_like_name,
    web_server,
)
from orbitmq.broker.delay.levels import DEFAULT_LEVELS
from orbitmq.message import reserved
from orbitmq.monitoring.listen import advice as exposed
from orbitmq.runtime.paths import expanded, folder_of, joined
from orbitmq.settings import access, properties_text, protection
from orbitmq.settings.exports import ExportSettings, exporter
from orbitmq.settings.tls import KEYS, TlsSettings
from orbitmq.settings.typed import (
    ConfigError,
    Settings,
    bind_host,
    flag,
    group,
    line_of,
    log_levels,
    name_servers,
    networks,
    number,
    one_of,
    own_host,
    path,
    setting,
)
from orbitmq.transport.audit import AuditPlace
from orbitmq.wire.addresses import AddressServer, DnsName, Source, source, split
from orbitmq.wire.signing import Credentials

__all__ = ["BrokerConfig", "ConfigError"]

_MIB = 1024 * 1024
# The upper limit of ``maxMessageSize``.
MAX_MESSAGE_BYTES = 15 * _MIB
_DAY_MS = 86_400_000


@dataclass(slots=True)
class BrokerConfig(Settings):
    """Settings of a broker; the defaults are RocketMQ's (BrokerConfig, MessageStoreConfig) except:

    * ``flush_disk_type`` is SYNC_FLUSH: an acknowledged message is on disk.
    * ``transfer_max_count`` is 1024 (RocketMQ 32): how many messages one pull may get at most.
    * ``enable_property_filter`` is on (RocketMQ off): consumers may filter by SQL92 expressions.
    * ``broker_ip1`` is 127.0.0.1: RocketMQ takes an address of the machine; here the caller has to give one.
    * ``metrics_host`` is 127.0.0.1 (RocketMQ: brokerIP1): other machines do not see the metrics.
    * ``broker_not_active_timeout_ms`` is 4000 (RocketMQ 10000); name servers get it in acting mode only.

    Sizes are bytes. ``broker_permission`` is a sum of 2 (write) and 4 (read).
    """

    broker_name: str = setting("broker-a", "brokerName", topic_like_name)
    broker_cluster_name: str = setting("DefaultCluster", "brokerClusterName", topic_like_name)
    broker_id: int = setting(0, "brokerId", number(0, 2**62))
    broker_ip1: str = setting("127.0.0.1", "brokerIP1", own_host)
    broker_ip2: str = setting("", "brokerIP2", host_or_none)
    listen_port: int = setting(10911, "listenPort", number(0, 65535))
    bind_address: str = setting("0.0.0.0", "bindAddress", bind_host)  # noqa: S104 - RocketMQ's default
    grpc_server_port: int = setting(8081, "grpcServerPort", number(0, 65535))
    max_connections: int = setting(10_000, "maxConnections", number(1, 1_000_000))
    max_connections_per_address: int = setting(1000, "maxConnectionsPerAddress", number(1, 1_000_000))
    proxy_protocol_trusted: str = setting("", "proxyProtocolTrusted", networks)
    tls: TlsSettings = field(default_factory=TlsSettings, metadata=group(TlsSettings))
    tls_cert_path: str = setting("", "tlsCertPath", path)
    tls_key_path: str = setting("", "tlsKeyPath", path)
    tls_test_mode: bool = setting(True, "tlsTestModeEnable", flag)
    metrics_exporter: str = setting("DISABLE", "metricsExporterType", exporter)
    exports: ExportSettings = field(default_factory=ExportSettings, metadata=group(ExportSettings))
    metrics_host: str = setting("127.0.0.1", "metricsPromExporterHost", bind_host)
    metrics_port: int = setting(5557, "metricsPromExporterPort", number(0, 65535))
    metrics_token_file: str = setting("", "metricsTokenFile", path)
    log_format: str = setting("text", "logFormat", one_of("text", "json"))
    log_file: str = setting("", "logFile", path)
    log_file_max_bytes: int = setting(0, "logFileMaxBytes", number(0, 2**40))
    log_file_backups: int = setting(5, "logFileBackups", number(1, 1000))
    logger_levels: str = setting("", "logLevels", log_levels, live=True)
    slow_request_ms: int = setting(0, "slowRequestMillis", number(0, _DAY_MS), live=True)
    metrics_series: int = setting(50_000, "metricsOtelCardinalityLimit", number(100, 1_000_000))
    metrics_label: str = setting("", "metricsLabel", labels)
    metrics_queue_lag: bool = setting(False, "metricsQueueLag", flag, live=True)
    namesrv_addr: str = setting("", "namesrvAddr", name_servers, live=True)
    name_servers_by_dns: bool = setting(False, "fetchNameSrvAddrByDnsLookup", flag)
    update_name_servers_ms: int = setting(120_000, "updateNameServerAddrPeriod", number(1000, _DAY_MS))
    name_servers_by_http: bool = setting(False, "fetchNamesrvAddrByAddressServer", flag)
    fetch_name_servers_ms: int = setting(10_000, "fetchNamesrvAddrInterval", number(1000, _DAY_MS))
    address_server_domain: str = setting("", "rmqAddressServerDomain", web_server)
    address_server_subgroup: str = setting("nsaddr", "rmqAddressServerSubGroup", subgroup)
    # The name servers that the address server or DNS gave, if the settings name one of these.
    found_name_servers: tuple[str, ...] = field(default=(), init=False, repr=False)
    store_path_root_dir: str = setting("~/store", "storePathRootDir", path)
    store_path_commit_log: str = setting("", "storePathCommitLog", one_folder)
    broker_config_path: str = setting("", "brokerConfigPath", path)
    mapped_file_size_commit_log: int = setting(
        1024 * _MIB, "mappedFileSizeCommitLog", number(128 * 1024, 2**31 - 1)
    )
    mapped_file_size_consume_queue: int = setting(
        6_000_000, "mappedFileSizeConsumeQueue", number(20, 2**31 - 1)
    )
    flush_disk_type: str = setting("SYNC_FLUSH", "flushDiskType", one_of("SYNC_FLUSH", "ASYNC_FLUSH"))
    flush_interval_commit_log_ms: int = setting(500, "flushIntervalCommitLog", number(1, 60_000), live=True)
    sync_flush_timeout_ms: int = setting(5000, "syncFlushTimeout", number(1, 600_000), live=True)
    broker_role: str = setting("ASYNC_MASTER", "brokerRole", one_of("ASYNC_MASTER", "SYNC_MASTER", "SLAVE"))
    ha_listen_port: int = setting(10912, "haListenPort", number(0, 65535))
    ha_allowed_peers: str = setting("", "haAllowedPeers", networks)
    ha_master_address: str = setting("", "haMasterAddress", one_address)
    ha_transfer_batch_size: int = setting(32_768, "haTransferBatchSize", number(1024, 4_000_000))
    ha_send_heartbeat_interval_ms: int = setting(5000, "haSendHeartbeatInterval", number(100, 600_000))
    ha_housekeeping_interval_ms: int = setting(20_000, "haHousekeepingInterval", number(100, 600_000))
    ha_flow_control_enable: bool = setting(False, "haFlowControlEnable", flag, live=True)
    max_ha_transfer_bytes_per_second: int = setting(
        100 * _MIB, "maxHaTransferByteInSecond", number(1024, 2**62), live=True
    )
    sync_master_flush_offset: bool = setting(False, "syncMasterFlushOffsetWhenStartup", flag)
    total_replicas: int = setting(1, "totalReplicas", number(1, 100))
    in_sync_replicas: int = setting(1, "inSyncReplicas", number(0, 100), live=True)
    min_in_sync_replicas: int = setting(1, "minInSyncReplicas", number(0, 100), live=True)
    enable_auto_in_sync_replicas: bool = setting(False, "enableAutoInSyncReplicas", flag, live=True)
    all_ack_in_sync_state_set: bool = setting(False, "allAckInSyncStateSet", flag, live=True)
    slave_timeout_ms: int = setting(3000, "slaveTimeout", number(1, 600_000), live=True)
    ha_max_gap_not_in_sync: int = setting(256 * _MIB, "haMaxGapNotInSync", number(1, 2**62), live=True)
    ha_slave_silence_ms: int = setting(1000, "haSlaveSilenceMillis", number(100, 600_000), live=True)
    sync_master_rule: str = setting("5.x", "syncMasterRule", one_of("5.x", "4.x"))

    broker_permission: int = setting(6, "brokerPermission", number(0, 6), live=True)
    default_topic_queue_nums: int = setting(8, "defaultTopicQueueNums", number(1, 65536), live=True)
    auto_create_topic_enable: bool = setting(True, "autoCreateTopicEnable", flag, live=True)
    cluster_topic_enable: bool = setting(True, "clusterTopicEnable", flag)
    broker_topic_enable: bool = setting(True, "brokerTopicEnable", flag)
    trace_topic_enable: bool = setting(False, "traceTopicEnable", flag)
    msg_trace_topic_name: str = setting(reserved.TRACE_TOPIC, "msgTraceTopicName", topic_like_name)
    timer_wheel_enable: bool = setting(True, "timerWheelEnable", flag)
    timer_precision_ms: int = setting(1000, "timerPrecisionMs", timer_precision)
    timer_max_delay_s: int = setting(3 * 86_400, "timerMaxDelaySec", number(1, 20 * 86_400), live=True)
    timer_roll_window_slots: int = setting(2 * 86_400, "timerRollWindowSlot", number(2, 7 * 86_400 - 60))
    mapped_file_size_timer_log: int = setting(100 * _MIB, "mappedFileSizeTimerLog", number(4096, 2**31 - 1))
    append_topic_for_timer_delete_key: bool = setting(False, "appendTopicForTimerDeleteKey", flag, live=True)
    recall_message_enable: bool = setting(False, "recallMessageEnable", flag, live=True)
    recall_unknown_messages: bool = setting(False, "recallUnknownMessages", flag, live=True)
    revive_queue_num: int = setting(8, "reviveQueueNum", number(1, 1024))
    validate_system_topic: bool = setting(True, "validateSystemTopicWhenUpdateTopic", flag, live=True)
    auto_create_subscription_group: bool = setting(True, "autoCreateSubscriptionGroup", flag, live=True)
    enable_create_sys_group: bool = setting(True, "enableCreateSysGroup", flag, live=True)

    authentication_enabled: bool = access.authentication()
    authorization_enabled: bool = access.authorization()
    acl_enable: bool = access.acl_1()
    migrate_auth_from_v1: bool = access.migrates()
    rocketmq_home: str = setting("", "rocketmqHome", path)
    auth_mode: str = access.mode()
    authentication_strategy: str = access.strategy()
    init_authentication_user: Credentials | str = access.first_user()  # noqa: RUF009  # it is a dataclass field
    inner_client_credentials: Credentials | str = access.inner_keys()  # noqa: RUF009  # it is a dataclass field
    auth_key_file: str = access.key_file()
    auth_reveal_passwords: bool = access.reveals()
    audit_log_file: str = setting("", "auditLogFile", path)
    audit_log_max_bytes: int = setting(64 * 2**20, "auditLogFileMaxBytes", number(0, 2**40))
    audit_log_backups: int = setting(5, "auditLogFileBackups", number(1, 1000))
    protected_mode: bool = setting(True, "protectedMode", flag)
    admin_addresses: str = setting("", "adminAddresses", networks)
    allow_open: bool = setting(False, protection.OPEN_KEY, flag)
    region_id: str = setting("DefaultRegion", "regionId", region, live=True)
    trace_on: bool = setting(True, "traceOn", flag, live=True)
    max_message_size: int = setting(4 * _MIB, "maxMessageSize", number(1, MAX_MESSAGE_BYTES), live=True)
    reject_transaction_message: bool = setting(False, "rejectTransactionMessage", flag, live=True)
    transaction_timeout_ms: int = setting(6000, "transactionTimeOut", number(0, _DAY_MS), live=True)
    transaction_check_interval_ms: int = setting(
        30_000, "transactionCheckInterval", number(1000, _DAY_MS), live=True
    )
    transaction_check_max: int = setting(15, "transactionCheckMax", number(1, 1_000_000), live=True)
    transaction_op_max_bytes: int = setting(4096, "transactionOpMsgMaxSize", number(1, _MIB), live=True)
    store_reply_message_enable: bool = setting(True, "storeReplyMessageEnable", flag, live=True)

    message_index_enable: bool = setting(True, "messageIndexEnable", flag)
    max_hash_slot_num: int = setting(5_000_000, "maxHashSlotNum", number(1, 2**27))
    max_index_num: int = setting(20_000_000, "maxIndexNum", number(2, 2**27))
    default_query_max_num: int = setting(32, "defaultQueryMaxNum", number(1, 1024), live=True)
    max_msgs_num_batch: int = setting(64, "maxMsgsNumBatch", number(1, 1024), live=True)

    message_delay_level: str = setting(DEFAULT_LEVELS, "messageDelayLevel", delay_levels)

    long_polling_enable: bool = setting(True, "longPollingEnable", flag, live=True)
    short_polling_time_ms: int = setting(1000, "shortPollingTimeMills", number(1, 60_000), live=True)
    pull_queue_capacity: int = setting(100_000, "pullThreadPoolQueueCapacity", number(1, 10_000_000))
    reject_pull_consumer: bool = setting(False, "rejectPullConsumerEnable", flag, live=True)
    enable_property_filter: bool = setting(True, "enablePropertyFilter", flag, live=True)
    server_load_balancer: bool = setting(True, "serverLoadBalancerEnable", flag, live=True)
    default_message_request_mode: str = setting(
        "PULL", "defaultMessageRequestMode", one_of("PULL", "POP"), live=True
    )
    default_pop_share_queue_num: int = setting(
        -1, "defaultPopShareQueueNum", number(-1, 1_000_000), live=True
    )
    strict_subscription: bool = setting(False, "strictSubscription", flag, live=True)
    filter_support_retry: bool = setting(False, "filterSupportRetry", flag, live=True)
    lite_pull_message_enable: bool = setting(True, "litePullMessageEnable", flag, live=True)
    slave_read_enable: bool = setting(False, "slaveReadEnable", flag, live=True)
    offset_check_in_slave: bool = setting(False, "offsetCheckInSlave", flag, live=True)
    access_message_in_memory_max_ratio: int = setting(
        40, "accessMessageInMemoryMaxRatio", number(0, 100), live=True
    )
    transfer_max_bytes: int = setting(
        256 * 1024, "maxTransferBytesOnMessageInMemory", number(1, 8 * _MIB), live=True
    )
    transfer_max_count: int = setting(1024, "maxTransferCountOnMessageInMemory", number(1, 65_536), live=True)

    enable_retry_topic_v2: bool = setting(False, "enableRetryTopicV2", flag, live=True)
    pop_retry_topic_v1: bool = setting(True, "retrieveMessageFromPopRetryTopicV1", flag, live=True)
    pop_order_repeats_done: bool = setting(False, "popOrderRepeatsDone", flag, live=True)
    pop_from_retry_probability: int = setting(20, "popFromRetryProbability", number(0, 100), live=True)
    pop_actual_retry_topic: bool = setting(False, "popResponseReturnActualRetryTopic", flag, live=True)
    pop_polling_size: int = setting(20_000, "popPollingSize", number(0, 1_000_000), live=True)
    pop_polling_total: int = setting(100_000, "maxPopPollingSize", number(0, 10_000_000), live=True)
    pop_threshold_enable: bool = setting(False, "enablePopMessageThreshold", flag, live=True)
    pop_in_flight_threshold: int = setting(
        10_000, "popInflightMessageThreshold", number(1, 10_000_000), live=True
    )

    file_reserved_time_hours: int = setting(72, "fileReservedTime", number(0, 1_000_000), live=True)
    delete_when: str = setting("04", "deleteWhen", hours, live=True)
    disk_max_used_space_ratio: int = setting(75, "diskMaxUsedSpaceRatio", number(10, 95), live=True)

    register_period_ms: int = setting(30_000, "registerNameServerPeriod", number(10_000, 60_000))
    register_timeout_ms: int = setting(24_000, "registerBrokerTimeoutMills", number(100, 600_000), live=True)
    broker_not_active_timeout_ms: int = setting(4000, "brokerNotActiveTimeoutMillis", number(1000, _DAY_MS))
    broker_heartbeat_interval_ms: int = setting(1000, "brokerHeartbeatInterval", number(100, 60_000))
    heartbeat_timeout_ms: int = setting(1000, "sendHeartbeatTimeoutMillis", number(100, 60_000), live=True)
    member_period_ms: int = setting(1000, "syncBrokerMemberGroupPeriod", number(100, 60_000))
    compatible_with_old_name_server: bool = setting(True, "compatibleWithOldNameSrv", flag, live=True)
    enable_slave_acting_master: bool = setting(False, "enableSlaveActingMaster", flag)
    skip_pre_online: bool = setting(False, "skipPreOnline", flag)
    lock_in_strict_mode: bool = setting(False, "lockInStrictMode", flag, live=True)
    enable_remote_escape: bool = setting(False, "enableRemoteEscape", flag)
    flush_offset_interval_ms: int = setting(5000, "flushConsumerOffsetInterval", number(10, 3_600_000))
    offset_version_step: int = setting(
        500, "consumerOffsetUpdateVersionStep", number(1, 1_000_000_000), live=True
    )
    delay_version_step: int = setting(1, "delayOffsetUpdateVersionStep", number(1, 1_000_000_000), live=True)
    server_side_reset_offset: bool = setting(True, "useServerSideResetOffset", flag, live=True)
    notify_consumer_ids_changed: bool = setting(True, "notifyConsumerIdsChangedEnable", flag, live=True)
    channel_expired_ms: int = setting(120_000, "channelExpiredTimeout", number(1000, _DAY_MS))

    def __post_init__(self) -> None:
        self.store_path_root_dir = expanded(self.store_path_root_dir)

    @property
    def metric_labels(self) -> dict[str, str]:
        """The labels that the operator gives to all metrics."""
        pairs = [pair.strip().partition(":") for pair in self.metrics_label.split(",") if pair.strip()]
        return {name: value for name, _, value in pairs}

    @property
    def name_server_source(self) -> Source:
        """Where the name servers are: ``namesrvAddr``, a name to look up, or an address server."""
        if self.name_servers_by_http and not self.namesrv_addr:
            host, _, port = self.address_server_domain.partition(":")
            return AddressServer(host, int(port or 8080), f"/rocketmq/{self.address_server_subgroup}")
        named = source(self.namesrv_addr)
        if self.name_servers_by_dns and isinstance(named, tuple) and len(named) == 1:
            return DnsName(*split(named[0]))
        return named

    @property
    def name_servers(self) -> list[str]:
        """The addresses of the name servers that are known so far."""
        named = self.name_server_source
        return list(named if isinstance(named, tuple) else self.found_name_servers)

    @property
    def requires_keys(self) -> bool:
        """Whether requests have to be signed: by users, or by accounts of ACL 1.0."""
        return self.authentication_enabled or self.acl_enable

    @property
    def reads_accounts(self) -> bool:
        """Whether the files of ACL 1.0 are read: as the source of users and rules, or for one migration."""
        return self.acl_enable or (self.authentication_enabled and self.migrate_auth_from_v1)

    @property
    def acl_folder(self) -> str:
        """The folder with the files of ACL 1.0; empty: no setting says where it is."""
        home = self.rocketmq_home
        return joined(home, "conf") if home else folder_of(self.broker_config_path)

    @property
    def audit_place(self) -> AuditPlace | None:
        """Where the audit log is; None: there is none."""
        default = f"{self.store_path_root_dir}/audit.log" if self.requires_keys else ""
        path = self.audit_log_file or default
        return AuditPlace(path, self.audit_log_max_bytes, self.audit_log_backups) if path else None

    def first_super_users(self) -> list[Credentials]:
        """The keys of the super users that the settings name."""
        return access.credentials_of(self.init_authentication_user, self.inner_client_credentials)

    @property
    def starts_isolated(self) -> bool:
        """Whether this broker catches up with other brokers of its name before it serves (PO-01, PO-02)."""
        return self.enable_slave_acting_master and self.total_replicas > 1 and not self.skip_pre_online

    @property
    def body_limit(self) -> int:
        """The largest body in bytes: ``maxMessageSize``, or half a file of the log if that is less."""
        return min(self.max_message_size, self.mapped_file_size_commit_log // 2)

    @property
    def timer_roll_window_ms(self) -> int:
        """The longest wait of a timer message before it is stored again at the newest end of the log.

        ``timerRollWindowSlot``, or two thirds of the time that the log is kept, if that is less.
        """
        kept_ms = self.file_reserved_time_hours * 3_600_000 * 2 // 3
        window_ms = self.timer_roll_window_slots * self.timer_precision_ms
        return max(60 * self.timer_precision_ms, min(window_ms, kept_ms))

    @property
    def writable(self) -> bool:
        return self.broker_permission & reserved.PERM_WRITE != 0

    @property
    def readable(self) -> bool:
        return self.broker_permission & reserved.PERM_READ != 0

    @classmethod
    def load(
        cls, conf: str, overrides: Mapping[str, str] | None = None, *, path: str = ""
    ) -> tuple[BrokerConfig, list[str]]:
        """Read the text of a ``broker.conf``.

        Args:
            overrides: settings by RocketMQ's keys that win over the text, as from a command line.
            path: where the text comes from; settings changed at run time are saved there.

        Returns:
            The settings, and one sentence for each key that has no effect.

        Raises:
            ConfigError: a value of the wrong kind, settings of TLS that do not go together, or a setting of
                access control or TLS that this broker does not have; it names the line of the text.
        """
        config, warnings = cls(broker_config_path=path).loaded(conf, overrides or {})
        built = access.SWITCHES | KEYS | {access.ACL_1}
        protection.check(conf, overrides or {}, is_open=config.allow_open, built=built)
        _check_name_servers(config)
        _check_certificate(config)
        _refuse_not_built(conf, overrides or {})
        proves = isinstance(config.inner_client_credentials, Credentials)
        bounds = access.OF_ALL if proves else access.OF_LONE_BROKERS
        if config.acl_enable:
            bounds = {**bounds, **access.OF_ACL_1}
        access.check(conf, overrides or {}, config.requires_keys, bounds)
        if config.reads_accounts and not config.acl_folder:
            key = access.ACL_1 if config.acl_enable else access.MIGRATES
            home = "rocketmqHome beside it: the folder above conf/plain_acl.yml"
            raise ConfigError(key, "true", home, line_of(conf, key))
        warnings += config.tls.check()
        config.exports.check(config.metrics_exporter)
        warnings += advice(config)
        warnings += exposed(config.metrics_exporter, config.metrics_host, config.metrics_token_file)
        if config.broker_role == "SLAVE":
            if config.broker_id == 0:
                raise ConfigError("brokerId", "0", "a number above 0 with brokerRole=SLAVE")
        elif config.broker_id != 0:
            warnings.append(
                f"brokerId={config.broker_id} counts as 0: brokerRole={config.broker_role} is a master's"
            )
            config.broker_id = 0
        return config, warnings

    def without_effect(self, key: str, value: str) -> str:
        if (about_protection := protection.sentence(key, value)) is not None:
            return about_protection
        if key in KNOWN_KEYS:
            return f"{key} is a setting of RocketMQ that has no effect here"
        return Settings.without_effect(self, key, value)

    def apply_live(self, settings: Mapping[str, str]) -> None:
        """Change a running broker's settings, all of them or none.

        Raises:
            ConfigError: a key that a running broker may not change, or a value of the wrong kind.
        """
        changes = self.live_changes(settings)
        _check_name_servers(replace(self, **changes))
        before = self.name_servers
        for name, new in changes.items():
            setattr(self, name, new)
        if "namesrv_addr" in changes:
            # The known name servers serve until the new address server or DNS name has answered.
            self.found_name_servers = tuple(before)


def _check_name_servers(config: BrokerConfig) -> None:
    """Refuse settings that look up name servers without saying where."""
    named = source(config.namesrv_addr)
    if config.name_servers_by_dns and isinstance(named, tuple) and len(named) != 1:
        key = "fetchNameSrvAddrByDnsLookup"
        raise ConfigError(key, "true", "namesrvAddr to be one name as host:port")
    if config.name_servers_by_http and not config.namesrv_addr and not config.address_server_domain:
        key = "fetchNamesrvAddrByAddressServer"
        raise ConfigError(key, "true", "rmqAddressServerDomain to name the address server")


def _check_certificate(config: BrokerConfig) -> None:
    """Refuse one setting of a pair without the other."""
    pair = {"tlsCertPath": config.tls_cert_path, "tlsKeyPath": config.tls_key_path}
    for key, other in (("tlsCertPath", "tlsKeyPath"), ("tlsKeyPath", "tlsCertPath")):
        if pair[key] and not pair[other]:
            raise ConfigError(key, pair[key], f"{other} beside it")


_ROLES = "give each broker of the name a brokerRole and a brokerId"
# Settings with which RocketMQ keeps timers or half messages in RocksDB, or let DLedger or a controller choose
# the master. A broker that ignored them would lose messages, or be a second master of its name.
_NOT_BUILT = {
    "enableDLegerCommitLog": f"there is no DLedger here; {_ROLES}",
    "enableControllerMode": f"there is no controller here; {_ROLES}",
    "timerRocksDBEnable": "timers in RocksDB are not read here; let them end at RocketMQ",
    "transRocksDBEnable": "half messages in RocksDB are not read here; let them end at RocketMQ",
}


def _refuse_not_built(text: str, overrides: Mapping[str, str]) -> None:
    settings = {**properties_text.parse(text), **overrides}
    for key, why in _NOT_BUILT.items():
        value = settings.get(key, "").strip()
        if value.lower() == "true":
            raise ConfigError(key, value, f"false: {why}", None if key in overrides else line_of(text, key))
