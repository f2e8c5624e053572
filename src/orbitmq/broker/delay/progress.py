"""How far each delay level was delivered: ``config/delayOffset.json``, and its changes on the feed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from orbitmq.broker.change_feed import DELAYS, ChangeFeed, FedTable
from orbitmq.broker.delay.levels import MAX_LEVELS
from orbitmq.broker.metadata.pretty import body_text, file_text, pretty_value
from orbitmq.runtime.seam import Clock
from orbitmq.wire.bodies.topic import DataVersion

_AHEAD = "aheadTable"
# How many deliveries of a level are noted ahead of its progress; further ones are repeated (ES-14).
MAX_AHEAD = 1000


@dataclass(frozen=True, slots=True)
class LevelProgress:
    """How far a level was delivered.

    Attributes:
        offset: in the level's queue; all messages before it were delivered.
        log_offset: deliveries of later messages are behind this place of the log; 0: unknown.
        ahead: messages from ``offset`` on that are delivered already: another master took them while it
            refused an earlier message. At most :data:`MAX_AHEAD`.
    """

    offset: int = 0
    log_offset: int = 0
    ahead: tuple[int, ...] = ()

    def at(self, offset: int, log_offset: int) -> LevelProgress:
        """The progress with this offset; messages delivered ahead of it stay noted."""
        return LevelProgress(offset, log_offset, _from(offset, self.ahead) if self.ahead else ())

    def with_ahead(self, more: Iterable[int]) -> LevelProgress:
        """The progress with these messages delivered ahead, too."""
        known = {*self.ahead, *more}
        return replace(self, ahead=_from(self.offset, known)) if known else self

    def without(self, lost: Collection[int]) -> LevelProgress:
        """The progress without these lost deliveries; other messages after the first lost one stay noted."""
        first = min([self.offset, *lost])
        others = islice((each for each in range(first, self.offset) if each not in lost), MAX_AHEAD)
        ahead = {*self.ahead, *others}.difference(lost)
        return replace(self, offset=first, ahead=_from(first, ahead))

    def cut(self, end: int) -> LevelProgress:
        """The progress after the level's queue was cut at ``end``: messages stored there later are new."""
        ahead = tuple(offset for offset in self.ahead if offset < end)
        return replace(self, offset=min(self.offset, end), ahead=ahead)

    def plain(self) -> list[Any]:
        """The progress as a value of the change feed."""
        pair: list[Any] = [self.offset, self.log_offset]
        return [*pair, list(self.ahead)] if self.ahead else pair


class DelayProgress:
    """The progress of all levels.

    Levels that this broker's messageDelayLevel lacks keep the progress from another broker's table or an
    earlier run: if the levels come back, their messages must not be delivered again.

    Args:
        levels: how many levels there are; their numbers begin with 1.
        version_step: the table's version goes up once in this many changes (delayOffsetUpdateVersionStep).
    """

    def __init__(self, clock: Clock, levels: int, feed: ChangeFeed, version_step: int = 1) -> None:
        self._clock = clock
        self._feed = feed
        self._changes = 0
        self.version_step = version_step
        self._places = {level: LevelProgress() for level in range(1, levels + 1)}
        self.version = DataVersion(state_version=0, timestamp=clock.now_ms(), counter=0)
        feed.register(
            DELAYS,
            FedTable(
                LevelProgress.plain,
                self._apply,
                self,
                lambda: [(str(level), place) for level, place in self._places.items()],
                self._is_news,
                restore=self._restore,
            ),
        )

    def place(self, level: int) -> LevelProgress:
        """How far this level was delivered."""
        return self._places[level]

    @property
    def levels(self) -> list[int]:
        """The numbers of all levels whose progress is known."""
        return sorted(self._places)

    def table(self) -> dict[int, int]:
        """The offset of each level, as RocketMQ's ``offsetTable`` has it."""
        return {level: place.offset for level, place in self._places.items()}

    def move(self, level: int, place: LevelProgress) -> None:
        """Note the progress of a level."""
        self._places[level] = place
        self._changes += 1
        if self._changes % self.version_step == 0:
            self.version = self.version.next(self._clock.now_ms())
        self._feed.changed(DELAYS, str(level), place)

    def cut(self, level: int, end: int, log_end: int) -> None:
        """Set back a level whose queue and log were cut at these ends: messages stored there are new."""
        place = self._places[level].cut(end)
        self.take_back(level, replace(place, log_offset=min(place.log_offset, log_end)))

    def take_back(self, level: int, place: LevelProgress) -> None:
        """Set a progress back. The version stays the same: the progress is not newer than a master's."""
        self._places[level] = place
        self._feed.changed(DELAYS, str(level), place)

    def _apply(self, key: str, value: list[Any] | int | None) -> None:
        """Take over the progress of another broker."""
        level = _level(key)
        known, told = self._known(level), _place(value)
        if told.ahead and told.offset < known.offset:
            # Each broker may have delivered messages that the other has not: all of them are done.
            told = known.with_ahead(told.ahead)
        elif not isinstance(value, list):
            # RocketMQ's table has the offset only.
            told = told.with_ahead(known.ahead)
        self.move(level, told)

    def _restore(self, key: str, value: list[Any] | int | None) -> None:
        """Set the progress of an earlier run; deliveries that were taken back stay taken back."""
        self.move(_level(key), _place(value))

    def _known(self, level: int) -> LevelProgress:
        return self._places.get(level, LevelProgress())

    def _is_news(self, key: str, value: list[Any] | int | None) -> bool:
        """Whether another broker's progress has deliveries that this one lacks: both deliver from one log."""
        known, told = self._known(_level(key)), _place(value)
        return told.offset > known.offset or not set(_from(known.offset, told.ahead)) <= set(known.ahead)

    # -- on disk ---------------------------------------------------------------------------------------

    def file_text(self) -> Iterator[str]:
        """``delayOffset.json``, piece by piece, with OrbitMQ's table of messages delivered ahead, if any."""
        parts = [
            ("dataVersion", body_text(self.version, "\n\t")),
            ("offsetTable", pretty_value(self.table(), "\n\t")),
        ]
        # With keys that are texts: RocketMQ 5.5.0 cannot skip a table whose keys are bare numbers.
        ahead = {str(level): list(place.ahead) for level, place in self._places.items() if place.ahead}
        if ahead:
            parts.append((_AHEAD, pretty_value(ahead, "\n\t")))
        return file_text(parts)

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``delayOffset.json``."""
        ahead = content.get(_AHEAD) or {}
        for number, offset in (content.get("offsetTable") or {}).items():
            if 0 < int(number) <= MAX_LEVELS:
                self._places[int(number)] = LevelProgress(int(offset)).with_ahead(
                    map(int, ahead.get(number, ()))
                )
        if content.get("dataVersion"):
            self.version = DataVersion.from_json(content["dataVersion"])


def _level(key: str) -> int:
    level = int(key)
    if not 0 < level <= MAX_LEVELS:
        raise ValueError(f"there is no delay level {level}")
    return level


def _place(value: list[Any] | int | None) -> LevelProgress:
    offset, log_offset, *more = value if isinstance(value, list) else (value or 0, 0)
    return LevelProgress(int(offset), int(log_offset)).with_ahead(map(int, more[0] if more else ()))


def _from(offset: int, ahead: Iterable[int]) -> tuple[int, ...]:
    """The offsets of ``ahead`` from ``offset`` on, ascending, at most :data:`MAX_AHEAD`."""
    return tuple(sorted(each for each in ahead if each >= offset)[:MAX_AHEAD])
