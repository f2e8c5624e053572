"""Measures for how long followers have been behind, and shows administrators roles and followers."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Mapping

import msgspec

from orbitmq.broker.component import Component
from orbitmq.broker.role import RoleState
from orbitmq.replication.replicas import Replicas
from orbitmq.runtime.seam import Clock
from orbitmq.store.ports import CopiedLog

# Writes within this many seconds count as one write, made at the first of them.
SAMPLE_S = 0.1
# Ten minutes of writes without a pause; a follower further behind is shown as ten minutes behind.
MAX_SAMPLES = 6000


class LagClock:
    """Measures since when the log has been longer than a given place. Pure."""

    def __init__(self) -> None:
        self._samples: deque[tuple[int, float]] = deque(maxlen=MAX_SAMPLES)

    def sample(self, end: int, now_s: float) -> None:
        """Note that the log ends at ``end`` now."""
        if not self._samples:
            self._samples.append((end, now_s))
            return
        last_end, last_s = self._samples[-1]
        if end < last_end:
            self._samples.clear()  # the log was cut
            self._samples.append((end, now_s))
        elif end > last_end and now_s - last_s < SAMPLE_S:
            self._samples[-1] = end, last_s
        elif end > last_end:
            self._samples.append((end, now_s))

    def behind_s(self, received: int, now_s: float) -> float:
        """For how long a follower that has everything below ``received`` has been behind; 0: it is not."""
        at = bisect_right(self._samples, received, key=lambda sample: sample[0])
        return now_s - self._samples[at][1] if at < len(self._samples) else 0.0

    def grew_s(self, place: int, now_s: float) -> float:
        """When the log was first seen longer than ``place``; ``now_s`` if it was not seen yet."""
        at = bisect_right(self._samples, place, key=lambda sample: sample[0])
        return min(now_s, self._samples[at][1] + SAMPLE_S) if at < len(self._samples) else now_s


class ReplicationLines(Component):
    """The lines of brokerStatus about roles and followers. ``orbitmq cluster list`` shows them.

    Args:
        term: gives the state version of the tables.
    """

    name = "lag of followers"

    def __init__(
        self,
        clock: Clock,
        role: RoleState,
        store: CopiedLog,
        replicas: Replicas,
        lag: LagClock,
        term: Callable[[], int],
    ) -> None:
        self._clock = clock
        self._role = role
        self._store = store
        self._replicas = replicas
        self._term = term
        self._lag = lag

    async def stop(self) -> None:
        self._store.off_written(self._sample)

    def _sample(self) -> None:
        self._lag.sample(self._store.max_commit_log_offset, self._clock.monotonic())

    def begin(self) -> None:
        """Note the time of each write from now on, since a follower has connected; a lone broker does not."""
        self._sample()
        self._store.on_written(self._sample)

    def lines(self) -> Mapping[str, str]:
        """The lines by RocketMQ's names; followers as JSON by broker id, else by address."""
        now, end = self._clock.monotonic(), self._store.max_commit_log_offset
        self._lag.sample(end, now)
        self._replicas.judge(now)
        followers = {
            str(state.replica): {
                "behindBytes": end - max(state.received, 0),
                "behindMs": round(1000 * self._lag.behind_s(state.received, now)),
                "inSync": state.in_sync,
                "silentMs": round(1000 * state.silent_s),
            }
            for state in self._replicas.states.values()
        }
        return {
            "brokerRoleNow": self._role.role.value,
            "brokerRoleSince": str(self._role.since_ms),
            "brokerTerm": str(self._term()),
            "followers": msgspec.json.encode(followers).decode(),
        }
