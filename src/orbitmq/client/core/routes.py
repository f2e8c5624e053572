"""The known routes, and the time at which each has to be refreshed. No I/O: times are passed in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from orbitmq.client.core.routing import TopicRoute
from orbitmq.wire.codes import ResponseCode

REFRESH_MS = 30_000
# Shortest time between refreshes of a topic that senders request after a dead address or a stale answer.
EAGER_INTERVAL_MS = 200
# Interval of refreshes while a broker of the route is missing or not writable...
WATCH_INTERVAL_MS = 500
# ...for at most this long after the broker left; then the normal interval is enough.
WATCH_FOR_MS = 600_000
# How long a route is refreshed every WATCH_INTERVAL_MS after a dead address or a stale answer.
SUSPECT_FOR_MS = 30_000
# How long a changed route is refreshed every WATCH_INTERVAL_MS: a new topic appears broker by broker, and
# consumers need all its queues.
YOUNG_FOR_MS = 10_000

# The topic has fewer queues than the route says: INVALID_PARAMETER.
FEWER_QUEUES_CODES = frozenset({int(ResponseCode.INVALID_PARAMETER)})
# Codes of an outdated route: SERVICE_NOT_AVAILABLE, NO_PERMISSION, TOPIC_NOT_EXIST, and SYSTEM_ERROR, with
# which brokers of 4.x refuse a queue that was removed.
STALE_CODES = frozenset({1, 14, 16, 17}) | FEWER_QUEUES_CODES


# A broker's name, and whether it is writable: an acting master has the master's place in the route, without
# its write permission (row NR-11).
_Use: TypeAlias = tuple[str, bool]


@dataclass(slots=True)
class _Entry:
    route: TopicRoute | None = None
    asked_ms: float = float("-inf")
    missing: dict[_Use, float] = field(default_factory=dict)
    suspected_ms: float = float("-inf")
    changed_ms: float = float("-inf")
    stale: bool = False


class RouteCache:
    """The routes of the topics in use, with the times of their next refreshes.

    Args:
        refresh_ms: age at which a route is refreshed (RT-05).
    """

    def __init__(self, refresh_ms: float = REFRESH_MS) -> None:
        self._refresh_ms = refresh_ms
        self._entries: dict[str, _Entry] = {}

    def watch(self, topic: str) -> None:
        """Keep this topic's route fresh from here on."""
        self._entries.setdefault(topic, _Entry())

    def topics(self) -> list[str]:
        return list(self._entries)

    def get(self, topic: str) -> TopicRoute | None:
        """The last known route, however old (RT-01)."""
        entry = self._entries.get(topic)
        return entry.route if entry is not None else None

    def put(self, topic: str, route: TopicRoute, now_ms: float) -> bool:
        """Store an answer; True if it differs from the known route (RT-15)."""
        entry = self._entries.setdefault(topic, _Entry())
        entry.asked_ms = now_ms
        before = entry.route
        usable = _uses(route)
        # A default route names brokers that may never have the topic: a missing one counts only if a broker
        # has just failed.
        failing = now_ms < entry.suspected_ms + SUSPECT_FOR_MS
        if before is not None and not route.from_default and (failing or not before.from_default):
            for lost in _uses(before) - usable:
                entry.missing.setdefault(lost, now_ms)
        for use in usable:
            entry.missing.pop(use, None)
        if route.same_as(before):
            return False
        entry.route = route
        # A producer keeps the default route of a new topic for its regular time: that spreads the topic
        # (RT-10).
        if not route.from_default:
            entry.changed_ms = now_ms
        return True

    def asked(self, topic: str, now_ms: float) -> None:
        """Note a request for a route, answered or not."""
        entry = self._entries.setdefault(topic, _Entry())
        entry.asked_ms = now_ms
        entry.stale = False

    def forget(self, topic: str) -> None:
        self._entries.pop(topic, None)

    def suspect(self, topic: str, now_ms: float) -> bool:
        """Note a dead address or a stale answer; True if the caller has to refresh now.

        For a while the topic is then refreshed twice a second, to find a change of master that the name
        server learns a moment later.
        """
        entry = self._entries.setdefault(topic, _Entry())
        entry.suspected_ms = now_ms
        entry.stale = True
        return now_ms - entry.asked_ms >= EAGER_INTERVAL_MS

    def ask_soon(self, topic: str) -> None:
        """Mark a route as out of date: it is refreshed once."""
        entry = self._entries.get(topic)
        if entry is not None:
            entry.stale = True

    def due(self, now_ms: float) -> list[str]:
        """The topics to refresh now."""
        return [topic for topic, entry in self._entries.items() if now_ms >= self._next_ms(entry, now_ms)]

    def next_due_ms(self, now_ms: float) -> float:
        """The time of the next refresh; infinity without topics."""
        return min((self._next_ms(entry, now_ms) for entry in self._entries.values()), default=float("inf"))

    def _next_ms(self, entry: _Entry, now_ms: float) -> float:
        entry.missing = {
            name: since for name, since in entry.missing.items() if now_ms - since < WATCH_FOR_MS
        }
        if entry.stale:
            return entry.asked_ms + EAGER_INTERVAL_MS
        watched = (
            entry.missing
            or entry.route is None
            or now_ms < entry.suspected_ms + SUSPECT_FOR_MS
            or now_ms < entry.changed_ms + YOUNG_FOR_MS
        )
        return entry.asked_ms + (WATCH_INTERVAL_MS if watched else self._refresh_ms)


def _uses(route: TopicRoute) -> set[_Use]:
    """The usable brokers: (name, False) for each broker with a master, (name, True) for each writable one."""
    masters = {(broker.broker_name, False) for broker in route.brokers if route.master(broker.broker_name)}
    return masters | {(name, True) for name in route.write_queues}
