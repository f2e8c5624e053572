"""The error of a wrong SQL92 expression."""

from __future__ import annotations

from orbitmq.store.errors import StoreError

_SHOWN = 20


class SqlError(StoreError, ValueError):
    """An expression that cannot be used. The text names the place and the mistake there.

    Attributes:
        at: the first character of the mistake, counted from 0.
    """

    def __init__(self, expression: str, at: int, problem: str) -> None:
        at = max(0, min(at, len(expression)))
        line = expression.count("\n", 0, at) + 1
        column = at - (expression.rfind("\n", 0, at) + 1) + 1
        where = f"column {column}" if "\n" not in expression else f"line {line}, column {column}"
        near = expression[at : at + _SHOWN]
        place = f"near {near!r}" if near else "at the end"
        super().__init__(f"SQL92 expression, {where} ({place}): {problem}")
        self.at = at
