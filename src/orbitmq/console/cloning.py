"""Copies the offsets of one group to another: the form, the preview, and the change."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orbitmq.admin import Admin, GroupDetails, LeftOut, Move, QueueLag
from orbitmq.console.asking import names
from orbitmq.console.changing import Change, Cluster, Done, Fields, field_of, places
from orbitmq.console.groups import MOVES, move_row
from orbitmq.console.model import Block, Field, Form, Page, Table, path_of, said
from orbitmq.console.rights import OPERATOR
from orbitmq.console.risks import typing_field
from orbitmq.console.sessions import Plan
from orbitmq.errors import BrokerError, ValidationError
from orbitmq.message.reserved import RETRY_PREFIX
from orbitmq.wire.codes import ResponseCode


@dataclass(frozen=True, slots=True)
class Clone:
    """The effect of a clone.

    Attributes:
        moves: the moves of the target group's offsets.
        members: how many members of the target group are online; ``None`` if no broker has the group.
    """

    moves: Sequence[Move]
    members: int | None
    left_out: Sequence[LeftOut]


async def page(admin: Admin, source: str, query: Mapping[str, str]) -> Page:
    """The page of a clone: first the form; once a target is given, the preview with the form that clones."""
    target, topic = query.get("target", "").strip(), query.get("topic", "").strip()
    if not target:
        return await _form(admin, source)
    clone = await planned(admin, source, target, topic)
    form = Form(
        "/do/group-clone",
        "clone",
        (
            Field("group", "hidden", source),
            Field("target", "hidden", target),
            Field("topic", "hidden", topic),
            typing_field(target),
        ),
        post=True,
        needs=OPERATOR,
        danger=True,
        note=said("risk_clone", "warn", name=target),
    )
    blocks: list[Block] = [
        Table("moves", MOVES, list(map(move_row, clone.moves)), "no_offsets_there"),
        *([form] if clone.moves and not clone.left_out else []),
    ]
    notes = [said("clone_new", name=target)] if clone.members is None else []
    if clone.members:
        notes = [said("clone_online", "warn", n=clone.members, name=target)]
    sentence = said("preview_clone", name=target, source=source)
    return Page("groups", source, sentence, blocks, (), notes, names(clone.left_out))


async def _form(admin: Admin, source: str) -> Page:
    lag = await admin.groups.lag(source)
    topics = sorted({one.queue.topic for one in lag.found if not one.queue.topic.startswith(RETRY_PREFIX)})
    form = Form(
        path_of("groups", source, "clone"),
        "preview",
        (
            Field("target", required=True, hint="hint_target"),
            Field("topic", "select", options=("", *topics), hint="hint_all_topics"),
        ),
        title="clone",
    )
    return Page("groups", source, None, (form,), left_out=names(lag.left_out))


async def planned(admin: Admin, source: str, target: str, topic: str) -> Clone:
    """The effect that a clone would have.

    Args:
        topic: the one topic whose offsets are copied; empty for all topics except retry topics.

    Raises:
        ValidationError: both groups are the same.
    """
    if source == target:
        raise ValidationError(f"target: expected another group than {source}")
    given, got = await asyncio.gather(admin.groups.lag(source, topic=topic or None), _target(admin, target))
    details, lags, left_out = got
    before = {one.queue: one.committed for one in lags}
    moves = [
        Move(one.queue, before.get(one.queue), one.committed)
        for one in given.found
        if topic or not one.queue.topic.startswith(RETRY_PREFIX)
    ]
    missing: dict[str, LeftOut] = {one.address: one for one in (*given.left_out, *left_out)}
    members = None if details is None else len(details.members)
    return Clone(moves, members, tuple(missing.values()))


async def _target(
    admin: Admin, name: str
) -> tuple[GroupDetails | None, Sequence[QueueLag], Sequence[LeftOut]]:
    """The target group, its offsets, and the brokers left out; ``None`` if no broker has the group."""
    try:
        details = await admin.groups.show(name)
    except BrokerError as error:
        if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            raise
        return None, (), ()
    lag = await admin.groups.lag(name)
    return details.found, lag.found, (*details.left_out, *lag.left_out)


async def clone_group(cluster: Cluster, fields: Fields) -> Done:
    """Copy the group's offsets to the target, as the preview has shown."""
    source, target, topic = (
        field_of(fields, "group"),
        field_of(fields, "target"),
        fields.get("topic", "").strip(),
    )
    clone = await planned(cluster.admin, source, target, topic)
    brokers = await cluster.admin.groups.clone(source, target, topic=topic or None)
    back = Plan(
        target, tuple(Move(one.queue, one.to, one.before) for one in clone.moves if one.before is not None)
    )
    text = said("done_cloned", "good", name=target, source=source, brokers=", ".join(brokers))
    return Done(
        text,
        path_of("groups", source if clone.members is None else target),
        target,
        places(clone.moves, before=True),
        f"from {source}: {places(clone.moves, before=False)}",
        back,
    )


CLONE_CHANGES: Final = {"group-clone": Change(OPERATOR, "target", clone_group)}
