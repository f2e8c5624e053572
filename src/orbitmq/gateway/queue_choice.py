"""Chooses the queue of a message group as Apache's proxy does. Pure."""

from __future__ import annotations

from orbitmq.message.tags import java_hash

_MASK = (1 << 64) - 1
_FACTOR = 2862933555777941757


def queue_of(group: str, queues: int) -> int:
    """The queue of a message group among 0 to ``queues`` - 1; there is at least one."""
    return bucket(java_hash(group), queues)


def bucket(number: int, buckets: int) -> int:
    """The jump hash of a number, with Guava's generator. A new bucket changes the buckets of few numbers."""
    state = number & _MASK
    chosen = 0
    while True:
        state = (state * _FACTOR + 1) & _MASK
        part = _int32((state >> 33) + 1) / (1 << 31)
        following = int((chosen + 1) / part)
        if not 0 <= following < buckets:
            return chosen
        chosen = following


def _int32(value: int) -> int:
    """The low 32 bits as Java's int."""
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000
