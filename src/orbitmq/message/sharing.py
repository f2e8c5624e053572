"""How members of a group share the queues of a topic, as far as both clients and brokers compute it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orbitmq.message.model import MessageQueue

Allocation = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]


def average(client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> list[MessageQueue]:
    """Neighbouring queues in shares that differ by at most one (AllocateMessageQueueAveragely).

    Args:
        client_id: the member whose share is returned.
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
