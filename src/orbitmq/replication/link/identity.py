"""Makes the greeting that this broker sends to others of its name."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.role import RoleState
from orbitmq.message.reserved import MASTER_ID
from orbitmq.replication.alike import Comparison, alike
from orbitmq.replication.gate import rule_of
from orbitmq.replication.link.hello import Hello
from orbitmq.runtime.seam import Runtime
from orbitmq.store.ports import CopiedLog


class BrokerIdentity:
    """Makes the greeting of this broker.

    Args:
        term: the term of the last leader that this broker was or followed.
        seals: whether this broker seals tables.

    Attributes:
        run: a random value of this start.
        comparison: compares this broker's settings with those of linked brokers.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        store: CopiedLog,
        role: RoleState,
        address: str,
        term: Callable[[], int],
        seals: bool,
    ) -> None:
        self._config = config
        self._store = store
        self._role = role
        self._address = address
        self.run = runtime.random.randbytes(8).hex()
        self._term = term
        self._seals = seals
        self.comparison = Comparison(config)

    def hello(self) -> Hello:
        """The greeting with the current state."""
        config, store = self._config, self._store
        return Hello(
            cluster=config.broker_cluster_name,
            group=config.broker_name,
            broker_id=config.broker_id,
            address=self._address,
            run=self.run,
            role=self._role.role.value,
            term=self._term(),
            file_bytes=config.mapped_file_size_commit_log,
            begin=store.min_commit_log_offset,
            end=store.max_commit_log_offset,
            copies_back=config.enable_slave_acting_master and config.broker_id == MASTER_ID,
            keeps_own=config.broker_id == MASTER_ID and not all_must_acknowledge(config),
            alike=alike(config),
            seals=self._seals,
        )


def all_must_acknowledge(config: BrokerConfig) -> bool:
    """Whether every acknowledged message is on all replicas.

    If so, messages that a master stored while its slave was away were never acknowledged.
    """
    alone = rule_of(config).need(1)
    return config.broker_role == "SYNC_MASTER" and 1 < config.total_replicas <= alone
