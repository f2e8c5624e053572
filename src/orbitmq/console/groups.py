"""The pages of consumer groups: the list, one group with lag, members and queues, resets with a preview."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from orbitmq.admin import Admin, GroupDetails, GroupSettings, LeftOut, Member, Move, Partial, QueueLag
from orbitmq.admin.progress import by_group
from orbitmq.console.asking import Sight, names
from orbitmq.console.model import (
    Block,
    Column,
    Facts,
    Field,
    Form,
    Link,
    Page,
    Row,
    Said,
    Table,
    path_of,
    plain,
    said,
)
from orbitmq.console.rights import ADMIN, OPERATOR
from orbitmq.console.risks import typing_field
from orbitmq.console.sessions import Plan
from orbitmq.console.times import time_ms
from orbitmq.durations import instant
from orbitmq.errors import OrbitError, ValidationError
from orbitmq.message.model import MessageQueue
from orbitmq.message.numbers import INT32, INT64, whole_number

# How much of the page's deadline may be spent on finding the reason for the group's lag, which takes a second
# of observing a member.
WHY_S: Final = 1.7
PLACES: Final = ("first", "last", "time", "offset", "shift")
QUEUES: Final = (
    Column("topic", link="/topics/{topic}"),
    Column("broker"),
    Column("queue", "number", "/messages?topic={topic}&broker={broker}&queue={queue}&offset={committed}"),
    Column("committed", "number"),
    Column("end", "number"),
    Column("lag", "number"),
    Column("in_flight", "number"),
    Column("seconds", "seconds"),
)
MEMBERS: Final = (
    Column("member", "code", "/clients/{group}?id={member}"),
    Column("address", "code"),
    Column("language"),
    Column("version", "release"),
)


async def groups(sight: Sight) -> Page:
    answer, lags = await asyncio.gather(sight.admin.groups.settings(), sight.topic_lags())
    behind = by_group(lags.found)
    rows = [_row(name, own, behind.get(name, 0)) for name, own in answer.found.items()]
    rows.sort(key=lambda row: -int(str(row["lag"])))
    columns = (
        Column("group", link="/groups/{group}"),
        Column("lag", "number"),
        Column("state", "state"),
        Column("retries", "number"),
        Column("ordered"),
        Column("brokers", "long"),
    )
    table = Table("groups", columns, rows, "no_groups", long=True)
    links = (Link("new_group", "/groups/~new", OPERATOR),)
    left_out = names([*answer.left_out, *lags.left_out])
    return Page("groups", "", said("count_groups", n=len(rows)), (table,), links, left_out=left_out)


def _row(name: str, own: Mapping[str, GroupSettings], lag: int) -> Row:
    # Equal settings of several brokers are usually one object.
    different = {id(one): one for one in own.values()}.values()
    return {
        "group": name,
        "lag": lag,
        "state": "ok" if all(one.consume for one in different) else "off",
        "retries": max(one.max_retries for one in different),
        "ordered": "yes" if any(one.orderly for one in different) else "",
        "brokers": ", ".join(own),
    }


async def group(admin: Admin, name: str) -> Page:
    until = asyncio.get_running_loop().time() + WHY_S
    details, lag = await asyncio.gather(admin.groups.show(name), admin.groups.lag(name))
    why = await _why(admin, details, lag, until)
    found = details.found
    blocks: list[Block] = [
        _facts(found, lag.found),
        Table("queues", QUEUES, [_queue(one) for one in lag.found], "no_offsets"),
        Table("members", MEMBERS, [_member(name, one) for one in found.members], "no_members"),
        *_subscriptions(found),
    ]
    links = (
        Link("reset", path_of("groups", name, "reset"), OPERATOR),
        Link("clone", path_of("groups", name, "clone"), OPERATOR),
        Link("see_letters", path_of("dead-letters", name)),
        Link("edit", path_of("groups", name, "edit"), OPERATOR),
        Link("delete", path_of("groups", name, "delete"), ADMIN),
    )
    left_out = names([*details.left_out, *lag.left_out])
    return Page("groups", name, why, blocks, links, left_out=left_out)


def _facts(found: GroupDetails, lag: Sequence[QueueLag]) -> Facts:
    return Facts(
        (
            ("lag", sum(one.lag for one in lag), "number"),
            ("oldest", max((one.age for one in lag), default=0.0), "seconds"),
            ("members", len(found.members), "number"),
            ("in_flight", sum(one.in_flight for one in lag), "number"),
            ("retries", next(iter(found.settings.values())).max_retries, "number"),
            ("consume_type", found.consume_type or "-", "text"),
        )
    )


def _member(group: str, one: Member) -> Row:
    return {
        "member": one.client_id,
        "address": one.address,
        "language": one.language,
        "version": one.version,
        "group": group,
    }


def _subscriptions(found: GroupDetails) -> list[Table]:
    """The tables of the members' subscriptions and of their conflicts; a table without rows is left out."""
    subscriptions: list[Row] = [
        {"topic": topic, "kind": one.kind, "expression": one.expression}
        for topic, one in found.subscriptions.items()
    ]
    conflicts: list[Row] = [
        {
            "topic": one.topic,
            "member": one.client_id,
            "wanted": one.wanted or "",
            "other": one.other_client_id,
            "other_wanted": one.other_wanted or "",
        }
        for one in found.conflicts
    ]
    tables = []
    if subscriptions:
        columns = (Column("topic", link="/topics/{topic}"), Column("kind"), Column("expression", "code"))
        tables.append(Table("subscriptions", columns, subscriptions))
    if conflicts:
        tables.append(Table("conflicts", tuple(map(Column, conflicts[0])), conflicts))
    return tables


