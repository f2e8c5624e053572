"""The page of all clusters of a console: the health sentence and figures of each, and the largest lags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from orbitmq.console.model import Column, Facts, Page, Row, Table, Tone, said
from orbitmq.console.overview import TOP
from orbitmq.console.texts import Texts

FIGURES: Final = ("in_rate", "out_rate", "lag", "full_in")
CLUSTERS: Final = (
    Column("cluster", link="/@{cluster}/"),
    Column("state", "state"),
    Column("health", "long"),
    Column("brokers_up"),
    *(Column(name, "seconds" if name == "full_in" else "number") for name in FIGURES),
)
LAGS: Final = (
    Column("cluster", link="/@{cluster}/"),
    Column("group", link="/@{cluster}/groups/{group}"),
    Column("lag", "number"),
)
_STATES: Final = {"good": "ok", "warn": "look", "bad": "trouble"}


def clusters(overviews: Mapping[str, Page | str], texts: Texts) -> Page:
    """The page of all clusters.

    Args:
        overviews: the first page of each cluster, or the reason why it could not be made.
        texts: the texts of the viewer's language.
    """
    rows = [_row(name, overview, texts) for name, overview in overviews.items()]
    lags: list[Row] = [
        {"cluster": name, **row}
        for name, overview in overviews.items()
        if not isinstance(overview, str)
        for table in overview.tables
        if table.name == "lags"
        for row in table.rows
    ]
    lags.sort(key=lambda row: -int(row["lag"]))
    good = sum(row["state"] == "ok" for row in rows)
    tone: Tone = "bad" if any(row["state"] == "trouble" for row in rows) else "warn"
    if good == len(rows):
        tone = "good"
    sentence = said("count_clusters", tone, good=good, all=len(rows))
    blocks = (Table("clusters", CLUSTERS, rows), Table("lags", LAGS, lags[:TOP], "no_lags"))
    return Page("clusters", "", sentence, blocks, left_out=_left_out(overviews))


def _row(name: str, overview: Page | str, texts: Texts) -> Row:
    nothing: dict[str, Any] = dict.fromkeys(("brokers_up", *FIGURES))
    if isinstance(overview, str):
        return {"cluster": name, "state": "trouble", "health": overview, **nothing}
    said_of = overview.sentence
    health = texts.of(said_of) if said_of is not None else texts("late")
    state = "trouble" if said_of is None else _STATES.get(said_of.tone, "look")
    figures = {
        key: value for block in overview.blocks if isinstance(block, Facts) for key, value, _ in block.rows
    }
    return {"cluster": name, "state": state, "health": health, **{key: figures.get(key) for key in nothing}}


def _left_out(overviews: Mapping[str, Page | str]) -> Sequence[str]:
    return [
        f"{name}: {one}"
        for name, overview in overviews.items()
        if not isinstance(overview, str)
        for one in overview.left_out
    ]
