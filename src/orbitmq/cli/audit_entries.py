"""The entries of servers' audit logs, for people and programs: one entry for each change or refusal.

A server writes two lines for a change, before and after it; this module joins them to one entry. Pure
functions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from orbitmq.durations import datetime, since_1970_ms
from orbitmq.wording import counted

# More changes than a server makes at a time: an older change has no second line because its server was
# killed.
MOST_OPEN: Final = 1000
# Most differences shown of one change; JSON shows all.
MOST_SHOWN: Final = 8
PERMITTED, MADE, FAILED, REFUSED = "permitted", "made", "failed", "refused"
UNKNOWN: Final = "outcome unknown"

Entry = Mapping[str, Any]


class DamagedLineError(ValueError):
    """A line is no entry of an audit log; the text gives the reason."""


def parsed(line: str) -> dict[str, Any]:
    """Parse one line of an audit log.

    Raises:
        DamagedLineError: the line is no entry.
    """
    try:
        found = json.loads(line)
    except ValueError as error:
        raise DamagedLineError("no JSON") from error
    if not isinstance(found, dict) or not isinstance(found.get("event"), str):
        raise DamagedLineError('no JSON object with "event"')
    try:
        at = datetime.fromisoformat(str(found.get("time")))
    except ValueError as error:
        raise DamagedLineError('"time" is no time') from error
    if at.tzinfo is None:
        raise DamagedLineError('"time" has no zone')
    return found


class Joined:
    """Joins the lines of one audit log, given in their order, to entries."""

    def __init__(self) -> None:
        self._open: dict[object, dict[str, Any]] = {}

    def add(self, line: dict[str, Any]) -> Iterator[Entry]:
        """The entries that this line completes."""
        if line["event"] == "start":
            yield from self.rest()  # after a start the server numbers its changes from 1 again
        if line["event"] != "change":
            yield line
            return
        first = self._open.pop(line.get("id"), None)
        if line.get("verdict") == PERMITTED:
            if first is not None:
                yield first
            while len(self._open) >= MOST_OPEN:
                yield self._open.pop(next(iter(self._open)))
            self._open[line.get("id")] = line
        else:
            # The second line has "before" only where it differs from the first line's.
            yield {**(first or {}), **line, "time": (first or line)["time"], "ended": line["time"]}

    def rest(self) -> Iterator[Entry]:
        """The changes without a second line."""
        found, self._open = self._open, {}
        yield from found.values()


@dataclass(frozen=True, slots=True)
class Wanted:
    """The filter for the entries to show.

    Attributes:
        since_ms, until_ms: entries that begin at ``since_ms`` or later and before ``until_ms``.
        user: changes by this user, and refusals of requests that claimed the name.
        target: the name of a topic, group, user or setting; with the kind, as in ``Topic:orders``, or
            without.
        verdicts: entries with one of these verdicts; empty for all.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    user: str | None = None
    target: str | None = None
    verdicts: frozenset[str] = frozenset()

    def __call__(self, entry: Entry) -> bool:
        at_ms = since_1970_ms(datetime.fromisoformat(entry["time"]))
        if (self.since_ms is not None and at_ms < self.since_ms) or (
            self.until_ms is not None and at_ms >= self.until_ms
        ):
            return False
        if self.user is not None and self.user not in (entry.get("user"), entry.get("claimed")):
            return False
        if self.target is not None and not any(
            self.target in (name, name.rpartition(":")[2]) for name in map(str, entry.get("target") or ())
        ):
            return False
        return not self.verdicts or entry.get("verdict") in self.verdicts


def in_words(entry: Entry) -> str:
    """An entry as a line for people. The line may contain control characters."""
    event = entry["event"]
    if event == "start":
        return f"{entry['time']}  started  pid {entry.get('pid', '?')}"
    verdict = UNKNOWN if event == "change" and entry.get("verdict") == PERMITTED else entry.get("verdict")
    begin = f"{entry['time']}  {verdict}"
    if event == "change":
        return (
            f"{begin}  {_who(entry, 'user')}  {entry.get('request') or entry.get('code')}  {_change(entry)}"
        )
    if event == "refusal":
        times = counted(entry.get("count", 1), "time")
        what = entry.get("request") or entry.get("code")
        return f"{begin}  {_who(entry, 'claimed')}  {what}  {times}: {entry.get('why', '')}"
    rest = {name: value for name, value in entry.items() if name not in ("time", "event", "verdict")}
    return f"{begin}  {event}  {json.dumps(rest)}"


def _who(entry: Entry, key: str) -> str:
    through = f" through {entry['through']}" if entry.get("through") else ""
    return f"{entry.get(key) or '(no user)'} at {entry.get('from', '?')}{through}"


def _change(entry: Entry) -> str:
    """The differences that a change made; for a failed change its fields and the reason."""
    before, after = entry.get("before"), entry.get("after")
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        what = _cut("; ".join, list(_differences(before, after))) or f"{_targets(entry)} as before"
    elif isinstance(fields := entry.get("fields"), Mapping):
        named = ", ".join(f"{key}={value}" for key, value in fields.items())
        what = f"{_targets(entry)} ({named})".strip()
    else:
        what = _targets(entry)
    return f"{what}: {entry.get('why', '')}" if entry.get("verdict") == FAILED else what


def _targets(entry: Entry) -> str:
    return _cut(", ".join, [str(name) for name in entry.get("target") or ()])


def _cut(join: Callable[[Iterable[str]], str], parts: list[str]) -> str:
    more = len(parts) - MOST_SHOWN
    return join([*parts[:MOST_SHOWN], f"{more} more"] if more > 0 else parts)


def _differences(before: Entry, after: Entry) -> Iterator[str]:
    """The differences of each target, in words."""
    for name in dict.fromkeys((*before, *after)):
        was, now = before.get(name), after.get(name)
        if was == now:
            continue
        if was is None:
            yield f"{name} made: {_short(now)}" if not isinstance(now, Mapping) else f"{name} made"
        elif now is None:
            yield f"{name} deleted"
        elif isinstance(was, Mapping) and isinstance(now, Mapping):
            keys = [key for key in dict.fromkeys((*was, *now)) if was.get(key) != now.get(key)]
            moves = [f"{key} {_short(was.get(key))} -> {_short(now.get(key))}" for key in keys]
            yield f"{name} {_cut(', '.join, moves)}"
        else:
            yield f"{name} {_short(was)} -> {_short(now)}"


def _short(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
