"""Java's string hash and the tag code that consume queues filter by."""

from __future__ import annotations

from functools import lru_cache

_MASK = 0xFFFFFFFF
_SIGN = 0x80000000


def java_hash(text: str) -> int:
    """Java's ``String.hashCode``: over UTF-16 units, as a signed 32 bit number."""
    value = 0
    if text.isascii():
        for unit in text.encode("ascii"):
            value = (value * 31 + unit) & _MASK
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for position in range(0, len(units), 2):
            value = (value * 31 + (units[position] << 8 | units[position + 1])) & _MASK
    return (value ^ _SIGN) - _SIGN


# Few tags, many messages: a topic's tags repeat, so the hash is remembered.
_cached_hash = lru_cache(maxsize=8192)(java_hash)


def tags_code(tags: str | None) -> int:
    """The tag code of a consume queue entry: the hash of TAGS, 0 when there are none.

    A long tag is hashed but not remembered, so that the memory of the cache stays bounded.
    """
    if not tags:
        return 0
    return _cached_hash(tags) if len(tags) <= 128 else java_hash(tags)
