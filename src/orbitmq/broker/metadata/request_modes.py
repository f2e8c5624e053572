"""Whether the members of a group pull or pop a topic's messages (MessageRequestModeManager)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orbitmq.broker.change_feed import REQUEST_MODES, ChangeFeed, FedTable
from orbitmq.broker.events import Events, RequestModeSet
from orbitmq.broker.metadata.pretty import body_text, file_text, quoted
from orbitmq.wire.bodies.pop import SetMessageRequestModeRequestBody

_SEPARATOR = "@"


class RequestModes:
    """The modes that administrators set, kept in ``config/messageRequestMode.json``."""

    def __init__(self, feed: ChangeFeed, events: Events) -> None:
        self._feed = feed
        self._events = events
        self._modes: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}
        feed.register(
            REQUEST_MODES,
            FedTable(SetMessageRequestModeRequestBody.to_plain, self._apply, items=self._items),
        )

    def get(self, topic: str, group: str) -> SetMessageRequestModeRequestBody | None:
        """The mode that was set; ``None``: no mode was set."""
        return self._modes.get(topic, {}).get(group)

    def put(self, mode: SetMessageRequestModeRequestBody) -> None:
        """Set how a group gets a topic's messages."""
        self._modes.setdefault(mode.topic, {})[mode.consumer_group] = mode
        self._feed.changed(REQUEST_MODES, f"{mode.topic}{_SEPARATOR}{mode.consumer_group}", mode)
        self._events.publish(RequestModeSet(mode))

    def _apply(self, key: str, value: Mapping[str, Any] | None) -> None:
        if value is not None:
            self.put(SetMessageRequestModeRequestBody.from_json(value))

    def table(self) -> Mapping[str, Mapping[str, SetMessageRequestModeRequestBody]]:
        """All modes by topic and group; not a copy."""
        return self._modes

    def _items(self) -> list[tuple[str, SetMessageRequestModeRequestBody]]:
        return [
            (f"{topic}{_SEPARATOR}{group}", mode)
            for topic, modes in self._modes.items()
            for group, mode in modes.items()
        ]

    # -- on disk ---------------------------------------------------------------------------------------

    def file_text(self) -> Iterator[str]:
        """``messageRequestMode.json``, piece by piece."""
        entries = [(quoted(topic), "".join(_groups(modes))) for topic, modes in sorted(self._modes.items())]
        return file_text([("messageRequestModeMap", entries)])

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``messageRequestMode.json``."""
        for topic, modes in (content.get("messageRequestModeMap") or {}).items():
            for group, plain in modes.items():
                mode = SetMessageRequestModeRequestBody.from_json(plain)
                self._modes.setdefault(topic, {})[group] = mode


def _groups(modes: Mapping[str, SetMessageRequestModeRequestBody]) -> Iterator[str]:
    yield "{"
    for number, (group, mode) in enumerate(sorted(modes.items())):
        yield f"{',' if number else ''}\n\t\t\t{quoted(group)}:{body_text(mode, chr(10) + chr(9) * 3)}"
    yield "\n\t\t}"
