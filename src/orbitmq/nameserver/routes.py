"""The route table: brokers, whether they are alive, and the topics they have.

Pure: no I/O, and the time is an argument. An address of a cluster belongs to exactly one broker, so a
route never names a broker that is not alive. Facts: RouteInfoManager; the numbers NR and HB name behaviours.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import islice

from orbitmq.message.reserved import MASTER_ID, SYNC_MEMBER_TOPIC_PREFIX, TOPIC_FLAG_UNIT, TOPIC_FLAG_UNIT_SUB
from orbitmq.nameserver.brokers import (
    DEFAULT_TIMEOUT_MS,
    Admission,
    BrokerGroup,
    BrokerReport,
    Member,
    MinBrokerIdChange,
    Registered,
    min_change,
)
from orbitmq.nameserver.topics import GroupQueues, TopicTable
from orbitmq.wire.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from orbitmq.wire.bodies.topic import DataVersion, TopicQueueMappingInfo

# The most moves of broker ids between two addresses that are remembered for a group.
MAX_MOVES = 64


class RouteTable:
    """Brokers, their liveness and their topics.

    The effects of a broker's departure on its topics hold at once, but are written into the table of topics
    afterwards, in slices: see :meth:`sweep`.
    """

    def __init__(self) -> None:
        self._groups: dict[str, BrokerGroup] = {}
        self._members: dict[tuple[str, str], Member] = {}
        self._mappings: dict[str, dict[str, TopicQueueMappingInfo]] = {}
        self._topics = TopicTable()
        # Groups whose topics must be removed, or lose their write bit, with the topics not visited yet.
        self._leaving: dict[str, Iterator[str] | None] = {}
        self._wiping: dict[str, Iterator[str] | None] = {}

    @property
    def topics(self) -> TopicTable:
        """The table of topics, after all work left for :meth:`sweep` has been done."""
        self.settle()
        return self._topics

    @property
    def topic_number(self) -> int:
        """How many topics there are, including those that :meth:`sweep` has yet to drop."""
        return len(self._topics)

    # ---- work left by departures

    @property
    def has_work(self) -> bool:
        """Whether :meth:`sweep` has work to do."""
        return bool(self._leaving or self._wiping)

    def sweep(self, most: int) -> None:
        """Change up to ``most`` topics of the groups that have left or lost their master."""
        for chores, change in (
            (self._leaving, self._topics.remove),
            (self._wiping, self._topics.wipe_write_of),
        ):
            for group, topics in list(chores.items()):
                if topics is None:
                    topics = chores[group] = iter(self._topics.all_names())
                done = 0
                for topic in islice(topics, most):
                    change(topic, group)
                    done += 1
                if done < most:
                    del chores[group]
                return

    def settle(self) -> None:
        """Do all the work that departures have left."""
        while self.has_work:
            self.sweep(1_000_000)

    # ---- brokers come and go

    def register(
        self, registration: BrokerReport, now_ms: int, *, drop_missing_topics: bool = False
    ) -> Registered | None:
        """Accept a broker's report.

        Args:
            drop_missing_topics: forget topics of this group that the report does not list.

        Returns:
            As :meth:`admit`.
        """
        admission = self.admit(registration, now_ms, drop_missing_topics=drop_missing_topics)
        if admission is None:
            return None
        self.take(admission, registration.topics.items())
        return admission.answer

    def admit(
        self, registration: BrokerReport, now_ms: int, *, drop_missing_topics: bool = False
    ) -> Admission | None:
        """Accept a broker's report without its topics, which :meth:`take` stores.

        Returns:
            None when the report is refused because it lists a single topic of a broker that has not
            registered as a whole (NR-13). A report that loses against a newer broker with the same id
            (NR-12), or comes late from an earlier connection (NR-16), is ignored and answered with an empty
            result.
        """
        r = registration
        if r.group in self._leaving or r.group in self._wiping:
            self.settle()
        group = self._groups.get(r.group) or BrokerGroup(r.cluster, r.group, heard_ms=now_ms)
        holder = group.members.get(r.broker_id)
        previous = self._members.get((r.cluster, r.address))
        if previous is not None and r.opened < previous.opened:
            return Admission(Registered())
        if holder is None and len(r.topics) == 1:
            return None
        if (
            holder is not None
            and holder.address != r.address
            and holder.version.state_version > r.version.state_version
        ):
            if previous is not None:
                self._remove(previous)
            return Admission(Registered(), moved=self._moved(group, holder, r.address))
        moved = None if holder is None else self._moved(group, holder, r.address)
        previous_min = group.min_id if group.members else MASTER_ID
        self._make_room(group, registration, previous, holder)
        if r.group in self._wiping:
            self.settle()  # the topics of departed brokers are removed before this report's are stored
        member = self._admit(group, registration, now_ms)
        changed = holder is None or holder is not previous or holder.version != r.version
        change = None
        if r.broker_id < previous_min:
            change = min_change(group, offline=None, ha_address=member.ha_address)
        admission = Admission(self._answer(group, r.broker_id, change), member, changed=changed, moved=moved)
        self._prepare_topics(admission, group, registration, drop_missing_topics)
        return admission

    @staticmethod
    def _moved(group: BrokerGroup, holder: Member, address: str) -> tuple[str, str] | None:
        """The old and new address of an id, the first time that it moves between these two."""
        move = (holder.broker_id, frozenset((holder.address, address)))
        if holder.address == address or move in group.moves or len(group.moves) >= MAX_MOVES:
            return None
        group.moves.add(move)
        return holder.address, address

    @staticmethod
    def _answer(group: BrokerGroup, broker_id: int, change: MinBrokerIdChange | None = None) -> Registered:
        if broker_id != MASTER_ID and MASTER_ID in group.members:
            master = group.members[MASTER_ID]
            return Registered(master.address, master.ha_address, change)
        return Registered(change=change)

    def renewed(
        self, cluster: str, address: str, connection: Hashable, digest: bytes, now_ms: int
    ) -> Registered | None:
        """Note a sign of life of a broker whose report is, byte by byte, the last one accepted.

        Returns:
            None when this report has to be read.
        """
        member = self._members.get((cluster, address))
        if member is None or member.connection is not connection or member.digest != digest:
            return None
        group = self._groups[member.group]
        if member.deletions != group.deletions:
            return None
        member.last_seen_ms = now_ms
        return self._answer(group, member.broker_id)

    def remember(self, admission: Admission, digest: bytes) -> None:
        """Note that all topics of the report with this digest were stored: see :meth:`renewed`."""
        member = admission.member
        if admission.wanted and member is not None and self._holds(member):
            member.digest = digest
            member.deletions = self._groups[member.group].deletions

    def _holds(self, member: Member) -> bool:
        return self._members.get((member.cluster, member.address)) is member

    def _make_room(
        self,
        group: BrokerGroup,
        registration: BrokerReport,
        previous: Member | None,
        holder: Member | None,
    ) -> None:
        """Remove the broker at this address with another id or name, and the broker with this id."""
        if previous is not None and previous.group != group.name:
            self._remove(previous)
        elif previous is not None and previous.broker_id != registration.broker_id:
            # Inside the group this is a change of role: the topics stay, the new role is about to be stored.
            group.left(group.members.pop(previous.broker_id))
            del self._members[previous.cluster, previous.address]
            self._wipe_without_master(group)
        if holder is not None and holder is not previous:
            del self._members[holder.cluster, holder.address]
            group.left(holder)

    def _admit(self, group: BrokerGroup, registration: BrokerReport, now_ms: int) -> Member:
        r = registration
        member = Member(
            cluster=r.cluster,
            group=r.group,
            broker_id=r.broker_id,
            address=r.address,
            ha_address=r.ha_address,
            timeout_ms=DEFAULT_TIMEOUT_MS if r.timeout_ms is None else r.timeout_ms,
            version=r.version,
            connection=r.connection,
            opened=r.opened,
            last_seen_ms=now_ms,
            filter_servers=r.filter_servers or (),
        )
        self._groups[group.name] = group
        group.members[r.broker_id] = member
        group.acting_master = bool(r.acting_master)
        group.zone = r.zone
        self._members[r.cluster, r.address] = member
        return member

    def _prepare_topics(
        self, admission: Admission, group: BrokerGroup, registration: BrokerReport, drop_missing: bool
    ) -> None:
        """Decide whether the report's topics count: those of the master or of the slave in its place
        (NR-03..05)."""
        r = registration
        is_master = r.broker_id == MASTER_ID
        in_its_place = r.acting_master is not None and not is_master and r.broker_id == group.min_id
        if not (is_master or in_its_place):
            return
        admission.wanted = True
        admission.read_only = in_its_place and group.acting_master
        if drop_missing and not r.mappings:
            for topic in self._topics.topics_of((r.group,)):
                if topic not in r.topics:
                    self._topics.remove(topic, r.group)
        if admission.changed:
            for topic, mapping in r.mappings.items():
                self._mappings.setdefault(topic, {})[r.group] = mapping

    def take(self, admission: Admission, topics: Iterable[tuple[str, GroupQueues]]) -> bool:
        """Store topics of a report; False when they do not count, or the broker has gone meanwhile."""
        member = admission.member
        if not admission.wanted or member is None or not self._holds(member):
            return False
        name, table = member.group, self._topics
        for topic, queues in topics:
            if admission.changed or table.get(topic, name) is None:
                table.put(topic, name, queues.without_write() if admission.read_only else queues)
        return True

    def unregister(
        self, cluster: str, group: str, address: str, *, opened: int | None = None
    ) -> MinBrokerIdChange | None:
        """Forget one broker; unknown brokers are ignored.

        Args:
            opened: the number of the request's connection; a request over a connection older than that of the
                last registration comes from an earlier run of the broker (NR-16).
        """
        member = self._members.get((cluster, address))
        if member is None or member.group != group or (opened is not None and opened < member.opened):
            return None
        return self._remove(member)

    def connection_closed(self, connection: Hashable) -> tuple[list[Member], list[MinBrokerIdChange]]:
        """Forget every broker that registered last through ``connection`` (HB-08)."""
        return self._remove_all([m for m in self._members.values() if m.connection is connection])

    def expire(self, now_ms: int) -> tuple[list[Member], list[MinBrokerIdChange]]:
        """Forget the brokers whose last sign of life is older than their timeout (HB-06)."""
        return self._remove_all([m for m in self._members.values() if m.last_seen_ms + m.timeout_ms < now_ms])

    def next_expiry_ms(self) -> int | None:
        """When the first broker expires unless it gives a sign of life; ``None`` without brokers."""
        return min((m.last_seen_ms + m.timeout_ms + 1 for m in self._members.values()), default=None)

    def touch(self, cluster: str, address: str, now_ms: int) -> bool:
        """Note a sign of life of a broker; False when the broker is not registered (HB-04)."""
        member = self._members.get((cluster, address))
        if member is None:
            return False
        member.last_seen_ms = now_ms
        return True

    def silent_ms(self, group: str, now_ms: int) -> int | None:
        """How long ago a broker that has left the group gave its last sign of life."""
        found = self._groups.get(group)
        return None if found is None else max(0, now_ms - found.heard_ms)

    def version_of(self, cluster: str, address: str) -> DataVersion | None:
        """The version of the topics that this broker reported last."""
        member = self._members.get((cluster, address))
        return None if member is None else member.version

    def _remove_all(self, members: list[Member]) -> tuple[list[Member], list[MinBrokerIdChange]]:
        return members, [change for member in members if (change := self._remove(member)) is not None]

    def _remove(self, member: Member) -> MinBrokerIdChange | None:
        del self._members[member.cluster, member.address]
        group = self._groups[member.group]
        was_min = member.broker_id == group.min_id
        del group.members[member.broker_id]
        group.left(member)
        if not group.members:
            del self._groups[group.name]
            self._wiping.pop(group.name, None)
            self._leaving[group.name] = None
            self._forget_mappings(group.name)
            return None
        self._wipe_without_master(group)
        if was_min and group.acting_master:
            return min_change(group, offline=member.address, ha_address=None)
        return None

    def _wipe_without_master(self, group: BrokerGroup) -> None:
        """Make the topics of a group that lost its master not writable, in acting mode (NR-07)."""
        if group.acting_master and group.members and group.min_id > MASTER_ID:
            self._wiping[group.name] = None

    def _forget_mappings(self, group: str) -> None:
        for topic in [t for t, by_group in self._mappings.items() if group in by_group]:
            del self._mappings[topic][group]
            if not self._mappings[topic]:
                del self._mappings[topic]

    # ---- topics

    def register_topic(self, topic: str, queues: Mapping[str, GroupQueues]) -> list[str]:
        """Add queues of ``topic`` by group. All or nothing: returns the groups that are not alive."""
        unknown = sorted(group for group in queues if group not in self._groups)
        if not unknown:
            if not self._wiping.keys().isdisjoint(queues):
                self.settle()
            for group, value in queues.items():
                self._topics.put(topic, group, value)
        return unknown

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget ``topic`` everywhere or in one cluster. The next report of a broker that still has it brings
        it back."""
        for name in self._topics.groups(topic):
            group = self._groups.get(name)
            if group is not None and (not cluster or group.cluster == cluster):
                group.deletions += 1
                self._topics.remove(topic, name)

    def topics_of_cluster(self, cluster: str) -> list[str]:
        return self.topics.topics_of(g.name for g in self._groups.values() if g.cluster == cluster)

    def unit_topics(self) -> list[str]:
        return self.topics.with_flags(has=TOPIC_FLAG_UNIT)

    def unit_sub_topics(self) -> list[str]:
        return self.topics.with_flags(has=TOPIC_FLAG_UNIT_SUB)

    def unit_sub_ununit_topics(self) -> list[str]:
        return self.topics.with_flags(has=TOPIC_FLAG_UNIT_SUB, lacks=TOPIC_FLAG_UNIT)

    # ---- questions

    def route(
        self, topic: str, *, acting_master: bool = False, zone: str | None = None
    ) -> TopicRouteData | None:
        """Where the queues of ``topic`` are; None when no live broker has it.

        Args:
            acting_master: show the lowest slave as master where there is none (NR-08).
            zone: leave out groups of other zones that have a master (ZoneRouteRPCHook).
        """
        queues = self._live_groups(topic)
        if not queues:
            return None
        if zone:
            queues = {name: q for name, q in queues.items() if self._in_zone(self._groups[name], zone)}
        rewrite = acting_master and not topic.startswith(SYNC_MEMBER_TOPIC_PREFIX)
        return TopicRouteData(
            queue_datas=[
                QueueData(
                    broker_name=name,
                    read_queue_nums=q.read_queues,
                    write_queue_nums=q.write_queues,
                    perm=q.perm,
                    topic_sys_flag=q.sys_flag,
                )
                for name, q in sorted(queues.items())
            ],
            broker_datas=[
                self._broker_data(self._groups[name], rewrite and not q.writable)
                for name, q in sorted(queues.items())
            ],
            filter_server_table={
                member.address: list(member.filter_servers)
                for name in queues
                for member in self._groups[name].members.values()
                if member.filter_servers
            },
            topic_queue_mapping_by_broker=dict(self._mappings[topic]) if topic in self._mappings else None,
        )

    def _live_groups(self, topic: str) -> dict[str, GroupQueues]:
        return {
            name: queues.without_write() if name in self._wiping else queues
            for name, queues in self._topics.groups(topic).items()
            if name in self._groups
        }

    @staticmethod
    def _in_zone(group: BrokerGroup, zone: str) -> bool:
        return MASTER_ID not in group.members or (group.zone or "").lower() == zone.lower()

    @staticmethod
    def _broker_data(group: BrokerGroup, rewrite: bool) -> BrokerData:
        addresses = {broker_id: m.address for broker_id, m in sorted(group.members.items())}
        if rewrite and group.acting_master and MASTER_ID not in addresses:
            addresses[MASTER_ID] = addresses.pop(group.min_id)
        return BrokerData(
            cluster=group.cluster,
            broker_name=group.name,
            broker_addrs=addresses,
            zone_name=group.zone,
            enable_acting_master=group.acting_master,
        )

    def cluster_info(self) -> ClusterInfo:
        """Every live broker with its real id, and the groups of every cluster."""
        clusters: dict[str, set[str]] = {}
        for name, group in sorted(self._groups.items()):
            clusters.setdefault(group.cluster, set()).add(name)
        return ClusterInfo(
            broker_addr_table={n: self._broker_data(g, False) for n, g in sorted(self._groups.items())},
            cluster_addr_table=clusters,
        )

    def member_addresses(self, group: str) -> dict[int, str]:
        """Addresses of a group by real broker id (NR-10); empty when it is not alive."""
        found = self._groups.get(group)
        return {} if found is None else {i: m.address for i, m in sorted(found.members.items())}

    def clusters(self) -> set[str]:
        """The names of the clusters of the live brokers."""
        return {group.cluster for group in self._groups.values()}

    def cluster_of(self, group: str) -> str | None:
        """The cluster of a broker name; None when no broker of that name is alive."""
        found = self._groups.get(group)
        return None if found is None else found.cluster

    def members(self) -> Iterable[Member]:
        """Every live broker."""
        return list(self._members.values())
