"""The first page: one sentence about the cluster's health, the brokers, and the largest lags."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from orbitmq.admin import BrokerInfo, BrokerState
from orbitmq.admin.brokers import states
from orbitmq.admin.progress import by_group
from orbitmq.console.asking import Sight, Status
from orbitmq.console.disks import LEAST_MS, Outlook
from orbitmq.console.history import History
from orbitmq.console.model import Column, Facts, Page, Row, Said, Table, said, span_text
from orbitmq.errors import OrbitError

TOP: Final = 10
# The used share of a disk that the page warns of. Brokers delete old messages from 0.75 on, and refuse new
# ones from 0.9 on.
DISK_FULL: Final = 0.85
DAY_S: Final = 86_400

BROKERS: Final = (
    Column("name"),
    Column("address", "code", "/brokers/{address}"),
    Column("state", "state"),
    Column("role"),
    Column("in_rate", "number"),
    Column("out_rate", "number"),
    Column("disk_used", "share"),
    Column("full_in", "seconds"),
    Column("behind", "bytes"),
    Column("version"),
    Column("problem", "long"),
)


# The columns that are left out if no row has a value for them.
RARE: Final = ("full_in", "behind", "problem")


async def overview(sight: Sight, history: History, now_ms: int) -> Page:
    told, lags = await asyncio.gather(sight.statuses(), sight.topic_lags())
    known = states(told)
    rows = broker_rows(told, history, now_ms)
    behind = sorted(((lag, name) for name, lag in by_group(lags.found).items() if lag), reverse=True)
    filling = [row for row in rows if row["full_in"] is not None]
    silent = [f"{one.broker.name} at {one.broker.address}: {one.problem}" for one in known if one.problem]
    seen = {one.broker.address for one in known if one.problem}
    left_out = [*silent, *(str(one) for one in lags.left_out if one.address not in seen)]
    facts = Facts(
        (
            ("brokers_up", f"{len(known) - len(silent)} / {len(known)}", "text"),
            ("in_rate", _total(rows, "in_rate"), "number"),
            ("out_rate", _total(rows, "out_rate"), "number"),
            ("groups_behind", len(behind), "number"),
            ("lag", sum(lag for lag, _ in behind), "number"),
            ("full_in", min((row["full_in"] for row in filling), default=None), "seconds"),
        )
    )
    worst = Table(
        "lags",
        (Column("group", link="/groups/{group}"), Column("lag", "number")),
        [{"group": name, "lag": lag} for lag, name in behind[:TOP]],
        "no_lags",
    )
    first = min(filling, key=lambda row: row["full_in"], default=None)
    sentence = health(known, behind, first, whole=not lags.left_out)
    brokers = Table("brokers", columns_of(rows), rows, "no_brokers")
    return Page(
        "overview", "", sentence, (facts, worst, brokers), notes=_disks(rows, first), left_out=left_out
    )


def _disks(rows: Sequence[Row], first: Row | None) -> Sequence[Said]:
    """The sentence about the disk that will be full first."""
    if first is not None:
        return (said("disk_full_in", name=first["name"], span=span_text(first["full_in"])),)
    if not rows:
        return ()
    known = all(row["outlook"] != "not_yet_known" for row in rows)
    return (said("disk_not_in_sight" if known else "disk_not_yet_known", minutes=LEAST_MS // 60_000),)


def health(
    known: Sequence[BrokerState], behind: Sequence[tuple[int, str]], filling: Row | None, *, whole: bool
) -> Said:
    """One sentence about the cluster's health, with its worst known problem.

    Args:
        filling: the broker whose disk will be full first; ``None`` if unknown, or if no disk will be full
            soon.
        whole: whether all lags are known.
    """
    silent = [one for one in known if one.problem]
    refusing = [one for one in silent if one.refuses]
    masters = {one.broker.name for one in known if one.broker.is_master}
    lost = sorted({one.broker.name for one in known} - masters)
    full = [one for one in known if (one.disk_used or 0) >= DISK_FULL]
    late = [one for one in known if one.in_sync is False]
    if not known:
        return said("health_none", "bad")
    if refusing and refusing == silent:
        return said("health_refuses", "bad", refusing=len(refusing), all=len(known))
    if silent:
        return said("health_silent", "bad", silent=len(silent), all=len(known))
    if lost:
        return said("health_lost", "bad", names=", ".join(lost))
    if full:
        share = f"{full[0].disk_used or 0:.0%}"
        return said("health_full", "bad", name=full[0].broker.name, share=share)
    if late:
        return said("health_late", "warn", name=late[0].broker.name, address=late[0].broker.address)
    if filling is not None and filling["full_in"] < DAY_S:
        return said("health_filling", "warn", name=filling["name"], span=span_text(filling["full_in"]))
    if behind:
        return said("health_behind", "warn", all=len(known), name=behind[0][1], lag=f"{behind[0][0]:,}")
    return said("health_good", "good", all=len(known)) if whole else said("health_unknown", "warn")


def columns_of(rows: Sequence[Row]) -> list[Column]:
    """The columns of the table of brokers. Rare ones without values are left out, to fit the screen."""
    return [
        column
        for column in BROKERS
        if column.key not in RARE or any(row[column.key] not in (None, "") for row in rows)
    ]


def broker_rows(
    told: Sequence[tuple[BrokerInfo, Status | OrbitError]], history: History, now_ms: int
) -> list[Row]:
    """A row for each broker, whose figures are recorded in the history."""
    rows = []
    for state, (broker, answer) in zip(states(told), told, strict=True):
        status = {} if isinstance(answer, OrbitError) else answer
        rows.append(broker_row(state, status, history.disks.note(now_ms, broker.address, status)))
    history.note_brokers(now_ms, rows)
    return rows


def no_status(one: BrokerState) -> str:
    """The word for a broker whose status is missing; empty if the status is known."""
    if not one.problem:
        return ""
    return "refuses" if one.refuses else "silent"


def broker_row(one: BrokerState, status: Status, outlook: Outlook) -> Row:
    """The row of a broker in the table of all brokers."""
    full = (one.disk_used or 0) >= DISK_FULL
    fault = "disk_full" if full else "not_in_sync" if one.in_sync is False else "ok"
    return {
        "name": one.broker.name,
        "address": one.broker.address,
        "id": one.broker.broker_id,
        "cluster": one.broker.cluster,
        "state": no_status(one) or fault,
        "role": one.role,
        "in_rate": rate(status.get("putTps", "")),
        "out_rate": rate(status.get("getTransferredTps", status.get("getTransferedTps", ""))),
        "disk_used": one.disk_used,
        "full_in": None if outlook.seconds is None else round(outlook.seconds),
        "outlook": _word(outlook),
        "behind": one.lag_bytes,
        "version": status.get("brokerVersionDesc", ""),
        "problem": one.problem,
    }


def _word(outlook: Outlook) -> str:
    if outlook.seconds is not None:
        return "filling"
    return "not_in_sight" if outlook.is_known else "not_yet_known"


def rate(text: str) -> float | None:
    """Messages a second in the last 10 s, the first of three numbers in the text; ``None`` without one."""
    try:
        return round(float(text.split()[0]), 1)
    except (ValueError, IndexError):
        return None


def _total(rows: Sequence[Row], key: str) -> float:
    return round(sum(row[key] or 0 for row in rows), 1)
