"""Makes a broker with replication and the gRPC gateway."""

from __future__ import annotations

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.extension import Extension
from orbitmq.gateway.attach import attach as gateway
from orbitmq.replication.attach import attach as replication
from orbitmq.runtime import Runtime


def make_broker(runtime: Runtime, config: BrokerConfig, *more: Extension) -> Broker:
    """The broker that ``orbitmq broker`` runs, with the extensions ``more`` attached; it is not started."""
    return Broker(runtime, config, extensions=[replication, gateway, *more])
