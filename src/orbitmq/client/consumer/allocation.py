"""Which queues of a topic belong to which member of a consumer group.

Every member computes the same answer from the same sorted lists, so no member needs to ask another.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Sequence

from orbitmq.message.model import MessageQueue

Allocation = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]


def average(client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    """Neighbouring queues in shares that differ by at most one (AllocateMessageQueueAveragely).

    Args:
        client_id: whose share is wanted.
        queues: all queues of the topic, sorted.
        members: all client ids of the group, sorted. A client that is not among them gets nothing.
    """
    if client_id not in members:
        return []
    share, rest = divmod(len(queues), len(members))
    index = members.index(client_id)
    start = index * share + min(index, rest)
    return list(queues[start : start + share + (1 if index < rest else 0)])


def average_by_circle(
    client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
) -> list[MessageQueue]:
    """Every n-th queue: a broker's queues spread over the members (AllocateMessageQueueAveragelyByCircle)."""
    if client_id not in members:
        return []
    return list(queues[members.index(client_id) :: len(members)])


def by_config(own: Sequence[MessageQueue]) -> Allocation:
    """A fixed list, whatever the others have (AllocateMessageQueueByConfig)."""
    fixed = list(own)

    def allocate(
        client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        existing = set(queues)
        return [queue for queue in fixed if queue in existing]

    return allocate


def consistent_hash(virtual_nodes: int = 10) -> Allocation:
    """Few queues move when a member comes or goes (AllocateMessageQueueConsistentHash, MD5 ring)."""

    def allocate(
        client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        if client_id not in members:
            return []
        ring = {
            _ring_hash(f"{member}-{replica}"): member
            for member in members
            for replica in range(virtual_nodes)
        }
        points = sorted(ring)

        def owner(queue: MessageQueue) -> str:
            topic, broker_name, queue_id = queue
            text = f"MessageQueue [topic={topic}, brokerName={broker_name}, queueId={queue_id}]"
            return ring[points[bisect_left(points, _ring_hash(text)) % len(points)]]

        return [queue for queue in queues if owner(queue) == client_id]

    return allocate


def _ring_hash(text: str) -> int:
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4])
