"""The quotas of a broker, kept in ``config/quotas.json``."""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from orbitmq.broker.change_feed import QUOTAS, ChangeFeed, FedTable
from orbitmq.broker.component import Component, Table
from orbitmq.broker.events import Events, QuotasChanged
from orbitmq.broker.metadata.pretty import file_text, pretty_value, quoted
from orbitmq.broker.names import check_topic
from orbitmq.broker.quotas.buckets import Key, Quotas
from orbitmq.monitoring.exposition import Exposition
from orbitmq.runtime.seam import Clock
from orbitmq.wire.bodies.quota import MAX_RATE, Quota
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

KINDS: Final = ("user", "address", "topic")
MAX_QUOTAS: Final = 10_000
MAX_NAME_CHARS: Final = 255


class QuotaTable(Component):
    """Keeps the quotas; they are copied to slaves like other tables.

    Args:
        written: returns when the changes of a table are on the device.
    """

    name = "quotas"

    def __init__(
        self,
        clock: Clock,
        feed: ChangeFeed,
        events: Events,
        written: Callable[[str], Awaitable[object]],
        quotas: Quotas,
    ) -> None:
        self._clock = clock
        self._feed = feed
        self._events = events
        self._written = written
        self._quotas = quotas
        feed.register(QUOTAS, FedTable(Quota.to_plain, self._apply, items=self._items))

    def all(self) -> list[Quota]:
        """The quotas, with how often clients were made to wait."""
        found = []
        for key, kept in sorted(self._quotas.all().items()):
            pauses_in, pauses_out = (counted.pauses for counted in kept.counted)
            found.append(Quota(*key, *kept.quota.limits, pauses_in, pauses_out))
        return found

    def get(self, kind: str, name: str) -> Quota | None:
        """The quota of a user, an address or a topic; None: there is none."""
        kept = self._quotas.all().get(Key(kind, name))
        return None if kept is None else kept.quota

    async def set(self, quota: Quota) -> None:
        """Set a quota, or remove it if it has no limit.

        Raises:
            RemotingError: INVALID_PARAMETER, the remark names the field and what is expected.
        """
        key = _key(quota)
        removed = not any(quota.limits)
        if not removed and key not in self._quotas and len(self._quotas) >= MAX_QUOTAS:
            raise _wrong(f"there are {MAX_QUOTAS} quotas, the limit of a broker")
        self._change(key, None if removed else Quota(*key, *quota.limits))
        await self._written(QUOTAS)

    def _change(self, key: Key, quota: Quota | None) -> None:
        self._quotas.set(key, quota, self._clock.monotonic())
        self._feed.changed(QUOTAS, _text(key), quota)
        self._events.publish(QuotasChanged(self._quotas.topics()))

    # -- the table ---------------------------------------------------------------------------------------

    def _items(self) -> list[tuple[str, Quota]]:
        return [(_text(key), kept.quota) for key, kept in self._quotas.all().items()]

    def _apply(self, text: str, value: Mapping[str, Any] | None) -> None:
        kind, _, name = text.partition(":")
        self._change(Key(kind, name), None if value is None else Quota.from_json(value))

    def tables(self) -> Sequence[Table]:
        return (Table(QUOTAS, self),)

    def file_text(self) -> Iterator[str]:
        """``quotas.json``, piece by piece."""
        entries = [(quoted(text), pretty_value(quota.to_plain(), "\n\t\t")) for text, quota in self._items()]
        return file_text([("quotas", entries)])

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``quotas.json``."""
        for text, plain in (content.get("quotas") or {}).items():
            kind, _, name = text.partition(":")
            self._quotas.set(Key(kind, name), Quota.from_json(plain), self._clock.monotonic())

    async def start(self) -> None:
        """Put the quotas of the file into force."""
        if self._quotas:
            self._events.publish(QuotasChanged(self._quotas.topics()))

    # -- metrics -----------------------------------------------------------------------------------------

    async def figures(self, text: Exposition) -> None:
        """Add how often reading from clients was paused, and for how long."""
        pauses = text.family(
            "orbitmq_quota_pauses_total", "counter", "Times that a client was not read for a quota"
        )
        seconds = text.family(
            "orbitmq_quota_pause_seconds_total", "counter", "Seconds that clients were not read for a quota"
        )
        for key, kept in self._quotas.all().items():
            for way, counted in zip(("in", "out"), kept.counted, strict=True):
                labels = {"quota": _text(key), "direction": way}
                pauses.add(counted.pauses, **labels)
                seconds.add(round(counted.seconds, 3), **labels)


def _text(key: Key) -> str:
    return f"{key.kind}:{key.name}"


def _key(quota: Quota) -> Key:
    if quota.kind not in KINDS:
        raise _wrong(f"kind is {quota.kind[:80]!r}, expected user, address or topic")
    if not 0 < len(quota.name) <= MAX_NAME_CHARS or not quota.name.isprintable():
        raise _wrong(f"name has {len(quota.name)} characters, expected 1 to {MAX_NAME_CHARS} printable ones")
    for name, rate in zip(("bytesIn", "messagesIn", "bytesOut", "messagesOut"), quota.limits, strict=True):
        if not 0 <= rate <= MAX_RATE:
            raise _wrong(f"{name} is {rate}, expected 0 (no limit) to {MAX_RATE}")
    name = quota.name
    if quota.kind == "topic" and any(quota.limits):
        check_topic(name)
    if quota.kind == "address":
        try:
            name = str(ipaddress.ip_address(name))
        except ValueError:
            raise _wrong(f"name is {name!r}, expected an IP address") from None
    return Key(quota.kind, name)


def _wrong(remark: str) -> RemotingError:
    return RemotingError(ResponseCode.INVALID_PARAMETER, remark)
