"""Holds answers to senders until enough replicas have the messages; refuses sends if too few are in sync."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress

from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.durability import Durability
from orbitmq.broker.events import Events, SettingsChanged
from orbitmq.broker.role import TAKES_MESSAGES
from orbitmq.replication.replicas import EVERYTHING, QuorumRule, Replicas, Rule
from orbitmq.runtime.seam import Clock
from orbitmq.store import MessageStore, PutStatus, StoreError
from orbitmq.wording import counted

log = logging.getLogger(__name__)

# How long a master that stops or loses its role waits for replicas to acknowledge what is already written.
LAST_ACKS_SECONDS = 0.5


class ReplicaGate(Component):
    """The gate of the replicas (rows QW-01 to QW-13). Only a SYNC_MASTER that needs replicas waits.

    A report is counted in the event loop iteration that read it; how many replicas are needed is decided
    then, and at each check of the deadlines while answers wait. So a replica that falls silent delays senders
    for haSlaveSilenceMillis if the needed number may shrink to the replicas in sync, else for slaveTimeout.

    Args:
        replicas: the connections and reports of the HA port.
    """

    name = "quorum"
    runs_as = TAKES_MESSAGES
    late = PutStatus.FLUSH_SLAVE_TIMEOUT
    error = None
    holds = True

    def __init__(
        self,
        clock: Clock,
        config: BrokerConfig,
        events: Events,
        store: MessageStore,
        durability: Durability,
        replicas: Replicas,
    ) -> None:
        self._clock = clock
        self._config = config
        self._store = store
        self._durability = durability
        self._replicas = replicas
        self._waits = False
        self._running = False
        self._enough = True
        self.safe = EVERYTHING
        self.refusal: str | None = None
        self.safe_status = PutStatus.OK
        events.subscribe(SettingsChanged, lambda _event: self._settings_changed())

    async def start(self) -> None:
        self._running = True
        self._settings_changed()

    async def stop(self) -> None:
        """Give replicas a moment to acknowledge what is written; answers still waiting then time out.

        The last reports are kept: a follower that has everything sends no new one.
        """
        if self._waits and self._replicas.enough and self._durability.waits:
            with suppress(StoreError):
                await self._last_acknowledgements()
        self._running = False
        self._settings_changed()

    async def _last_acknowledgements(self) -> None:
        end = self._store.max_commit_log_offset
        waited = 0.0
        while self.safe < end and waited < LAST_ACKS_SECONDS:
            await self._clock.sleep(0.01)
            waited += 0.01

    # -- the gate --------------------------------------------------------------------------------------

    @property
    def timeout_ms(self) -> int:
        """slaveTimeout; RocketMQ 4.x has one limit for disk and slave."""
        if self._replicas.rule.rule is Rule.ONE_SLAVE:
            return self._config.sync_flush_timeout_ms
        return self._config.slave_timeout_ms

    def request_safe(self, offset: int) -> None:
        """Do nothing: new bytes go to the replicas at once, even if no caller waits for ``offset``."""

    def tick(self, now: float) -> None:
        self._replicas.judge(now)

    # -- changes of settings and replicas --------------------------------------------------------------

    def _settings_changed(self) -> None:
        rule = rule_of(self._config)
        if rule != self._replicas.rule:
            self._replicas.rule = rule
            self._replicas.judge(self._clock.monotonic())
        waits = self._running and self._config.broker_role == "SYNC_MASTER" and rule.ever_waits
        if waits == self._waits:
            return
        self._waits = self._replicas.awaited = waits
        if waits:
            self._take()
            self._durability.add(self)
        else:
            self._durability.remove(self)

    def moved(self) -> None:
        """Release answers after a replica has acknowledged more, joined or left."""
        if not self._waits:
            return
        refusal, safe_status = self.refusal, self.safe_status
        self._take()
        if refusal == self.refusal and safe_status is self.safe_status:
            self._durability.advance()
        else:
            self._durability.changed()

    def _take(self) -> None:
        replicas = self._replicas
        lonely = replicas.rule.rule is Rule.ONE_SLAVE and not replicas.enough
        self.safe = EVERYTHING if lonely else replicas.replicated
        self.safe_status = PutStatus.SLAVE_NOT_AVAILABLE if lonely else PutStatus.OK
        self.refusal = None
        if not replicas.enough and not lonely:
            self.refusal = (
                f"in-sync replicas not enough: {replicas.in_sync} in sync, this broker included, "
                f"{replicas.need} needed"
            )
        if replicas.enough != self._enough:
            self._enough = replicas.enough
            log.warning("%s in sync, %d needed", counted(replicas.in_sync, "broker"), replicas.need)

    def status(self) -> Mapping[str, str]:
        """The lines of brokerStatus."""
        replicas = self._replicas
        replicas.judge(self._clock.monotonic())
        return {
            "inSyncReplicaNums": str(replicas.in_sync),
            "needAckReplicaNums": str(replicas.need if self._waits else 1),
            "replicatedOffset": str(min(replicas.replicated, self._store.max_commit_log_offset)),
            "answersWaiting": str(len(self._durability)),
        }


def rule_of(config: BrokerConfig) -> QuorumRule:
    """The quorum rule from the settings."""
    return QuorumRule(
        in_sync_replicas=config.in_sync_replicas,
        min_in_sync_replicas=config.min_in_sync_replicas,
        auto=config.enable_auto_in_sync_replicas,
        all_in_sync=config.all_ack_in_sync_state_set,
        max_gap_bytes=config.ha_max_gap_not_in_sync,
        silence_s=config.ha_slave_silence_ms / 1000,
        report_s=config.ha_send_heartbeat_interval_ms / 1000,
        on_device=config.flush_disk_type == "SYNC_FLUSH",
        rule=Rule(config.sync_master_rule),
    )
