"""The broker's settings: RocketMQ's file, errors that name the line, warnings for keys without effect."""

from __future__ import annotations

import pytest

from orbitmq.broker.config import BrokerConfig, ConfigError
from orbitmq.broker.config_keys import KNOWN_KEYS
from orbitmq.broker.storage import store_config
from orbitmq.settings.tls import KEYS

# conf/broker.conf as RocketMQ ships it.
SHIPPED = """
# a comment
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
"""


def test_the_file_that_rocketmq_ships() -> None:
    config, warnings = BrokerConfig.load(SHIPPED)
    assert warnings == []
    assert (config.broker_name, config.flush_disk_type, config.file_reserved_time_hours) == (
        "broker-a",
        "ASYNC_FLUSH",
        48,
    )


def test_the_defaults_are_rocketmqs_but_durable() -> None:
    config = BrokerConfig()
    assert config.flush_disk_type == "SYNC_FLUSH"
    assert (config.listen_port, config.default_topic_queue_nums, config.max_message_size) == (
        10911,
        8,
        4 << 20,
    )
    assert config.store_path_root_dir.startswith("/")
    assert config.store_path_root_dir.endswith("/store")


def test_the_command_line_wins() -> None:
    config, _ = BrokerConfig.load(SHIPPED, {"namesrvAddr": "h:1;i:2", "brokerName": "b"})
    assert (config.namesrv_addr, config.broker_name) == ("h:1;i:2", "b")


def test_one_warning_for_each_key_without_effect() -> None:
    _, warnings = BrokerConfig.load("transientStorePoolEnable=true\nbrokerNmae=x\nnothingLikeIt=1\n")
    assert warnings == [
        "transientStorePoolEnable is a setting of RocketMQ that has no effect here",
        "brokerNmae is not a setting of RocketMQ: ignored, did you mean brokerName?",
        "nothingLikeIt is not a setting of RocketMQ: ignored",
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("listenPort=many", "a whole number from 0 to 65535"),
        ("listenPort=70000", "a whole number from 0 to 65535"),
        ("autoCreateTopicEnable=maybe", "true or false"),
        ("flushDiskType=SOMETIMES", "one of SYNC_FLUSH, ASYNC_FLUSH"),
        ("brokerName=a/../b", "1 to 127 characters"),
        ("namesrvAddr=localhost", "host:port"),
        ("deleteWhen=25", "hours from 00 to 23"),
        ("storePathRootDir=", "not empty"),
        pytest.param("storePathCommitLog=/a,/b", "one folder", marks=pytest.mark.behaviour("ST-09")),
    ],
)
def test_a_wrong_value_names_key_value_expectation_and_line(line: str, expected: str) -> None:
    key, _, value = line.partition("=")
    with pytest.raises(ConfigError) as caught:
        BrokerConfig.load(f"# first\n{key}=\n{line}\n" if value else f"# first\n\n{line}\n")
    error = caught.value
    assert (error.key, error.value, error.line) == (key, value, 3)
    assert expected in str(error)
    assert str(error).startswith(f"line 3: {line}: expected ")


def test_a_wrong_value_on_the_command_line_has_no_line() -> None:
    with pytest.raises(ConfigError, match=r"^listenPort=x: expected"):
        BrokerConfig.load(SHIPPED, {"listenPort": "x"})


def test_a_running_broker_takes_all_changes_or_none() -> None:
    config = BrokerConfig()
    with pytest.raises(ConfigError):
        config.apply_live({"fileReservedTime": "1", "listenPort": "1"})
    assert config.file_reserved_time_hours == 72
    config.apply_live({"fileReservedTime": "1"})
    assert config.file_reserved_time_hours == 1


def test_a_setting_that_needs_a_start_says_so_and_keeps_secrets() -> None:
    config, _ = BrokerConfig.load("")
    for key, value, text in (
        ("listenPort", "1", "listenPort=1: expected a setting that may change while the server runs: change"),
        ("tls.server.keyPassword", "pssst", "tls.server.keyPassword=***: expected a setting that may change"),
        ("nosuch", "1", "nosuch=1: expected a setting that this server has"),
    ):
        with pytest.raises(ConfigError) as caught:
            config.apply_live({key: value})
        assert str(caught.value).startswith(text)


def test_settings_shown_can_be_read_again() -> None:
    config, _ = BrokerConfig.load(SHIPPED)
    shown = {key: value for key, value in config.to_properties().items() if value}
    again, warnings = BrokerConfig().updated(shown)
    assert (again, warnings) == (config, [])


