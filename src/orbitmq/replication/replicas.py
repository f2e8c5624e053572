# cython: annotation_typing=False
"""How many brokers have a message: the replicas of a master, what each has reported, and how many are needed.

Pure: no clock, no socket. Times are monotonic seconds, offsets are places of the commit log. The HA port
reports what connects, acknowledges and disconnects; ``gate.py`` releases answers as :class:`Replicas` says.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum

from orbitmq.errors import OrbitError

# The value of ``replicated`` while no answer waits for replicas: above every offset.
EVERYTHING = 1 << 62
NOTHING_OWED = -1.0
# How late a report may be, in periods: a follower checks four times a period whether its report is due.
LATEST_REPORT = 1.25


class Rule(Enum):
    """What a master of several replicas does when too few are in sync.

    Attributes:
        COUNT: as RocketMQ 5.x: a message needs as many brokers as the settings require; with too few in sync,
            sends are refused or need fewer.
        ONE_SLAVE: as RocketMQ 4.x: a message needs one slave; without any in sync the answer is
            SLAVE_NOT_AVAILABLE (row QW-09).
    """

    COUNT = "5.x"
    ONE_SLAVE = "4.x"


@dataclass(frozen=True, slots=True)
class QuorumRule:
    """The settings that decide how many brokers must have a message. The master is one of them.

    Attributes:
        in_sync_replicas: inSyncReplicas (row QW-02).
        min_in_sync_replicas: minInSyncReplicas: the lower bound, when the number follows the replicas in
            sync.
        auto: enableAutoInSyncReplicas: if fewer are in sync, fewer are enough (row QW-06).
        all_in_sync: allAckInSyncStateSet: all replicas in sync must have it (row QW-12).
        max_gap_bytes: haMaxGapNotInSync: a replica in sync is less than this behind the log (row QW-04).
        silence_s: haSlaveSilenceMillis: a replica that lacks bytes and is silent for this long is not in
            sync.
        report_s: haSendHeartbeatInterval: a replica that lacks nothing still reports this often.
        on_device: a copy counts when it is on the replica's device, else when it has arrived.
        rule: see :class:`Rule`.
    """

    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    auto: bool = False
    all_in_sync: bool = False
    max_gap_bytes: int = 256 << 20
    silence_s: float = 1.0
    report_s: float = 5.0
    on_device: bool = False
    rule: Rule = Rule.COUNT

    @property
    def ever_waits(self) -> bool:
        """Whether the settings can require more than this broker (rows QW-08, QW-11)."""
        return (
            self.rule is Rule.ONE_SLAVE
            or self.all_in_sync
            or max(self.in_sync_replicas, self.min_in_sync_replicas if self.auto else 1) > 1
        )

    def need(self, in_sync: int) -> int:
        """How many brokers must have a message if ``in_sync`` are in sync (rows QW-05, QW-06, QW-12)."""
        if self.rule is Rule.ONE_SLAVE:
            return 2
        if self.all_in_sync:
            return max(in_sync, self.min_in_sync_replicas)
        if self.auto:
            return max(min(self.in_sync_replicas, in_sync), self.min_in_sync_replicas)
        return self.in_sync_replicas


class ReportError(OrbitError, ValueError):
    """A replica's report cannot be true. Its connection must be closed, and its vote does not count."""


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The state of one connection.

    Attributes:
        replica: the broker behind it, see ``Replicas.connected``.
        received, durable: the replica's last report; -1 before the first one.
        in_sync: whether the replica counts and no report is overdue: a replica that has everything counts
            until it lacks bytes again, though it may be dead meanwhile.
        silent_s: for how long nothing has arrived from a replica that lacks bytes or owes a report; 0: not
            too long.
    """

    replica: Hashable
    received: int
    durable: int
    in_sync: bool
    silent_s: float = 0.0


class _Link:
    def __init__(self, replica: Hashable, heard: float) -> None:
        self.replica = replica
        self.received = -1
        self.durable = -1
        self.heard = heard
        self.alive_s = heard
        # Since when the replica is known to lack bytes; below 0: it has everything.
        self.owes_since = NOTHING_OWED
        self.silent = False
        self.in_sync = False


class Replicas:
    """How much of this master's log each replica has.

    Args:
        rule: may be replaced at any time; :meth:`judge` then counts anew.
        log_end: the end of the written log; a report beyond it cannot be true.
        grew_s: gives since when the log has been longer than a place; by default only the time of the look
            is known.
        changed: called when ``in_sync``, ``need`` or ``replicated`` has changed.

    Attributes:
        in_sync: how many brokers are in sync, this one included.
        need: how many must have a message.
        replicated: the mark: enough brokers have everything below it; :data:`EVERYTHING` while this broker is
            enough.
        awaited: whether answers to senders wait for reports.
    """

    def __init__(
        self,
        rule: QuorumRule,
        log_end: Callable[[], int],
        grew_s: Callable[[int, float], float] = lambda _place, now: now,
        changed: Callable[[], object] = lambda: None,
    ) -> None:
        self.rule = rule
        self._log_end = log_end
        self._links: dict[Hashable, _Link] = {}
        self._reached = 0
        self._judged_s = 0.0
        self._grew_s = grew_s
        self._changed = changed
        self.in_sync = 1
        self.need = rule.need(1)
        self.awaited = False
        self.replicated = EVERYTHING if self.need <= 1 else 0

    @property
    def enough(self) -> bool:
        """Whether a message written now could reach enough brokers (row QW-07)."""
        return self.need <= self.in_sync

    @property
    def states(self) -> dict[Hashable, ReplicaState]:
        """The state of each link at the last call of :meth:`judge`."""
        return {link: self._state(each) for link, each in self._links.items()}

    def _state(self, each: _Link) -> ReplicaState:
        rule = self.rule
        silent_s = self._judged_s - (each.heard if each.silent else max(each.heard, each.alive_s))
        if not each.silent and silent_s < rule.report_s * LATEST_REPORT + rule.silence_s:
            silent_s = 0.0
        in_sync = each.in_sync and not silent_s
        return ReplicaState(each.replica, each.received, each.durable, in_sync, silent_s)

    # -- called by the HA port -------------------------------------------------------------------------

    def connected(self, link: Hashable, replica: Hashable, now: float) -> None:
        """Add a replica's connection. It counts with its first report.

        Args:
            link: the connection.
            replica: the broker behind it: its id if it sent one, else its address. All links of one replica
                share one vote (row QW-13).
        """
        self._links[link] = _Link(replica, now)

    def reported(self, link: Hashable, received: int, durable: int, now: float) -> None:
        """Note that a replica has everything below ``received``, and below ``durable`` on its device.

        Raises:
            ReportError: the report is negative, ahead of the log, behind the last one, or claims more on the
                device than was received. The link loses its vote.
        """
        each = self._links.get(link)
        if each is None:
            raise ReportError("a report of a replica that is not connected")
        fault = self._fault(each, received, durable)
        if fault is not None:
            self.gone(link, now)
            raise ReportError(fault)
        each.received, each.durable, each.heard = received, durable, now
        self.judge(now)

    def note_alive(self, link: Hashable, now: float) -> None:
        """Note bytes other than a report: the follower is alive, but may still lack bytes."""
        each = self._links.get(link)
        if each is not None:
            each.alive_s = now

    def gone(self, link: Hashable, now: float) -> None:
        """Remove a connection that is closed."""
        if self._links.pop(link, None) is not None:
            self.judge(now)

    def forget(self) -> None:
        """Forget all reports: this log was cut, so they may concern records that are gone."""
        self._links.clear()
        self._reached = 0
        self._decide()

    def _fault(self, each: _Link, received: int, durable: int) -> str | None:
        end = self._log_end()
        if received < 0 or durable < 0:
            return f"it reports {received} received, {durable} durable: below 0"
        if received > end:
            return f"it reports {received} received, the log ends at {end}"
        if durable > received:
            return f"it reports {durable} durable, but only {received} received"
        if received < each.received or durable < each.durable:
            return (
                f"it reports {received} received, {durable} durable, "
                f"before {each.received} received, {each.durable} durable"
            )
        return None

    # -- the decision ----------------------------------------------------------------------------------

    def judge(self, now: float) -> None:
        """Decide which replicas are in sync at ``now``. Call it with each report and while answers wait."""
        end = self._log_end()
        rule = self.rule
        on_device = rule.on_device
        self._judged_s = now
        for each in self._links.values():
            has = each.durable if on_device else each.received
            if has >= end:
                each.owes_since = NOTHING_OWED
            elif each.owes_since < 0:
                each.owes_since = self._grew_s(has, now)
            owes_s = now - max(each.heard, each.owes_since)
            each.silent = each.owes_since >= 0 and owes_s >= rule.silence_s
            each.in_sync = has >= 0 and end - each.received < rule.max_gap_bytes and not each.silent
        self._decide()

    def _decide(self) -> None:
        """Count the brokers, and update ``replicated``."""
        in_sync, need, replicated = self.in_sync, self.need, self.replicated
        on_device = self.rule.on_device
        votes: dict[Hashable, int] = {}
        for each in self._links.values():
            if each.in_sync:
                has = each.durable if on_device else each.received
                votes[each.replica] = max(votes.get(each.replica, 0), has)
        self.in_sync = 1 + len(votes)
        self.need = self.rule.need(self.in_sync)
        if self.need <= 1:
            self.replicated = EVERYTHING
        else:
            if self.need <= self.in_sync:
                # Once enough brokers have a message, that stays true whichever falls silent later.
                by_rank = sorted(votes.values(), reverse=True)
                self._reached = max(self._reached, by_rank[self.need - 2])
            self.replicated = self._reached
        if in_sync != self.in_sync or need != self.need or replicated != self.replicated:
            self._changed()
