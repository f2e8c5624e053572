"""Filters for the messages that a read of a queue returns."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from orbitmq.store.queues.layout import ALL_CODES, BY_PROPERTIES


class MessageFilter:
    """Which messages a read returns (MessageFilter); built once, used for every read.

    It filters by tags codes, which consume queue entries hold, so that records of filtered messages are
    not touched; or by properties, with the program of an SQL92 expression that runs over the record in
    the log.

    Attributes:
        codes: the argument of the compiled search: the sorted tags codes and a 0 behind them (an empty array
            has no address), or a program.
        count: how many tags codes there are, ``ALL_CODES`` when all messages pass, ``BY_PROPERTIES`` for a
            program.
    """

    __slots__ = ("codes", "count")

    def __init__(self, tag_codes: Iterable[int] | None = None, *, program: array[int] | None = None) -> None:
        if program is not None:
            self.codes = program
            self.count = BY_PROPERTIES
        else:
            wanted = sorted(set(tag_codes or ()))
            self.codes = array("q", [*wanted, 0])
            self.count = ALL_CODES if tag_codes is None else len(wanted)

    @property
    def passes_all(self) -> bool:
        """Whether every message passes."""
        return self.count == ALL_CODES

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageFilter) and self.count == other.count and self.codes == other.codes

    def __hash__(self) -> int:
        return hash((self.count, bytes(self.codes)))

    def __repr__(self) -> str:
        if self.count == BY_PROPERTIES:
            return "MessageFilter(program=...)"
        return "MessageFilter()" if self.passes_all else f"MessageFilter({list(self.codes[:-1])})"


PASS_ALL = MessageFilter()
