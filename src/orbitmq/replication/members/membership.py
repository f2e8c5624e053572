"""Drives the deciders: passes them the answers of name servers and members, and changes this broker's
role."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping
from contextlib import suppress

from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import Events, SettingsChanged
from orbitmq.broker.extension import ChangeRole
from orbitmq.broker.role import LEADING, TAKES_MESSAGES, Role, RoleState
from orbitmq.message.reserved import MASTER_ID
from orbitmq.replication.alike import HeadCount
from orbitmq.replication.members.consent import LateConsent
from orbitmq.replication.members.duplicate_ids import DuplicateIds
from orbitmq.replication.members.fence import Fence, Timing
from orbitmq.replication.members.looking import Looking
from orbitmq.replication.members.lost_log_owners import LostLogOwners
from orbitmq.replication.members.master_word import MasterWord
from orbitmq.replication.members.name_servers import NameServerQueries
from orbitmq.replication.members.newcomers import Newcomers
from orbitmq.replication.members.pre_online_service import PreOnlineService
from orbitmq.replication.members.probe import Probe
from orbitmq.replication.members.surroundings import OwnState, Surroundings
from orbitmq.replication.members.view import MemberViews, Move, NextMove, Situation, decide
from orbitmq.runtime.seam import Clock
from orbitmq.transport.client import RemotingClient

log = logging.getLogger(__name__)

IDLE_PERIOD_S = 0.25
ASK_PERIOD_S = 1.0
HAND_OVER_STEP_S = 0.3
TOLD_MASTER_S = 1.0

_ROLE_OF = {
    Move.ACT: Role.ACTING_MASTER,
    Move.STEP_DOWN: Role.SLAVE,
    Move.FENCE: Role.FENCED,
    Move.LEAD: Role.MASTER,
    Move.PRE_ONLINE: Role.PRE_ONLINE,
    Move.ISOLATE: Role.PRE_ONLINE,
}


class Membership(Component):
    """One broker's membership in its group. Without acting masters, only its id is checked.

    Attributes:
        timing: the times that the brokers of one name agree on.
        fence: this broker's right to lead.
        seen: the members as the name servers show them.
    """

    name = "membership"

    def __init__(
        self,
        clock: Clock,
        config: BrokerConfig,
        events: Events,
        role: RoleState,
        own: OwnState,
        timing: Timing,
        client: RemotingClient,
        queries: NameServerQueries,
        around: Surroundings,
        change_role: ChangeRole,
    ) -> None:
        self._clock = clock
        self._config = config
        self._role = role
        self._own = own
        self._address = address = own.address
        self._client = client
        self._around = around
        self._change_role = change_role
        servers = config.name_servers
        self.timing = timing
        self.fence = Fence(self.timing, servers, config.total_replicas - 1)
        self.seen = MemberViews(config.broker_id, address, self.timing, servers)
        self._pre_online = PreOnlineService(
            clock, config, client, address, own.ha_address, around.ha_client, around.links, around.tables,
            self._others, self._knows_others, own.log_end, self.timing,
        )  # fmt: skip
        self._probe = Probe(clock, client, self.seen)
        self._duplicate_ids = DuplicateIds(config, client, queries, address)
        self._consent = LateConsent(client, around.tables)
        self._lost_log_owners = LostLogOwners(client, own.log_end, own.record_at)
        self._heads = HeadCount(config)
        self._moving = asyncio.Lock()
        self._wake = asyncio.Event()
        self._looking = Looking(
            clock, config, role, queries, address, self.fence, self.seen, self._wake.set, self._master_shown
        )
        self._word = MasterWord(timing)
        self._isolated_s = -math.inf  # since when this broker is isolated, or was last
        self._began_empty = False  # whether this broker had no log at its start
        # Whether the last stop was not clean, and this broker has not been through pre-online since.
        self._crashed = False
        self._stood_in = False
        self._asked_s = 0.0
        self._leaving = False
        self._newcomers = Newcomers()
        self._master_ha: tuple[str, str] | None = None
        if config.enable_slave_acting_master:
            role.may_lead = self._may_lead
            role.lacks_tables = self._lacks_tables
        events.subscribe(SettingsChanged, self._settings_changed)

    # -- life ------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start to request members and send heartbeats.

        Raises:
            StartError: another broker has this one's id.
        """
        await self._duplicate_ids.refuse_a_taken_id(self._looking.servers)
        self._crashed = self._own.crashed()
        if not self._config.enable_slave_acting_master:
            return
        if self._role.role in LEADING:
            self.fence.grant(self._clock.monotonic())  # the operator chose to skip pre-online (PO-14)
        # Before a restart this broker may have promised to leave the lead to its master for a moment.
        self.seen.again(self._clock.monotonic())
        self._spawn(self._looking.run(), "look at the members")
        self._spawn(self._drive(), "role")
        self._every(self._clock, self.timing.look_s, self._ask_for_lease)
        self._every(self._clock, self.timing.look_s, self._look_for_elders)
        self._every(self._clock, self.timing.look_s, self._count_heads)

    async def stop(self) -> None:
        await self.end_work()
        await self._client.close()

    async def hand_over(self) -> None:
        """Before a clean stop: stop leading, and send the others all changes and the notice of the stop.
        Takes a limited time."""
        self._leaving = True
        self._looking.leave()
        if self._role.role in LEADING and self._config.enable_slave_acting_master:
            async with self._moving:
                await self._step_back()
        await self._give_all()
        await self._around.slaves.go(self._others())
        self._around.links.tell_leaving()

    async def _step_back(self) -> None:
        """Stop the background work, which only one broker of a name may do."""
        after = Role.FENCED if self._role.role is Role.MASTER else Role.SLAVE
        self.fence.withdraw()
        await self._change_role(after)

    async def _give_all(self) -> None:
        for what, work in (("settled", self._around.settle), ("given its tables", self._around.tables.push)):
            try:
                async with asyncio.timeout(HAND_OVER_STEP_S):
                    await work()
            except Exception as error:
                log.warning("broker %s has not %s in time: %r", self._address, what, error)

    async def others(self) -> Mapping[int, str]:
        """The other living brokers of this name, by id. Without acting masters this requests them from name
        servers."""
        if self._config.enable_slave_acting_master:
            return self._others()
        await self._looking.look()
        return self._others()

    def took_all(self) -> bool:
        """Whether the tables of all others were taken in the last pre-online."""
        return self._pre_online.took_all

    # -- news from other brokers -----------------------------------------------------------------------

    def _settings_changed(self, event: SettingsChanged) -> None:
        if "namesrvAddr" in event.keys:
            self._looking.name_servers_changed()

    def look_now(self) -> None:
        """Request the members at once, and often for some seconds, because something changed at a member."""
        self._looking.at_once()

    def master_releases(self) -> None:
        """Note that the master leads no more: this broker may lead once no name server shows the master."""
        self._word.stopped(self._clock.monotonic())
        self.look_now()

    def may_take_over(self) -> bool:
        """Whether a slave that asks over the link may do the background work: it may if this broker does
        not."""
        if self._role.role is not Role.FENCED:
            return False
        self.fence.lease.withdraw()  # the slave may act from now on, despite its promise
        return True

    def _ask_for_lease(self) -> None:
        now = self._clock.monotonic()
        if self._role.takes_messages and not self._leaving and self.fence.is_stale(now):
            self._around.links.ask_lease(self.fence.lease.new_request(now), self._own.term())

    def promises(self, term: int) -> bool:
        """Whether this broker leaves the background work to its master, which asks in ``term``.

        Only a slave that could not lead itself, and that has not acted since, promises.
        """
        now = self._clock.monotonic()
        if self._role.role is not Role.SLAVE or self._leaving:
            return False
        if not self._word.leaves_lead(now, stale=self.fence.is_stale(now)) or self._own.term() > term:
            return False
        self._leads_still(now)
        return True

    def _leads_still(self, now_s: float) -> None:
        """Note a sign of a leader: its next loss must be observed, or proved, anew."""
        self.seen.again(now_s)
        self._probe.forget()

    def lease_given(self, broker_id: int, number: int) -> None:
        """Note a slave's answer that it leaves the background work to this broker."""
        self.fence.lease.given(broker_id, number)
        self._wake.set()

    def greeted(self, broker_id: int, address: str, log_end: int, term: int) -> None:
        """Note a slave that connects over the link."""
        if self._config.broker_id == MASTER_ID and self._newcomers.greeted(
            broker_id,
            address,
            counts=self._role.role is Role.PRE_ONLINE or self._own.log_end() == 0 < log_end,
            led_since=self._role.role is Role.MASTER and self._own.term() < term,
        ):
            self._wake.set()

    def longer(self, broker_id: int, address: str) -> None:
        """Note a slave whose log has all of this one and more: this master lost its last messages, and came
        back alone."""
        if self._config.broker_id == MASTER_ID and self._newcomers.longer(
            broker_id, address, self._own.log_end(), self._clock.monotonic()
        ):
            self._wake.set()

    async def announced(self, ha_address: str | None, master_address: str | None) -> bool:
        """Handle a returning master's announcement of its address (906). An acting master makes way before
        this returns.

        Returns:
            Whether this broker leads.
        """
        if self._config.broker_id == MASTER_ID:
            return self._role.leads
        if master_address is not None:
            self.seen.announced(master_address)
            if ha_address is not None:
                self._master_ha = (master_address, ha_address)
        now = self._clock.monotonic()
        self._word.is_back(now)
        self._leads_still(now)
        async with self._moving:
            if self._role.role is Role.ACTING_MASTER:
                log.warning("the master at %s is back: this broker acts for it no more", master_address)
                await self._step_back()
                await self._give_all()
            if not self._around.ha_client.connected:
                self._around.ha_client.follow(None, None)
            self._follow(master_address)
        return self._role.leads

    def _master_shown(self) -> None:
        self._word.is_shown()
        self._probe.forget()
        if self._stood_in and self._role.role is Role.SLAVE:
            self._stood_in = False
            self._around.master_back()

    def _others(self) -> Mapping[int, str]:
        members = self._newcomers.members | self.seen.members(self._clock.monotonic())
        own = self._config.broker_id
        return {number: at for number, at in members.items() if at != self._address and number != own}

    def _knows_others(self) -> bool:
        """Whether enough name servers show the other members, or all others have connected by themselves.

        A master that crashed, or has no log, may have lost messages that a slave has, and restarted name
        servers do not show that slave yet. So wait until the others have had time to register: new messages
        of this master would not fit behind theirs.
        """
        now, needed = self._clock.monotonic(), self._config.total_replicas - 1
        if 0 < needed <= len(self._newcomers.members):
            return True
        may_lack = self._config.broker_id == MASTER_ID and (self._crashed or not self._own.log_end())
        if may_lack and len(self._others()) < needed and now < self._isolated_s + self.timing.arrival_s:
            return False
        return self.seen.told(now)

    def _lacks_tables(self) -> bool:
        """Whether this master lost its tables with its log, and no member has given them back.

        In pre-online it lost them if it started without a log; while it serves, if members that appeared
        since may have a log.
        """
        if self._role.role in TAKES_MESSAGES:
            return self._lost_log_owners.may_be(self._others())
        isolated = self._config.broker_id == MASTER_ID and self._role.role is Role.PRE_ONLINE
        return isolated and (self._began_empty or not self._own.log_end())

    def _count_heads(self) -> None:
        self._heads.note_members(len(self._others()) + 1)

    async def _look_for_elders(self) -> None:
        if self._role.role in TAKES_MESSAGES and (found := await self._lost_log_owners.look(self._others())):
            self._newcomers.members |= found
            self._wake.set()

    # -- acting ----------------------------------------------------------------------------------------

    def _may_lead(self) -> bool:
        return self.fence.is_open(self._clock.monotonic())

    async def _drive(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._consider()
            except Exception:
                log.exception("broker %s could not follow its members", self._address)
                await self._clock.sleep(1)
            try:
                async with asyncio.timeout(self._next_look_s()):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _waits_for_idle(self) -> bool:
        """Whether only the members that did not agree in pre-online keep this broker from leading."""
        return self._role.role is Role.FENCED and self._consent.missing and self._may_lead()

    def _next_look_s(self) -> float | None:
        """Seconds until a move may be due by time alone, because a right to lead ends: this broker's or the
        lost master's."""
        now = self._clock.monotonic()
        if self._waits_for_idle():
            return IDLE_PERIOD_S
        if self._role.role in LEADING:
            closes_s = self.fence.closes_s
            return None if closes_s is None else max(0.0, closes_s - now)
        left_s = self.seen.leaderless_since_s(now) + self.timing.patience_s - now
        return left_s if self._role.role is Role.SLAVE and 0 < left_s < math.inf else None

    async def _consider(self) -> None:
        if self._leaving or await self._meets_rival():
            return
        await self._isolate_behind()
        if self._role.role is Role.PRE_ONLINE:
            await self._go_online()
            return
        await self._consent.check_idle(waits=self._waits_for_idle())
        decision = self._decide()
        if decision.move is Move.PROBE:
            await self._probe.look(decision.master)
            decision = self._decide()
        if decision.move is Move.ACT:
            await self._around.slaves.ask(self._others())
        async with self._moving:
            if not self._leaving:
                await self._act(self._decide())

    def _decide(self) -> NextMove:
        now = self._clock.monotonic()
        silence_s = self._around.links.master_silence_s()
        situation = Situation(
            broker_id=self._config.broker_id,
            role=self._role.role,
            fence_open=self.fence.is_open(now),
            settled=self.fence.settled(now),
            link_up=silence_s is not None and silence_s < self._link_patience_s,
            released=self._word.is_released(now),
            port=self._probe.port,
            asked=self._consent.covers(self._others()),
            yielded_until_s=self._word.yielded_until_s,
            idle=self._consent.idle,
            leased=self.fence.is_leased(now),
        )
        return decide(situation, self.seen, self.timing, now)

    @property
    def _link_patience_s(self) -> float:
        return max(self.timing.timeout_s, self._around.links.master_heartbeat_s() * 1.2)

    async def _act(self, decision: NextMove) -> None:
        role = _ROLE_OF.get(decision.move)
        if role is not None and role is not self._role.role:
            log.warning("broker %s: %s: %s", self._address, decision.move.value, decision.why)
            if role is Role.MASTER:
                self._consent.given()
            if role is Role.ACTING_MASTER:
                self._stood_in = True
            if role not in LEADING:
                self.fence.withdraw()
            acted = self._role.role is Role.ACTING_MASTER
            await self._change_role(role)
            self._wake.set()
            if acted:
                # Send the tables before the link ends: a master in a lower term would not be followed again.
                with suppress(TimeoutError):
                    async with asyncio.timeout(TOLD_MASTER_S):
                        await self._around.tables.master_has_changes()
        elif decision.move is Move.ASK and self._clock.monotonic() - self._asked_s >= ASK_PERIOD_S:
            self._asked_s = self._clock.monotonic()
            self._around.links.ask_take_over()
        if self._role.role in (Role.SLAVE, Role.ACTING_MASTER):
            self._follow(decision.master)

    def _follow(self, master: str | None) -> None:
        if master is None:
            self._around.ha_client.follow(None, None)
            return
        known = self._master_ha
        ha_address = known[1] if known is not None and known[0] == master else None
        self._around.ha_client.follow(self._config.ha_master_address or ha_address, master)

    async def _meets_rival(self) -> bool:
        """Whether another broker with this one's id takes precedence (``DuplicateIds``): this one is isolated
        then."""
        if not await self._duplicate_ids.gone():
            return True
        rival = self.seen.rival(self._clock.monotonic())
        if rival is None or self._role.role is Role.PRE_ONLINE:
            return False
        if not await self._duplicate_ids.gives_way(rival, self._own.term()):
            return False
        async with self._moving:
            if not self._leaving:
                self.fence.withdraw()
                await self._change_role(Role.PRE_ONLINE)
        return True

    async def _isolate_behind(self) -> None:
        """Take from a slave what this leader lacks, as at a start: its tables, or its log if this broker has
        none."""
        if self._role.role not in (Role.MASTER, Role.FENCED):
            return
        lacks = self._newcomers.lacks(self._own.log_end(), self._clock.monotonic())
        if lacks is None:
            return
        log.warning("broker %s lacks %s: isolated until it has that", self._address, lacks)
        async with self._moving:
            if not self._leaving:
                self.fence.withdraw()
                await self._change_role(Role.PRE_ONLINE)

    def _misses_others(self) -> bool:
        """Whether a member that may have led is missing: name servers that just started know no members.

        If that member appears, it is asked; otherwise its right to lead has to run out. This also holds for a
        master without a log: a broker that lost its disk cannot be distinguished from a new one.
        """
        return len(self._others()) < self._config.total_replicas - 1

    async def _go_online(self) -> None:
        log.info("broker %s is isolated until it has caught up with the others", self._address)
        self._isolated_s, self._began_empty = self._clock.monotonic(), not self._own.log_end()
        self.look_now()
        silent = await self._pre_online.run()
        self._crashed = False
        agreed, misses_others = silent is not None and not silent, self._misses_others()
        self._newcomers.members.clear()
        self._lost_log_owners.went_online(
            empty=misses_others and not self._others() and not self._own.log_end()
        )
        met = frozenset(self._others() if misses_others else ())
        async with self._moving:
            if self._leaving:
                return
            self._consent.went_online(silent, met)
            if self._config.broker_id != MASTER_ID:
                await self._change_role(Role.SLAVE)
            elif agreed and not misses_others:
                self.fence.grant(self._clock.monotonic())
                await self._change_role(Role.MASTER)
            else:
                await self._change_role(Role.FENCED)
        self.look_now()
