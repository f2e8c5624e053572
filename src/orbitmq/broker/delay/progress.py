"""How far each delay level was delivered: ``config/delayOffset.json``, and its changes on the feed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from orbitmq.broker.change_feed import DELAYS, ChangeFeed, FedTable
from orbitmq.broker.metadata.pretty import body_text, file_text, pretty_value
from orbitmq.runtime.seam import Clock
from orbitmq.wire.bodies.topic import DataVersion


@dataclass(frozen=True, slots=True)
class Place:
    """How far a level was delivered.

    Attributes:
        offset: in the level's queue; all messages before it were delivered.
        log_offset: deliveries of later messages lie behind this place of the log; 0: unknown.
    """

    offset: int = 0
    log_offset: int = 0


class DelayProgress:
    """The progress of all levels.

    Args:
        levels: how many there are; their numbers begin with 1.
        version_step: the table's version goes up once in so many changes (delayOffsetUpdateVersionStep).
    """

    def __init__(self, clock: Clock, levels: int, feed: ChangeFeed, version_step: int = 1) -> None:
        self._clock = clock
        self._feed = feed
        self._changes = 0
        self.version_step = version_step
        self._places = {level: Place() for level in range(1, levels + 1)}
        self.version = DataVersion(state_version=0, timestamp=clock.now_ms(), counter=0)
        feed.register(
            DELAYS,
            FedTable(
                lambda place: [place.offset, place.log_offset],
                self._apply,
                self,
                lambda: [(str(level), place) for level, place in self._places.items()],
                self._is_ahead,
            ),
        )

    def place(self, level: int) -> Place:
        """How far this level was delivered."""
        return self._places[level]

    def table(self) -> dict[int, int]:
        """The offset of each level, as RocketMQ's ``offsetTable`` has it."""
        return {level: place.offset for level, place in self._places.items()}

    def move(self, level: int, place: Place) -> None:
        """Note the progress of a level."""
        self._places[level] = place
        self._changes += 1
        if self._changes % self.version_step == 0:
            self.version = self.version.next(self._clock.now_ms())
        self._feed.changed(DELAYS, str(level), place)

    def cut(self, level: int, end: int, log_end: int) -> None:
        """A level's queue and the log were cut to these ends: what comes there is not delivered yet."""
        place = self._places[level]
        self._places[level] = Place(min(place.offset, end), min(place.log_offset, log_end))
        # With the version that it has: it is not newer than what its master knows.
        self._feed.changed(DELAYS, str(level), self._places[level])

    def _apply(self, key: str, value: list[int] | int | None) -> None:
        """Take over progress of another broker, or from a journal; older journals have the offset only."""
        level = int(key)
        if level not in self._places:
            raise ValueError(f"there is no delay level {level}")
        self.move(level, _place(value))

    def _is_ahead(self, key: str, value: list[int] | int | None) -> bool:
        """Two brokers of one name deliver out of one log: what either has delivered is done."""
        return _place(value).offset > self._places[int(key)].offset

    # -- on disk ---------------------------------------------------------------------------------------

    def file_text(self) -> Iterator[str]:
        """``delayOffset.json``, piece by piece."""
        version = body_text(self.version, "\n\t")
        return file_text([("dataVersion", version), ("offsetTable", pretty_value(self.table(), "\n\t"))])

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``delayOffset.json``."""
        for number, offset in (content.get("offsetTable") or {}).items():
            if int(number) in self._places:
                self._places[int(number)] = Place(int(offset))
        if content.get("dataVersion"):
            self.version = DataVersion.from_json(content["dataVersion"])


def _place(value: list[int] | int | None) -> Place:
    offset, log_offset = value if isinstance(value, list) else (value or 0, 0)
    return Place(int(offset), int(log_offset))
