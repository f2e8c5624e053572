"""How often a master sends a heartbeat over the link."""

from __future__ import annotations

from orbitmq.broker.config import BrokerConfig


def heartbeat_s(config: BrokerConfig, *, stream: bool) -> float:
    """Seconds without bytes after which a master sends a heartbeat.

    With acting masters a slave waits for the link's silence before it acts: RocketMQ's 5 s would be the
    longest wait of all, so over OrbitMQ's own protocol heartbeats are as frequent as the brokers' looks at
    the name servers.
    """
    interval_ms = config.ha_send_heartbeat_interval_ms
    if stream and config.enable_slave_acting_master:
        interval_ms = min(interval_ms, config.member_period_ms)
    return interval_ms / 1000
