"""Prometheus's text format (version 0.0.4), with a limit on the number of series."""

from __future__ import annotations

from collections.abc import Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Exposition:
    """The text of one scrape.

    Args:
        common: labels that every series has.
        limit: how many series the text may have.

    Attributes:
        cut: series that were left out for the limit.
    """

    def __init__(self, common: Mapping[str, str], limit: int) -> None:
        self.common = _pairs(common)
        self.cut = 0
        self._room = limit
        self._families: list[Family] = []

    @property
    def room(self) -> int:
        """How many series the text can still take."""
        return self._room

    def family(self, name: str, kind: str, meaning: str, **common: str) -> Family:
        """A metric with all its series; it is there without any, too.

        Args:
            kind: ``counter`` or ``gauge``.
            common: labels that each of its series has.
        """
        family = Family(self, name, kind, meaning, common)
        self._families.append(family)
        return family

    def take(self) -> bool:
        """Take the place of one more series, if there is one."""
        if self._room == 0:
            self.cut += 1
            return False
        self._room -= 1
        return True

    def give_place(self) -> None:
        """Make room for one more series."""
        self._room += 1

    def render(self) -> bytes:
        """The whole text."""
        return "".join([text for family in self._families for text in family.texts]).encode()


class Family:
    """One metric: its name, its type, its series."""

    def __init__(
        self, exposition: Exposition, name: str, kind: str, meaning: str, common: Mapping[str, str]
    ) -> None:
        self._exposition = exposition
        self._begin = f"{name}{{{','.join(filter(None, (exposition.common, _pairs(common))))}"
        self.texts = [f"# HELP {name} {meaning}\n# TYPE {name} {kind}\n"]

    def add(self, value: float, **labels: str) -> None:
        """One series, unless the limit is reached. The same labels come once in a scrape."""
        if self._exposition.take():
            own = _pairs(labels)
            self.texts.append(f"{self._begin}{',' if own else ''}{own}}} {value!r}\n")


def _pairs(labels: Mapping[str, str]) -> str:
    return ",".join([f'{name}="{_escaped(value)}"' for name, value in labels.items()])


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
