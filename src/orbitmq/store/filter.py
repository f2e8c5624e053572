"""What a read of a queue lets pass."""

from __future__ import annotations

from array import array
from collections.abc import Iterable


class MessageFilter:
    """Which messages a read returns (MessageFilter); made once, used for every read.

    It filters by tags codes, which consume queue entries hold: no record is touched for a message that does
    not pass. A kind that looks at properties adds its own field here and its step to ``Reader.get``.

    Attributes:
        tag_codes: only messages with one of these tags codes pass; ``None``: all messages.
        codes: the same, sorted and with a number behind them, for the compiled search.
        count: how many of ``codes`` there are, below 0 when all messages pass.
    """

    __slots__ = ("codes", "count", "tag_codes")

    def __init__(self, tag_codes: Iterable[int] | None = None) -> None:
        self.tag_codes = None if tag_codes is None else frozenset(tag_codes)
        self.codes = array("q", [*sorted(self.tag_codes or ()), 0])
        self.count = -1 if self.tag_codes is None else len(self.tag_codes)

    @property
    def passes_all(self) -> bool:
        """Whether every message passes."""
        return self.tag_codes is None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MessageFilter) and self.tag_codes == other.tag_codes

    def __hash__(self) -> int:
        return hash(self.tag_codes)

    def __repr__(self) -> str:
        return "MessageFilter()" if self.tag_codes is None else f"MessageFilter({sorted(self.tag_codes)})"


PASS_ALL = MessageFilter()
