"""The first page: one sentence of health, the brokers, the largest lags."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from orbitmq.admin import Admin, BrokerInfo, BrokerState
from orbitmq.admin.brokers import states
from orbitmq.console.asking import optional
from orbitmq.console.history import History
from orbitmq.console.model import Column, Facts, Page, Row, Said, Table, said
from orbitmq.errors import BrokerError
from orbitmq.transport.errors import TransportError
from orbitmq.wire.errors import WireError

TOP: Final = 10
# From here on a disk is worth a word: brokers delete old messages from 0.75 on and refuse new ones from 0.9.
DISK_FULL: Final = 0.85
Status = Mapping[str, str]

BROKERS: Final = (
    Column("name"),
    Column("address", "code", "/brokers/{address}"),
    Column("state", "state"),
    Column("role"),
    Column("in_rate", "number"),
    Column("out_rate", "number"),
    Column("disk_used", "share"),
    Column("behind", "bytes"),
    Column("version"),
    Column("problem", "long"),
)


async def statuses(admin: Admin) -> Sequence[tuple[BrokerInfo, Status | str]]:
    """The runtime information of each live broker, or why it is missing."""

    async def one(broker: BrokerInfo) -> tuple[BrokerInfo, Status | str]:
        try:
            return broker, await admin.brokers.runtime(broker.address)
        except (BrokerError, TransportError, WireError) as error:
            return broker, str(error)

    return await asyncio.gather(*map(one, await admin.brokers.list()))


async def overview(admin: Admin, history: History, now_ms: int) -> Page:
    told, lags = await asyncio.gather(statuses(admin), optional(admin.groups.lags(), {}))
    known = states(told)
    rows = broker_rows(told)
    history.note_brokers(now_ms, rows)
    behind = sorted(((lag, name) for name, lag in lags.found.items() if lag), reverse=True)
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
        )
    )
    worst = Table(
        "lags",
        (Column("group", link="/groups/{group}"), Column("lag", "number")),
        [{"group": name, "lag": lag} for lag, name in behind[:TOP]],
        "no_lags",
    )
    sentence = health(known, behind, whole=not lags.left_out)
    brokers = Table("brokers", BROKERS, rows, "no_brokers")
    return Page("overview", "", sentence, (facts, worst, brokers), left_out=left_out)


def health(known: Sequence[BrokerState], behind: Sequence[tuple[int, str]], *, whole: bool) -> Said:
    """One sentence about the cluster: the worst that is known. ``whole``: all lags are known."""
    silent = [one for one in known if one.problem]
    masters = {one.broker.name for one in known if one.broker.is_master}
    lost = sorted({one.broker.name for one in known} - masters)
    full = [one for one in known if (one.disk_used or 0) >= DISK_FULL]
    late = [one for one in known if one.in_sync is False]
    if not known:
        return said("health_none", "bad")
    if silent:
        return said("health_silent", "bad", silent=len(silent), all=len(known))
    if lost:
        return said("health_lost", "bad", names=", ".join(lost))
    if full:
        share = f"{full[0].disk_used or 0:.0%}"
        return said("health_full", "bad", name=full[0].broker.name, share=share)
    if late:
        return said("health_late", "warn", name=late[0].broker.name, address=late[0].broker.address)
    if behind:
        return said("health_behind", "warn", all=len(known), name=behind[0][1], lag=f"{behind[0][0]:,}")
    return said("health_good", "good", all=len(known)) if whole else said("health_unknown", "warn")


def broker_rows(told: Sequence[tuple[BrokerInfo, Status | str]]) -> list[Row]:
    """A row for each broker."""
    return [
        _row(state, {} if isinstance(answer, str) else answer)
        for state, (_, answer) in zip(states(told), told, strict=True)
    ]


def _row(one: BrokerState, status: Status) -> Row:
    full = (one.disk_used or 0) >= DISK_FULL
    state = (
        "silent" if one.problem else "disk_full" if full else "not_in_sync" if one.in_sync is False else "ok"
    )
    return {
        "name": one.broker.name,
        "address": one.broker.address,
        "id": one.broker.broker_id,
        "cluster": one.broker.cluster,
        "state": state,
        "role": one.role,
        "in_rate": rate(status.get("putTps", "")),
        "out_rate": rate(status.get("getTransferredTps", status.get("getTransferedTps", ""))),
        "disk_used": one.disk_used,
        "behind": one.lag_bytes,
        "version": status.get("brokerVersionDesc", ""),
        "problem": one.problem,
    }


def rate(text: str) -> float | None:
    """Messages a second in the last 10 s, the first of three numbers; ``None``: it is not told."""
    try:
        return round(float(text.split()[0]), 1)
    except (ValueError, IndexError):
        return None


def _total(rows: Sequence[Row], key: str) -> float:
    return round(sum(row[key] or 0 for row in rows), 1)
