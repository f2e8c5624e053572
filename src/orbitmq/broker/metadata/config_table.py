"""The common part of the tables of topics and of subscription groups: configs by name, versions, events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Generic, TypeVar

from orbitmq.broker.change_feed import ChangeFeed, FedTable
from orbitmq.broker.metadata.pretty import body_text, quoted
from orbitmq.runtime.seam import Clock
from orbitmq.wire.bodies.base import Body
from orbitmq.wire.bodies.topic import DataVersion

C = TypeVar("C", bound=Body)


class ConfigTable(ABC, Generic[C]):
    """Configs by name. Returned configs are the table's own objects: do not change one, replace it.

    Every change gives the table a new version, passes the change feed and is then published as an event.

    Args:
        table: the change feed's name of this table.
        kind: the class of its configs.
    """

    def __init__(self, clock: Clock, feed: ChangeFeed, table: str, kind: type[C]) -> None:
        self._clock = clock
        self._feed = feed
        self._name = table
        self._kind = kind
        self._table: dict[str, C] = {}
        self.version = DataVersion(state_version=0, timestamp=clock.now_ms(), counter=0)
        feed.register(table, FedTable(kind.to_plain, self._apply, self, lambda: list(self._table.items())))

    def get(self, name: str) -> C | None:
        """The config; ``None``: there is no such config. Nothing is created."""
        return self._table.get(name)

    def __contains__(self, name: str) -> bool:
        return name in self._table

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[C]:
        return iter(list(self._table.values()))

    def page(self, version: DataVersion | None, first: int, count: int) -> dict[str, C]:
        """``count`` configs by name from number ``first`` on; from the start if ``version`` is old.

        They come in the order of their creation, which stays the same as long as the version does.
        """
        if version != self.version:
            first = 0
        return dict(islice(self._table.items(), first, first + count))

    def delete(self, name: str) -> bool:
        """Forget a config; ``False`` when there was no such config."""
        if self._table.pop(name, None) is None:
            return False
        self._changed(name, None)
        return True

    def touch(self) -> None:
        """Give the table a new version without a change of a config, for a changed broker permission."""
        self.version = self.version.next(self._clock.now_ms())

    def _put(self, name: str, config: C) -> None:
        self._table[name] = config
        self._changed(name, config)

    def _changed(self, name: str, config: C | None) -> None:
        self.touch()
        self._feed.changed(self._name, name, config)
        self._publish_change(name, config)

    @abstractmethod
    def _publish_change(self, name: str, config: C | None) -> None:
        """Publish the event of a change."""

    def _apply(self, name: str, plain: dict[str, Any] | None) -> None:
        if plain is None:
            # Other data of a config comes in changes of its own.
            ConfigTable.delete(self, name)
        else:
            self._put(name, self._kind.from_json(plain))

    # -- on disk ---------------------------------------------------------------------------------------

    def _entries(self) -> Iterator[tuple[str, str]]:
        """Name and text of each config in the table's file; the table may change meanwhile."""
        for name in list(self._table):
            config = self._table.get(name)
            if config is not None:
                yield quoted(name), body_text(config, "\n\t\t")

    def _restore(self, table: Mapping[str, Any] | None, version: Any) -> None:
        """Take over configs from the table's file: that is no change, so no event is published."""
        for name, plain in (table or {}).items():
            self._table[name] = self._kind.from_json(plain)
        if version:
            self.version = DataVersion.from_json(version)
