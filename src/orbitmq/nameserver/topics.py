"""Topic -> broker group -> queues: the half of the route table that brokers report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from orbitmq.message.reserved import PERM_READ, PERM_WRITE


class GroupQueues(msgspec.Struct, frozen=True, gc=False):
    """The queues that one broker group has for one topic.

    The garbage collector does not track these objects: otherwise it would visit millions of them.

    Attributes:
        perm: bits: inherit 1, write 2, read 4.
        sys_flag: bits: unit 1, has unit subscription 2.
    """

    read_queues: int
    write_queues: int
    perm: int
    sys_flag: int = 0

    @property
    def writable(self) -> bool:
        return self.perm & PERM_WRITE != 0

    def without_write(self) -> GroupQueues:
        return replace(self, perm=self.perm & ~PERM_WRITE)


@lru_cache(4096)
def shared_queues(read_queues: int, write_queues: int, perm: int, sys_flag: int) -> GroupQueues:
    """One object for all topics with equal queues, since there may be millions of topics."""
    return GroupQueues(read_queues, write_queues, perm, sys_flag)


class TopicTable:
    """Queues of every topic by broker group. A topic without any group does not stay in the table."""

    def __init__(self) -> None:
        self._groups_by_topic: dict[str, dict[str, GroupQueues]] = {}

    def __contains__(self, topic: str) -> bool:
        return topic in self._groups_by_topic

    def __len__(self) -> int:
        return len(self._groups_by_topic)

    def names(self) -> list[str]:
        return sorted(self._groups_by_topic)

    def groups(self, topic: str) -> dict[str, GroupQueues]:
        """Broker groups of ``topic``; empty when the topic is unknown."""
        return dict(self._groups_by_topic.get(topic, {}))

    def get(self, topic: str, group: str) -> GroupQueues | None:
        return self._groups_by_topic.get(topic, {}).get(group)

    def put(self, topic: str, group: str, queues: GroupQueues) -> None:
        self._groups_by_topic.setdefault(topic, {})[group] = queues

    def remove(self, topic: str, group: str) -> None:
        groups = self._groups_by_topic.get(topic)
        if groups is None:
            return
        groups.pop(group, None)
        if not groups:
            del self._groups_by_topic[topic]

    def all_names(self) -> list[str]:
        """Every topic, in no order."""
        return list(self._groups_by_topic)

    def wipe_write_of(self, topic: str, group: str) -> None:
        """Take the write bit from one topic of ``group``."""
        queues = self.get(topic, group)
        if queues is not None:
            self._groups_by_topic[topic][group] = queues.without_write()

    def topics_of(self, groups: Iterable[str]) -> list[str]:
        """Topics that have queues on any of ``groups``, sorted."""
        wanted = set(groups)
        return sorted(
            topic for topic, by_group in self._groups_by_topic.items() if not wanted.isdisjoint(by_group)
        )

    def wipe_write(self, group: str) -> int:
        """Take the write bit from every topic of ``group``; returns how many topics the group has."""
        return self._change(group, lambda queues: queues.without_write())

    def grant_read_write(self, group: str) -> int:
        """Set the permission of every topic of ``group`` to exactly read and write.

        RocketMQ does not remember the bits from before they were wiped (RouteInfoManager).
        """
        return self._change(group, lambda queues: replace(queues, perm=PERM_READ | PERM_WRITE))

    def with_flags(self, *, has: int, lacks: int = 0) -> list[str]:
        """Topics whose system flag (of their first group) has all bits ``has`` and none of ``lacks``."""
        found = []
        for topic, by_group in self._groups_by_topic.items():
            flag = next(iter(by_group.values())).sys_flag
            if flag & has == has and flag & lacks == 0:
                found.append(topic)
        return sorted(found)

    def items(self) -> Iterator[tuple[str, str, GroupQueues]]:
        for topic, by_group in self._groups_by_topic.items():
            for group, queues in by_group.items():
                yield topic, group, queues

    def _change(self, group: str, change: Callable[[GroupQueues], GroupQueues]) -> int:
        count = 0
        for by_group in self._groups_by_topic.values():
            queues = by_group.get(group)
            if queues is not None:
                by_group[group] = change(queues)
                count += 1
        return count