async def _why(
    admin: Admin, details: Partial[GroupDetails], lag: Partial[Sequence[QueueLag]], until: float
) -> Said:
    """The reason for the group's lag; unknown if the answer takes too long, or a broker stops meanwhile."""
    try:
        async with asyncio.timeout_at(until):
            why = (await admin.groups.explain(details, lag)).found
    except (TimeoutError, OrbitError):
        return said("why_unknown", "warn")
    return plain(why.text, "warn" if why.lag else "good")


def _queue(one: QueueLag) -> Row:
    return {
        "topic": one.queue.topic,
        "broker": one.queue.broker_name,
        "queue": one.queue.queue_id,
        "committed": one.committed,
        "end": one.end,
        "lag": one.lag,
        "in_flight": one.in_flight,
        "seconds": round(one.age, 1) if one.lag else None,
    }


# -- resets ----------------------------------------------------------------------------------------------

MOVES: Final = (
    Column("topic"),
    Column("broker"),
    Column("queue", "number"),
    Column("from", "number"),
    Column("to", "number"),
    Column("change", "number"),
)


async def reset_form(admin: Admin, name: str, query: Mapping[str, str]) -> Page:
    """The form for the offsets at which the group is to continue, filled with its present offsets."""
    lag = await admin.groups.lag(name)
    topics = sorted({one.queue.topic for one in lag.found})
    topic = query.get("topic", "")
    form = Form(
        path_of("groups", name, "reset"),
        "preview",
        (
            Field(
                "topic",
                "select" if topics else "text",
                topic or next(iter(topics), ""),
                topics,
                required=True,
            ),
            Field("to", "select", query.get("to", "last"), PLACES, hint="hint_to"),
            Field("value", "text", query.get("value", ""), hint="hint_value"),
            Field("queue", "text", query.get("queue", ""), hint="hint_queue"),
        ),
        title="reset",
    )
    columns = (
        Column("topic"),
        Column("broker"),
        Column("queue", "number"),
        Column("committed", "number"),
        Column("end", "number"),
        Column("lag", "number"),
    )
    now = Table("queues", columns, [_queue(one) for one in lag.found], "no_offsets")
    return Page("groups", name, None, (form, now), left_out=names(lag.left_out))


async def planned(admin: Admin, name: str, query: Mapping[str, str], now_ms: int) -> Partial[Sequence[Move]]:
    """The moves of offsets that the form describes.

    Raises:
        ValidationError: a field, which the text names, is missing or wrong.
    """
    topic, to, value = query.get("topic", ""), query.get("to", ""), query.get("value", "").strip()
    if not topic:
        raise ValidationError("topic: expected the topic in which the group is moved")
    if to not in PLACES:
        raise ValidationError(f"to: {to[:20]}: expected one of {', '.join(PLACES)}")
    queue = _queue_of(topic, query.get("queue", "").strip())
    if to == "offset":
        offset = whole_number(value, INT64)
        if queue is None or offset is None:
            raise ValidationError(
                "an offset belongs to one queue: give the offset, and the queue as BROKER:ID"
            )
        return await admin.groups.plan(name, {queue: offset})
    if to == "time":
        plan = await admin.groups.plan_to_time(name, topic, instant(time_ms("value", value, now_ms)))
    elif to == "first":
        plan = await admin.groups.plan_to_first(name, topic)
    elif to == "last":
        plan = await admin.groups.plan_to_last(name, topic)
    else:
        plan = await _shifted(admin, name, topic, value)
    moves = [one for one in plan.found if queue in (None, one.queue)]
    if queue is not None and not moves:
        raise ValidationError(f"queue: {topic} has no queue {queue.broker_name}:{queue.queue_id}")
    return Partial(moves, plan.left_out)


