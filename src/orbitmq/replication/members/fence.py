"""The fence: how long this broker may do the work that one broker of its name does at a time.

A name server that gets no heartbeat of a broker for its timeout removes it from the routes, and then a slave
may do its work. So a broker that leads stops by itself before that: its right lasts as long as its last
*answered* light heartbeat, counted from the sending, is younger than the timeout that the broker has sent to
the name servers.

With ``n`` name servers the answers of ``(n + 1) // 2`` of them renew the right. A broker may take it over
only if ``n // 2 + 1`` of them show no leader. Two such sets share a name server, so in any partition at most
one side leads.

When no name server answers, the other brokers of the name can give the right instead (``lease``).

Pure: times are seconds of a monotonic clock, given by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orbitmq.replication.members.lease import Lease

# A margin at the end of the right, for stopping the work under way and for clocks of different speed.
LONGEST_GUARD_S = 0.5
GUARD_SHARE = 8
# After this many looks without an answer, the other brokers are asked for a promise.
STALE_LOOKS = 1.5
# After this number of looks each broker has looked once more, even if one look was late.
LATE_LOOKS = 2.5


def to_renew(name_servers: int) -> int:
    """How many name servers must have answered for the right to lead."""
    return (name_servers + 1) // 2


def to_acquire(name_servers: int) -> int:
    """How many name servers must show no leader before another broker may lead."""
    return max(1, name_servers - to_renew(name_servers) + 1)


@dataclass(frozen=True, slots=True)
class Timing:
    """The times that the brokers of one name agree on by equal settings, in seconds.

    Attributes:
        timeout_s: the silence after which a name server forgets a broker (``brokerNotActiveTimeoutMillis``).
        look_s: how often a broker looks at its members (``syncBrokerMemberGroupPeriod``).
    """

    timeout_s: float
    look_s: float

    @property
    def guard_s(self) -> float:
        return min(LONGEST_GUARD_S, self.timeout_s / GUARD_SHARE)

    @property
    def lease_s(self) -> float:
        """How long an answered heartbeat gives the right to lead."""
        return self.timeout_s - self.guard_s

    @property
    def patience_s(self) -> float:
        """How long a leader must have been missing until its right has surely run out."""
        return self.timeout_s + self.guard_s

    @property
    def gap_s(self) -> float:
        """Two looks that lie further apart may have missed a leader between them."""
        return LATE_LOOKS * self.look_s

    @property
    def noticed_s(self) -> float:
        """How long a broker must have been registered until all others have surely seen it."""
        return LATE_LOOKS * self.look_s

    @property
    def request_age_s(self) -> float:
        """How long after its last question a slave counts as one that asks to be the heir."""
        return LATE_LOOKS * self.look_s

    @property
    def arrival_s(self) -> float:
        """How long a master that may have lost messages waits for other brokers to register."""
        return LATE_LOOKS * self.look_s


@dataclass(slots=True)
class _Server:
    """The answers of one name server, by the times at which the heartbeats were sent.

    Attributes:
        registered_s: since when no answer has denied that this broker is registered.
        shown_s: since when its answers, without a gap, have shown this broker as registered.
        last_s: the last of these answers.
        renewed_s: the last answer that renews the right.
    """

    registered_s: float | None = None
    shown_s: float | None = None
    last_s: float = 0.0
    renewed_s: float | None = None


class Fence:
    """The right to lead of one broker.

    Args:
        others: how many other brokers the name has.

    Attributes:
        lease: the right that the other brokers give when no name server answers.
    """

    def __init__(self, timing: Timing, name_servers: Iterable[str], others: int = 0) -> None:
        self._timing = timing
        self.lease = Lease(others, timing.lease_s)
        self._servers = {address: _Server() for address in name_servers}
        self._granted_s: float | None = None

    def servers(self, name_servers: Iterable[str]) -> None:
        """Use these name servers from now on."""
        self._servers = {address: self._servers.get(address) or _Server() for address in name_servers}

    def note_answer(self, server: str, sent_s: float, *, registered: bool) -> None:
        """Note a name server's answer to the heartbeat sent at ``sent_s``.

        Answers count only when the broker has been registered there for two looks: a slave that looks in its
        period has then surely seen this broker, and begins its wait anew.
        """
        known = self._servers.get(server)
        if known is None:
            return
        if not registered:
            known.registered_s = known.shown_s = None
            return
        if known.shown_s is None or sent_s - known.last_s > self._timing.gap_s:
            known.shown_s = sent_s  # in a gap the name server may have forgotten this broker
        known.last_s = max(known.last_s, sent_s)
        if known.registered_s is None:
            known.registered_s = sent_s
        if sent_s - known.registered_s >= self._timing.noticed_s and sent_s > (known.renewed_s or -1.0):
            known.renewed_s = sent_s

    def settled(self, now_s: float) -> bool:
        """Whether name servers have shown this broker for long enough that no other still leads.

        A master that cannot ask the others relies on this: a leading broker stops when it sees one with a
        lower id, and when it cannot look, its own fence stops it.
        """
        shown = [
            server
            for server in self._servers.values()
            if server.shown_s is not None
            and now_s - server.last_s <= self._timing.gap_s
            and now_s - server.shown_s >= self._timing.patience_s
        ]
        return len(shown) >= to_acquire(len(self._servers))

    def grant(self, now_s: float) -> None:
        """Begin the right: every other broker that could lead has just agreed that this one leads."""
        self._granted_s = now_s

    def withdraw(self) -> None:
        """End the right; answers to heartbeats sent before do not renew it."""
        self._granted_s = None
        self.lease.withdraw()
        for server in self._servers.values():
            server.renewed_s = None

    @property
    def _renewed_s(self) -> float | None:
        """When the last heartbeat was sent that enough name servers have answered."""
        starts = sorted(
            (s.renewed_s for s in self._servers.values() if s.renewed_s is not None), reverse=True
        )
        need = to_renew(len(self._servers))
        return starts[need - 1] if 0 < need <= len(starts) else None

    def is_stale(self, now_s: float) -> bool:
        """Whether the right was not renewed when it should have been: normally each look renews it."""
        renewed_s = self._renewed_s
        return renewed_s is None or now_s - renewed_s > STALE_LOOKS * self._timing.look_s

    @property
    def closes_s(self) -> float | None:
        """When the right ends unless it is renewed; ``None``: there is none."""
        begins = (self._renewed_s, self._granted_s, self.lease.since_s)
        latest = max((s for s in begins if s is not None), default=None)
        return None if latest is None else latest + self._timing.lease_s

    def is_leased(self, now_s: float) -> bool:
        """Whether all other brokers of the name leave the background work to this one."""
        return self.lease.holds(now_s)

    def is_open(self, now_s: float) -> bool:
        """Whether this broker may lead now."""
        closes_s = self.closes_s
        return closes_s is not None and now_s < closes_s

    def state(self, now_s: float) -> Mapping[str, float]:
        """Seconds since the last answer that counted, by name server; for operators."""
        return {
            address: now_s - server.renewed_s
            for address, server in self._servers.items()
            if server.renewed_s is not None
        }
