"""How this broker introduces itself to the others of its name."""

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


class Identity:
    """Makes the greeting of this broker.

    Args:
        term: of the last master that this broker was or followed.

    Attributes:
        run: tells this start from all others.
        comparison: with the settings of who is linked with us.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        store: CopiedLog,
        role: RoleState,
        address: str,
        term: Callable[[], int],
    ) -> None:
        self._config = config
        self._store = store
        self._role = role
        self._address = address
        self.run = runtime.random.randbytes(8).hex()
        self._term = term
        self.comparison = Comparison(config)

    def hello(self) -> Hello:
        """The greeting as of now."""
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
        )


def all_must_acknowledge(config: BrokerConfig) -> bool:
    """Whether no message is acknowledged that one of the replicas lacks.

    Then nothing was acknowledged of what a master took without its slave.
    """
    alone = rule_of(config).need(1)
    return config.broker_role == "SYNC_MASTER" and 1 < config.total_replicas <= alone
