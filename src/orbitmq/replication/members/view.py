"""Decides from the known members which broker leads, which one this broker follows, and its next move.

Pure: name servers' answers with their times go in, decisions come out; ``membership`` carries them out.
Broker ids are real ones here, never a slave's id rewritten to 0 (behaviour NR-10).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from orbitmq.broker.role import Role
from orbitmq.message.reserved import MASTER_ID
from orbitmq.replication.members.fence import Timing, to_acquire


class Move(Enum):
    """The kinds of moves, of which a broker makes one at a time.

    Attributes:
        STAY: nothing.
        ACT: become the acting master.
        STEP_DOWN: an acting master becomes a slave.
        FENCE: a master stops the work that a slave may be doing now, and still takes messages.
        LEAD: a fenced master takes that work up again.
        PRE_ONLINE: a fenced master goes through pre-online first: a slave may have acted for it (PO-16).
        PROBE: find out whether the ports of the lost master, and of slaves that acted for it, refuse
            connections.
        ASK: ask the living master over the link whether this broker may take over.
        ISOLATE: another broker has this one's id and the higher term.
    """

    STAY = "stay"
    ACT = "act"
    STEP_DOWN = "step down"
    FENCE = "fence"
    LEAD = "lead"
    PRE_ONLINE = "pre-online"
    PROBE = "probe"
    ASK = "ask"
    ISOLATE = "isolate"


class ProbeResult(Enum):
    """The result of connecting to the lost master: a refused connection proves that it does not run."""

    UNKNOWN = "unknown"
    REFUSES = "refuses"
    SILENT = "silent"


@dataclass(slots=True)
class _Sight:
    """The members that one name server showed last.

    Attributes:
        members: addresses by real id; empty also for a name server that is not running.
        begin_s: since when the looks have had no gap.
        gone_s: by id, for each broker shown in that time: since when it is no longer shown; ``inf``: it is
            shown.
        answers: whether the name server answered; if not, no process listens there.
    """

    members: Mapping[int, str]
    seen_s: float
    begin_s: float
    gone_s: dict[int, float]
    answers: bool = True

    def without_s(self, ids: Callable[[int], bool]) -> float:
        """Since when no look has shown a broker with such an id; ``inf``: one is shown."""
        return max([self.begin_s, *(at for number, at in self.gone_s.items() if ids(number))])


class MemberViews:
    """The members of one broker name as the name servers show them.

    Args:
        broker_id: this broker's own id.
    """

    def __init__(self, broker_id: int, address: str, timing: Timing, name_servers: Iterable[str]) -> None:
        self._id = broker_id
        self._address = address
        self._timing = timing
        self._sights: dict[str, _Sight | None] = dict.fromkeys(name_servers)
        self._heard_s = -math.inf
        # Slaves with a lower id than this broker's, at their last known addresses: each may have acted.
        self._stand_ins: dict[int, str] = {}
        self.master: str | None = None

    def servers(self, name_servers: Iterable[str]) -> None:
        """Use these name servers from now on."""
        self._sights = {address: self._sights.get(address) for address in name_servers}

    def shown(
        self, server: str, members: Mapping[int, str], now_s: float, silent_s: float | None = None
    ) -> None:
        """Note a name server's answer; it shows no member at all while the group has not registered (MB-08).

        A master's address is kept after it is gone: that master may still lead.

        Args:
            silent_s: how long ago the last heartbeat of a member that is not shown now reached the name
                server. A leader's right counts from its heartbeats, so the wait for the right's end does as
                well.
        """
        if server not in self._sights:
            return
        before = self._sights[server]
        if before is not None and now_s - before.seen_s > self._timing.gap_s:
            before = None  # a leader may have come and gone between two looks that lie far apart
        lost_s = now_s if silent_s is None else min(now_s, max(self._heard_s, now_s - silent_s))
        begin_s = lost_s if before is None else min(before.begin_s, lost_s)
        gone_s = {} if before is None else {number: min(at, lost_s) for number, at in before.gone_s.items()}
        others = {n: at for n, at in members.items() if at != self._address and n != self._id}
        gone_s |= dict.fromkeys(others, math.inf)
        self._sights[server] = _Sight(dict(members), now_s, begin_s, gone_s)
        stand_ins = {number: at for number, at in others.items() if MASTER_ID != number < self._id}
        self._stand_ins |= stand_ins
        if MASTER_ID in others:
            self.master = others[MASTER_ID]

    def announced(self, master: str) -> None:
        """Note a returning master's address; name servers show it only when the master serves again."""
        self.master = master

    def refused(self, server: str, now_s: float) -> None:
        """Note that no process listens at the name server's address, so no broker is registered there."""
        self.shown(server, {}, now_s)
        sight = self._sights.get(server)
        if sight is not None:
            sight.answers = False

    def again(self, now_s: float) -> None:
        """Note another sign of a leader just now: the time for which it must be missing begins anew."""
        self._heard_s = now_s
        for sight in self._sights.values():
            if sight is not None and sight.gone_s.get(MASTER_ID) != math.inf:
                sight.gone_s[MASTER_ID] = now_s

    def members(self, now_s: float) -> dict[int, str]:
        """The members that the name servers have shown lately; the newest answer counts."""
        found: dict[int, str] = {}
        for sight in sorted(self._fresh(now_s), key=lambda sight: sight.seen_s):
            found |= sight.members
        return found

    def known(self, now_s: float) -> bool:
        """Whether enough name servers answered lately to show every leader."""
        return len(self._fresh(now_s)) >= to_acquire(len(self._sights))

    def told(self, now_s: float) -> bool:
        """Whether enough name servers answered with the members; one that is down does not count."""
        return sum(sight.answers for sight in self._fresh(now_s)) >= to_acquire(len(self._sights))

    def rival(self, now_s: float) -> str | None:
        """The address of another broker that has this one's id."""
        at = self.members(now_s).get(self._id)
        return at if at not in (None, self._address) else None

    def leaderless_since_s(self, now_s: float) -> float:
        """Since when enough name servers have shown no broker with a lower id; ``inf``: they show one."""
        return self._without_s(lambda number: number < self._id, now_s)

    def alone_since_s(self, now_s: float) -> float:
        """Since when enough name servers have shown no broker but this one; ``inf``: they show another
        one."""
        return self._without_s(lambda _: True, now_s)

    def stand_ins(self, now_s: float) -> list[str]:
        """Addresses of slaves with a lower id that may still act although enough name servers show none of
        them.

        A slave may have acted since the master was lost or handed over.
        """
        self._stand_ins = {n: at for n, at in self._stand_ins.items() if not self._is_over(n, now_s)}
        return list(self._stand_ins.values())

    def is_gone(self, stand_in: str) -> None:
        """Forget a slave that may have acted: no process listens at its address."""
        self._stand_ins = {number: at for number, at in self._stand_ins.items() if at != stand_in}

    def _is_over(self, broker_id: int, now_s: float) -> bool:
        """Whether a broker has been missing for long enough that its right to lead has run out."""
        return now_s - self._without_s(lambda number: number == broker_id, now_s) >= self._timing.patience_s

    def _without_s(self, ids: Callable[[int], bool], now_s: float) -> float:
        """Since when enough name servers have shown no broker with such an id; ``inf``: they show one."""
        times = sorted(sight.without_s(ids) for sight in self._fresh(now_s))
        need = to_acquire(len(self._sights))
        return times[need - 1] if len(times) >= need else math.inf

    def _fresh(self, now_s: float) -> list[_Sight]:
        return [
            sight
            for sight in self._sights.values()
            if sight is not None and now_s - sight.seen_s <= self._timing.gap_s
        ]


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts on which the next move depends.

    Attributes:
        fence_open: whether this broker's own right to lead lasts.
        settled: whether the name servers have shown this broker for so long that no other leads, see
            ``Fence``.
        link_up: whether the link to the master is up and bytes have arrived lately.
        released: whether the master sent over the link that it does not lead: it stops, or lost its name
            servers.
        port: the result of connecting to the lost master.
        asked: whether this broker asked all members that are shown when it was in pre-online.
        yielded_until_s: until when this broker makes way for a returning master.
        idle: whether the members that did not agree in pre-online have stopped their background work.
        leased: whether no name server answers, but all others leave the lead to this master (see ``lease``).
    """

    broker_id: int
    role: Role
    fence_open: bool
    settled: bool = False
    link_up: bool = False
    released: bool = False
    port: ProbeResult = ProbeResult.UNKNOWN
    asked: bool = False
    yielded_until_s: float = 0.0
    idle: bool = False
    leased: bool = False


@dataclass(frozen=True, slots=True)
class NextMove:
    """The next move, and why in words for the log.

    Attributes:
        master: the address of the master to follow, ``None`` for none.
    """

    move: Move
    master: str | None = None
    why: str = ""


def decide(situation: Situation, views: MemberViews, timing: Timing, now_s: float) -> NextMove:
    """The next move of a broker with acting masters switched on (behaviours MB-07..10, SS-01..04)."""
    role = situation.role
    if role in (Role.MASTER, Role.FENCED):
        return _of_master(situation, views, timing, now_s)
    if role is Role.ACTING_MASTER:
        return _of_acting(situation, views, now_s)
    if role is Role.SLAVE:
        return _of_slave(situation, views, timing, now_s)
    return NextMove(Move.STAY)  # :mod:`pre_online` decides its steps


def _of_master(situation: Situation, views: MemberViews, timing: Timing, now_s: float) -> NextMove:
    if situation.role is Role.MASTER:
        if situation.fence_open:
            return NextMove(Move.STAY)
        return NextMove(Move.FENCE, why="the name servers have not answered a heartbeat in time")
    alone_s = views.alone_since_s(now_s)
    if alone_s == math.inf and views.known(now_s) and not situation.asked:
        return NextMove(Move.PRE_ONLINE, why="a slave may have stood in for this master")
    if not situation.fence_open:
        return NextMove(Move.STAY)
    if situation.leased:
        return NextMove(
            Move.LEAD,
            why="too few name servers answer, all other brokers of this name grant this one the lead",
        )
    if situation.idle:
        return NextMove(Move.LEAD, why="the others have seen this master and do nothing any more")
    if situation.settled:
        return NextMove(Move.LEAD, why="the name servers have shown this master for long enough")
    if now_s - alone_s >= timing.patience_s:
        return NextMove(Move.LEAD, why="no other broker of this name is there")
    return NextMove(Move.STAY)


def _of_acting(situation: Situation, views: MemberViews, now_s: float) -> NextMove:
    members = views.members(now_s)
    lower = min((number for number in members if number < situation.broker_id), default=None)
    if lower is not None:
        return NextMove(Move.STEP_DOWN, members.get(MASTER_ID), f"broker id {lower} is at {members[lower]}")
    if not situation.fence_open:
        return NextMove(Move.STEP_DOWN, why="the name servers have not answered a heartbeat in time")
    # A fenced master still takes messages, so its log is still copied.
    return NextMove(Move.STAY, views.master if situation.link_up else None)


def _of_slave(situation: Situation, views: MemberViews, timing: Timing, now_s: float) -> NextMove:
    members = views.members(now_s)
    master = views.master
    if min(members, default=MASTER_ID) < situation.broker_id or now_s < situation.yielded_until_s:
        # This holds also when only one of several name servers still shows a master.
        return NextMove(Move.STAY, master)
    # A master that handed over keeps its link: it takes messages, but no longer does the background work.
    if situation.link_up and not situation.released:
        return NextMove(Move.ASK, master, "the name servers have lost the master, but its link lives")
    if not situation.fence_open:
        return NextMove(Move.STAY, master)
    stand_ins = views.stand_ins(now_s)
    if situation.released and not stand_ins:
        return NextMove(Move.ACT, master if situation.link_up else None, "the master leads no more")
    if master is not None and situation.port is ProbeResult.REFUSES and not stand_ins:
        return NextMove(Move.ACT, None, f"the master is gone, {master} refuses connections")
    missing_s = now_s - views.leaderless_since_s(now_s)
    if missing_s >= timing.patience_s:
        return NextMove(Move.ACT, None, f"no master for {missing_s:.1f} s")
    return NextMove(Move.PROBE if master is not None or stand_ins else Move.STAY, master)