async def _shifted(admin: Admin, name: str, topic: str, value: str) -> Partial[Sequence[Move]]:
    """The move of each queue by a number of messages, backwards with a minus, within the queue's ends."""
    number = whole_number(value.lstrip("+-"), INT64)
    if number is None:
        raise ValidationError("value: expected a number of messages, as 100 or -100")
    step = -number if value.startswith("-") else number
    first, last = await asyncio.gather(
        admin.groups.plan_to_first(name, topic), admin.groups.plan_to_last(name, topic)
    )
    least = {one.queue: one.to for one in first.found}
    moves = [
        Move(one.queue, one.before, min(one.to, max(least[one.queue], one.before + step)))
        for one in last.found
        if one.queue in least and one.before is not None
    ]
    missing: dict[str, LeftOut] = {one.address: one for one in (*first.left_out, *last.left_out)}
    return Partial(moves, tuple(missing.values()))


def _queue_of(topic: str, text: str) -> MessageQueue | None:
    if not text:
        return None
    broker, _, number = text.rpartition(":")
    queue_id = whole_number(number, INT32)
    if not broker or queue_id is None:
        raise ValidationError(f"queue: {text[:80]}: expected BROKER:ID")
    return MessageQueue(topic, broker, queue_id)


def preview(plan: Plan, plan_name: str, left_out: Sequence[LeftOut]) -> Page:
    """The page of planned moves, with the form that makes them unless a broker is missing in the plan."""
    table = Table("moves", MOVES, [move_row(one) for one in plan.moves], "no_moves")
    form = Form(
        "/do/group-reset",
        "move",
        (
            Field("group", "hidden", plan.group),
            Field("plan", "hidden", plan_name),
            typing_field(plan.group),
        ),
        post=True,
        needs=OPERATOR,
        danger=True,
        note=said("note_moves", n=len(plan.moves)),
    )
    blocks = (table, form) if plan.moves and not left_out else (table,)
    return Page("groups", plan.group, said("preview_moves"), blocks, left_out=names(left_out))


def move_row(one: Move) -> Row:
    return {
        "topic": one.queue.topic,
        "broker": one.queue.broker_name,
        "queue": one.queue.queue_id,
        "from": one.before,
        "to": one.to,
        "change": one.to - (one.before or 0),
    }


# -- making and deleting ---------------------------------------------------------------------------------


def new_group() -> Page:
    return Page("groups", "", None, (_form("", GroupSettings(), "create", "new_group"),))


async def edit_group(admin: Admin, name: str) -> Page:
    details = await admin.groups.show(name)
    settings = next(iter(details.found.settings.values()))
    return Page(
        "groups", name, None, (_form(name, settings, "save", "edit_group"),), left_out=names(details.left_out)
    )


def _form(name: str, settings: GroupSettings, button: str, title: str) -> Form:
    return Form(
        "/do/group-save",
        button,
        (
            Field("group", "hidden" if name else "text", name, required=True),
            Field("consume", "check", "yes" if settings.consume else "", hint="hint_consume"),
            Field("ordered", "check", "yes" if settings.orderly else ""),
            Field("retries", "number", str(settings.max_retries), required=True, hint="hint_retries"),
        ),
        post=True,
        title=title,
        needs=OPERATOR,
    )


async def deleting(admin: Admin, name: str) -> Page:
    details = await admin.groups.show(name)
    form = Form(
        "/do/group-delete",
        "delete",
        (
            Field("group", "hidden", name),
            Field("clean", "check", "yes", hint="hint_clean"),
            typing_field(name),
        ),
        post=True,
        danger=True,
        needs=ADMIN,
    )
    facts = Facts((("members", len(details.found.members), "number"),))
    return Page("groups", name, said("sure_group", "warn"), (facts, form), left_out=names(details.left_out))