# The keys of RocketMQ 5.4 and 5.5 that 5.3 does not have.
NEW_KEYS = """
checkCommitLogOffsetOnRecover combineCQUseRocksdbForLmq commitLogRecoverMaxNum enableLiteEventMode
enableLitePopLog enableLmqQuota indexFileReadEnable indexFileWriteEnable indexRocksDBEnable
iteratorWhenUseRocksdbConsumeQueue liteEventCheckInterval liteEventFullDispatchDelayTime
liteEventFullDispatchDelayTimeForWildcardGroup liteLagCountMetricsEnable liteLagLatencyCollectEnable
liteLagLatencyMetricsEnable liteLagLatencyTopK liteSubscriptionCheckInterval
liteSubscriptionCheckTimeoutMills liteTtlCheckInterval maxClientEventCount maxLiteSubscriptionCount
maxMessageFilterNumForNotification maxRocksDBIndexQueryDays
minLiteTTl persistConsumerOffsetIncrementally popFromRetryProbabilityForPriority
popReviveConcurrency popReviveSkipIfGroupAbsent priorityOrderAsc sharedByteBufferNum
timerRecallToTimeWheelEnable timerRecallToTimelineEnable timerReputServiceCorePoolSize
timerReputServiceMaxPoolSize timerReputServiceQueueCapacity timerRocksDBEnable
timerRocksDBPrecisionMs timerRocksDBRollIntervalHours timerRocksDBRollMaxTps
timerRocksDBRollRangeHours timerRocksDBStopScan timerRocksDBTimeExpiredMaxTps
timerWheelSnapshotFlush timerWheelSnapshotIntervalMs transRocksDBEnable
transWriteOriginTransHalfEnable transactionCheckRocksdbCoreThreads transactionCheckRocksdbMaxThreads
transactionCheckRocksdbQueueCapacity useMessageFilterForNotification useSeparateRetryQueue
useSeparateStorePathForRocksdbCQ useSingleRocksDBForAllConfigs
"""


@pytest.mark.behaviour("ST-21")
@pytest.mark.parametrize("key", [*NEW_KEYS.split(), "haSlaveFallbehindMax", "serverWorkerThreads"])
def test_a_key_of_another_release_has_no_effect(key: str) -> None:
    _, said = BrokerConfig.load(f"{key}=false")
    assert said == [f"{key} is a setting of RocketMQ that has no effect here"]


def test_every_supported_key_is_one_of_rocketmq_or_ours_on_purpose() -> None:
    ours = {
        "adminAddresses",
        "allowOpen",
        "auditLogFile",
        "auditLogFileBackups",
        "auditLogFileMaxBytes",
        "authKeyFile",
        "authMode",
        "authRevealPasswords",
        "maxConnections",
        "maxConnectionsPerAddress",
        "protectedMode",
        "proxyProtocolTrusted",
        # These are Java options of RocketMQ, or lines of its tls.config.file.
        *KEYS,
        # These are keys of RocketMQ's proxy.
        "grpcServerPort",
        "tlsCertPath",
        "tlsKeyPath",
        "haAllowedPeers",
        "haSlaveSilenceMillis",
        "logFile",
        "logFileBackups",
        "logFileMaxBytes",
        "logFormat",
        "logLevels",
        "metricsQueueLag",
        "metricsTokenFile",
        "popOrderRepeatsDone",
        "recallUnknownMessages",
        "slowRequestMillis",
        "strictSubscription",
        "syncMasterRule",
    }
    assert set(BrokerConfig().to_properties()) - KNOWN_KEYS == ours


def test_what_the_store_gets() -> None:
    config, _ = BrokerConfig.load(
        "flushDiskType=ASYNC_FLUSH\nmappedFileSizeConsumeQueue=6001\ndeleteWhen=05;17\nstorePathRootDir=/s\n"
        "maxMessageSize=8000000\nbrokerIP1=10.0.0.1\n"
    )
    store = store_config(config, ("10.0.0.1", 10911))
    assert (store.root, store.sync_flush, store.delete_hours) == ("/s", False, {5, 17})
    assert store.consume_queue_file_bytes == 6020
    assert store.store_host == ("10.0.0.1", 10911)
    assert store.batch_bytes > 8_000_000 + 65_536


def test_role_and_id_must_fit() -> None:
    with pytest.raises(ConfigError, match="brokerId=0: expected a number above 0 with brokerRole=SLAVE"):
        BrokerConfig.load("brokerRole=SLAVE\n")
    slave, warnings = BrokerConfig.load("brokerRole=SLAVE\nbrokerId=1\n")
    assert (slave.broker_id, warnings) == (1, [])
    master, warnings = BrokerConfig.load("brokerId=3\n")
    assert (master.broker_id, warnings) == (
        0,
        ["brokerId=3 counts as 0: brokerRole=ASYNC_MASTER is a master's"],
    )


def test_a_master_has_one_address() -> None:
    assert BrokerConfig.load("haMasterAddress=a:1\n")[0].ha_master_address == "a:1"
    with pytest.raises(ConfigError, match="haMasterAddress=a:1;b:2: expected one address as host:port"):
        BrokerConfig.load("haMasterAddress=a:1;b:2\n")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("", None),
        ("brokerNotActiveTimeoutMillis=3999", "brokerNotActiveTimeoutMillis=3999"),
        ("syncBrokerMemberGroupPeriod=2000", "(2000)"),
        ("slaveReadEnable=false", "without slaveReadEnable"),
        ("totalReplicas=1", "totalReplicas=1"),
    ],
)
def test_acting_masters_that_cannot_work_are_warned_of(more: str, words: str | None) -> None:
    text = f"enableSlaveActingMaster=true\ntotalReplicas=2\nslaveReadEnable=true\n{more}\n"
    _, warnings = BrokerConfig.load(text)
    if words is None:
        assert warnings == []
    else:
        (warning,) = warnings
        assert words in warning
