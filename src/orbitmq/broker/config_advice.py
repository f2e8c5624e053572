"""Combinations of a broker's settings that cannot work, each as one sentence for the log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from orbitmq.settings import access

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig


def advice(config: BrokerConfig) -> Iterator[str]:
    """One sentence for each combination of settings that cannot work."""
    yield from _of_access(config)
    yield from _of_waits(config)
    yield from _of_acting(config)
    yield from _of_periods(config)


def _of_access(config: BrokerConfig) -> Iterator[str]:
    if config.authentication_enabled:
        yield "authenticationEnabled=true is about this broker: name servers have a setting of their own"
    if config.acl_enable:
        yield "aclEnable=true is about this broker: name servers know authenticationEnabled only"
    if config.reads_accounts and not config.acl_enable:
        yield (
            "migrateAuthFromV1Enabled=true: accounts of plain_acl.yml become users at each start, "
            "deleted ones too; take it out when they are there"
        )
    if config.auth_reveal_passwords:
        yield access.REVEALED
    if config.auth_mode == access.OBSERVE:
        yield "authMode=observe: everybody is served; what would be refused is counted"


def _of_waits(config: BrokerConfig) -> Iterator[str]:
    """Advice on how many slaves an answer to a producer waits for."""
    master = config.broker_role != "SLAVE"
    waits = config.broker_role == "SYNC_MASTER"
    many = max(config.in_sync_replicas, config.min_in_sync_replicas) > 1 or config.all_ack_in_sync_state_set
    if waits and config.sync_master_rule == "5.x" and not many:
        yield (
            "brokerRole=SYNC_MASTER with inSyncReplicas=1 waits for no slave: "
            "an answer waits for one with inSyncReplicas=2"
        )
    if master and not waits and many:
        yield (
            f"inSyncReplicas={config.in_sync_replicas}, minInSyncReplicas={config.min_in_sync_replicas}, "
            f"allAckInSyncStateSet={str(config.all_ack_in_sync_state_set).lower()} have no effect with "
            f"brokerRole={config.broker_role}: only a SYNC_MASTER waits for slaves"
        )
    if config.min_in_sync_replicas > 1 and not (
        config.enable_auto_in_sync_replicas or config.all_ack_in_sync_state_set
    ):
        yield (
            f"minInSyncReplicas={config.min_in_sync_replicas} has no effect without "
            "enableAutoInSyncReplicas=true or allAckInSyncStateSet=true"
        )
    if 1 < config.total_replicas < config.in_sync_replicas:
        yield (
            f"inSyncReplicas={config.in_sync_replicas} of totalReplicas={config.total_replicas} "
            "can never be in sync"
        )


def _of_acting(config: BrokerConfig) -> Iterator[str]:
    if config.enable_slave_acting_master and not config.slave_read_enable:
        yield (
            "enableSlaveActingMaster=true without slaveReadEnable=true: consumers cannot read from the slave "
            "that acts for its master"
        )
    if config.enable_slave_acting_master and config.total_replicas < 2:
        yield (
            "enableSlaveActingMaster=true with totalReplicas=1: set totalReplicas to the number of brokers "
            "of this name"
        )


def _of_periods(config: BrokerConfig) -> Iterator[str]:
    if config.ha_housekeeping_interval_ms < 2 * config.ha_send_heartbeat_interval_ms:
        yield (
            f"haHousekeepingInterval={config.ha_housekeeping_interval_ms} is less than twice "
            f"haSendHeartbeatInterval ({config.ha_send_heartbeat_interval_ms}): one heartbeat that is late "
            "closes a link"
        )
    longest_ms = max(config.broker_heartbeat_interval_ms, config.member_period_ms)
    if config.enable_slave_acting_master and config.broker_not_active_timeout_ms < 4 * longest_ms:
        yield (
            f"brokerNotActiveTimeoutMillis={config.broker_not_active_timeout_ms} is less than four times "
            f"brokerHeartbeatInterval or syncBrokerMemberGroupPeriod ({longest_ms}): one answer that is late "
            "stops background work"
        )
