"""The changes that the console's forms make, by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from orbitmq.admin import GroupSettings, IncompleteError, Move
from orbitmq.console.changing import (
    Change,
    Cluster,
    Done,
    Fields,
    field_of,
    names_of,
    number_of,
    permission_of,
    places,
)
from orbitmq.console.choice import ranges
from orbitmq.console.cloning import CLONE_CHANGES
from orbitmq.console.draining import DRAIN_CHANGES
from orbitmq.console.model import Tone, path_of, said, span_text
from orbitmq.console.rights import ADMIN, OPERATOR
from orbitmq.console.sessions import Plan
from orbitmq.console.user_changes import USER_CHANGES
from orbitmq.errors import BrokerError, ValidationError
from orbitmq.message.model import Message
from orbitmq.wire.codes import ResponseCode
from orbitmq.wording import masked


async def save_topic(cluster: Cluster, fields: Fields) -> Done:
    name = field_of(fields, "topic")
    queues = number_of(fields, "queues", 1)
    permission = permission_of(fields)
    known = (await cluster.admin.topics.settings()).found.get(name, {})
    before = "; ".join(f"{at}: {one.queues} queues, {one.perm}" for at, one in known.items())
    kind = fields.get("type", "")
    brokers = await cluster.admin.topics.create(
        name,
        queues=queues,
        perm=permission,
        order=bool(fields.get("ordered")),
        attributes={"message.type": kind} if kind else {},
    )
    text = said("done_topic", "good", name=name, brokers=", ".join(brokers))
    return Done(text, path_of("topics", name), name, before, f"{queues} queues, {permission}")


async def delete_topics(cluster: Cluster, fields: Fields) -> Done:
    names = names_of(fields, "topics")
    deleted: list[str] = []
    for name in names:
        try:
            await cluster.admin.topics.delete(name)
        except IncompleteError as error:
            raise IncompleteError(
                error.partial, f"{name} is not deleted everywhere; before it: {', '.join(deleted) or 'none'}"
            ) from error
        deleted.append(name)
    return Done(said("done_deleted", "good", names=", ".join(deleted)), "/topics", ", ".join(deleted))


async def send_message(cluster: Cluster, fields: Fields) -> Done:
    topic = field_of(fields, "topic")
    made = Message(
        topic,
        fields.get("body", "").encode(),
        tags=fields.get("tag", "").strip() or None,
        keys=fields.get("keys", "").split(),
    )
    return await _sent(cluster, made)


async def send_again(cluster: Cluster, fields: Fields) -> Done:
    """Send a new message with the body and the properties of a stored message."""
    one = await cluster.admin.messages.get(field_of(fields, "id"), topic=field_of(fields, "topic"))
    return await _sent(cluster, Message(one.topic, bytes(one.body), properties=one.properties))


async def consume_now(cluster: Cluster, fields: Fields) -> Done:
    """Let one member of a group consume a stored message at once."""
    message_id, topic = field_of(fields, "id"), field_of(fields, "topic")
    group, _, member = field_of(fields, "member").partition(" ")
    if not member:
        raise ValidationError(
            "member: expected a group and the client id of its member, with a space between"
        )
    found = await cluster.admin.messages.consume(message_id, group, member, topic=topic)
    outcome = f"{found.outcome}: {found.remark}" if found.remark else found.outcome
    tone: Tone = "good" if found.succeeded else "warn"
    text = said("done_consumed", tone, name=member, outcome=outcome, span=span_text(found.took))
    return Done(text, path_of("messages", message_id, topic=topic), message_id, "", f"{group} {outcome}")


async def _sent(cluster: Cluster, message: Message) -> Done:
    async with cluster.producer() as producer:
        result = await producer.send(message)
    text = said("done_sent", "good", id=result.message_id, queue=str(result.queue))
    return Done(text, path_of("topics", message.topic), message.topic, "", result.message_id)


async def save_group(cluster: Cluster, fields: Fields) -> Done:
    name = field_of(fields, "group")
    known: GroupSettings | None = None
    try:
        known = next(iter((await cluster.admin.groups.show(name)).whole().settings.values()))
    except BrokerError as error:
        if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            raise
    settings = replace(
        known or GroupSettings(),
        consume=bool(fields.get("consume")),
        orderly=bool(fields.get("ordered")),
        max_retries=number_of(fields, "retries", 0),
    )
    brokers = await cluster.admin.groups.create(name, settings)
    text = said("done_group", "good", name=name, brokers=", ".join(brokers))
    before = "" if known is None else _settings(known)
    return Done(text, path_of("groups", name), name, before, _settings(settings))


def _settings(one: GroupSettings) -> str:
    return f"consume {one.consume}, ordered {one.orderly}, retries {one.max_retries}"


async def delete_group(cluster: Cluster, fields: Fields) -> Done:
    name = field_of(fields, "group")
    await cluster.admin.groups.delete(name, clean_offsets=bool(fields.get("clean")))
    return Done(said("done_deleted", "good", names=name), "/groups", name)


async def reset_group(cluster: Cluster, fields: Fields) -> Done:
    """Make the moves of the offsets that the preview has shown."""
    plan = cluster.plan(field_of(fields, "plan"))
    if plan is None or plan.group != fields.get("group"):
        raise ValidationError("plan: this preview is not kept any more: ask for a new one")
    try:
        moved = await cluster.admin.groups.move(plan.group, plan.moves)
    except IncompleteError as error:
        text = f"{len(error.partial.found)} of {len(plan.moves)} queues were moved"
        raise IncompleteError(error.partial, text) from error
    back = Plan(
        plan.group, tuple(Move(one.queue, one.to, one.before) for one in moved if one.before is not None)
    )
    return Done(
        said("done_moved", "good", name=plan.group, n=len(moved)),
        path_of("groups", plan.group),
        plan.group,
        places(moved, before=True),
        places(moved, before=False),
        back,
    )


async def redrive(cluster: Cluster, fields: Fields) -> Done:
    name = field_of(fields, "group")
    rate = number_of(fields, "rate", 1) if fields.get("rate", "").strip() else None
    chosen = fields.get("chosen", "").strip()
    jobs = await cluster.admin.dead_letters.redrive(name, only=ranges(chosen), rate=rate)
    text = said("done_redrive", "good", name=name, brokers=", ".join(one.broker_name for one in jobs))
    return Done(text, path_of("dead-letters", name), name, "", chosen or "all")


async def stop_redrive(cluster: Cluster, fields: Fields) -> Done:
    name = field_of(fields, "group")
    await cluster.admin.dead_letters.stop(name)
    return Done(said("done_stopped", "good", name=name), path_of("dead-letters", name), name)


async def cancel_timer(cluster: Cluster, fields: Fields) -> Done:
    message_id = field_of(fields, "id")
    await cluster.admin.timers.cancel(message_id)
    return Done(said("done_cancelled", "good", id=message_id), "/timers", message_id)


async def change_setting(cluster: Cluster, fields: Fields) -> Done:
    """Change one setting of one registered broker."""
    address, key = field_of(fields, "address"), field_of(fields, "key")
    value = fields.get("value", "")
    if address not in {one.address for one in await cluster.admin.brokers.list()}:
        raise ValidationError(f"address: no broker is registered at {address[:80]}")
    before = (await cluster.admin.brokers.settings(address)).get(key)
    if before is None:
        raise ValidationError(f"key: {key[:80]}: the broker has no such setting")
    await cluster.admin.brokers.change_settings(address, {key: value})
    text = said("done_setting", "good", key=key, value=masked(key, value), address=address)
    before, value = masked(key, before), masked(key, value)
    return Done(text, path_of("brokers", address), f"{address} {key}", before, value)


CHANGES: Final[Mapping[str, Change]] = {
    "topic-save": Change(OPERATOR, "topic", save_topic),
    "topic-delete": Change(ADMIN, "topics", delete_topics),
    "message-send": Change(OPERATOR, "topic", send_message),
    "message-again": Change(OPERATOR, "id", send_again),
    "message-consume": Change(OPERATOR, "id", consume_now),
    "group-save": Change(OPERATOR, "group", save_group),
    "group-delete": Change(ADMIN, "group", delete_group),
    "group-reset": Change(OPERATOR, "group", reset_group),
    "redrive": Change(OPERATOR, "group", redrive),
    "redrive-stop": Change(OPERATOR, "group", stop_redrive),
    "timer-cancel": Change(OPERATOR, "id", cancel_timer),
    "broker-setting": Change(ADMIN, "address", change_setting),
    **CLONE_CHANGES,
    **DRAIN_CHANGES,
    **USER_CHANGES,
}
