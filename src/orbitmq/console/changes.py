"""What the console's forms change, each by its name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from orbitmq.admin import Admin, GroupSettings, IncompleteError, Move
from orbitmq.client.producer.producer import Producer
from orbitmq.console.choice import ranges
from orbitmq.console.model import Said, said
from orbitmq.console.rights import ADMIN, OPERATOR
from orbitmq.console.sessions import Plan
from orbitmq.errors import BrokerError, ValidationError
from orbitmq.message.model import Message
from orbitmq.message.numbers import INT32, whole_number
from orbitmq.wire.codes import ResponseCode
from orbitmq.wording import masked

Fields = Mapping[str, str]
PERMISSIONS: Final = {"read+write": 6, "read": 4, "write": 2}


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a change works with.

    Attributes:
        producer: makes a producer, for messages that are sent.
        plan: the shown reset of that name, which is used up by this; ``None``: there is none.
    """

    admin: Admin
    producer: Callable[[], Producer]
    plan: Callable[[str], Plan | None]


@dataclass(frozen=True, slots=True)
class Done:
    """A change that was made.

    Attributes:
        said: what the next page says.
        path: the next page.
        undo: the moves that take a reset back.
    """

    said: Said
    path: str
    target: str
    before: str = ""
    after: str = ""
    undo: Plan | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A change: who may make it, which field names its target for the audit log, and how it is made."""

    needs: str
    target: str
    make: Callable[[Cluster, Fields], Awaitable[Done]]


def _field(fields: Fields, name: str) -> str:
    """A field that must not be empty.

    Raises:
        ValidationError: it is missing or empty.
    """
    value = fields.get(name, "").strip()
    if not value:
        raise ValidationError(f"{name}: the field is empty")
    return value


def _number(fields: Fields, name: str, least: int) -> int:
    value = whole_number(_field(fields, name), INT32)
    if value is None or value < least:
        raise ValidationError(f"{name}: {fields[name][:20]}: expected a whole number from {least} on")
    return value


def _typed(fields: Fields, wanted: str) -> None:
    if fields.get("typed", "").strip() != wanted:
        raise ValidationError(f"typed: expected {wanted!r}: nothing was changed")


async def save_topic(cluster: Cluster, fields: Fields) -> Done:
    name = _field(fields, "topic")
    queues = _number(fields, "queues", 1)
    permission = PERMISSIONS.get(fields.get("permission", ""))
    if permission is None:
        raise ValidationError(f"permission: expected one of {', '.join(PERMISSIONS)}")
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
    return Done(text, f"/topics/{name}", name, before, f"{queues} queues, {permission}")


async def delete_topics(cluster: Cluster, fields: Fields) -> Done:
    names = [one for one in dict.fromkeys(_field(fields, "topics").split("\n")) if one]
    _typed(fields, names[0] if len(names) == 1 else f"{len(names)} topics")
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
    topic = _field(fields, "topic")
    made = Message(
        topic,
        fields.get("body", "").encode(),
        tags=fields.get("tag", "").strip() or None,
        keys=fields.get("keys", "").split(),
    )
    return await _sent(cluster, made)


async def send_again(cluster: Cluster, fields: Fields) -> Done:
    """A new message with the body and the properties of a stored one."""
    one = await cluster.admin.messages.get(_field(fields, "id"), topic=_field(fields, "topic"))
    return await _sent(cluster, Message(one.topic, bytes(one.body), properties=one.properties))


async def _sent(cluster: Cluster, message: Message) -> Done:
    async with cluster.producer() as producer:
        result = await producer.send(message)
    text = said("done_sent", "good", id=result.message_id, queue=str(result.queue))
    return Done(text, f"/topics/{message.topic}", message.topic, "", result.message_id)


async def save_group(cluster: Cluster, fields: Fields) -> Done:
    name = _field(fields, "group")
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
        max_retries=_number(fields, "retries", 0),
    )
    brokers = await cluster.admin.groups.create(name, settings)
    text = said("done_group", "good", name=name, brokers=", ".join(brokers))
    return Done(text, f"/groups/{name}", name, "" if known is None else _settings(known), _settings(settings))


def _settings(one: GroupSettings) -> str:
    return f"consume {one.consume}, ordered {one.orderly}, retries {one.max_retries}"


async def delete_group(cluster: Cluster, fields: Fields) -> Done:
    name = _field(fields, "group")
    _typed(fields, name)
    await cluster.admin.groups.delete(name, clean_offsets=bool(fields.get("clean")))
    return Done(said("done_deleted", "good", names=name), "/groups", name)


async def reset_group(cluster: Cluster, fields: Fields) -> Done:
    """Make the moves that the preview has shown."""
    plan = cluster.plan(_field(fields, "plan"))
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
        f"/groups/{plan.group}",
        plan.group,
        _places(moved, before=True),
        _places(moved, before=False),
        back,
    )


def _places(moves: Iterable[Move], *, before: bool) -> str:
    return ", ".join(
        f"{one.queue.topic} {one.queue.broker_name}:{one.queue.queue_id} {one.before if before else one.to}"
        for one in moves
    )


async def redrive(cluster: Cluster, fields: Fields) -> Done:
    name = _field(fields, "group")
    rate = _number(fields, "rate", 1) if fields.get("rate", "").strip() else None
    chosen = fields.get("chosen", "").strip()
    jobs = await cluster.admin.dead_letters.redrive(name, only=ranges(chosen), rate=rate)
    text = said("done_redrive", "good", name=name, brokers=", ".join(one.broker_name for one in jobs))
    return Done(text, f"/dead-letters/{name}", name, "", chosen or "all")


async def stop_redrive(cluster: Cluster, fields: Fields) -> Done:
    name = _field(fields, "group")
    await cluster.admin.dead_letters.stop(name)
    return Done(said("done_stopped", "good", name=name), f"/dead-letters/{name}", name)


async def cancel_timer(cluster: Cluster, fields: Fields) -> Done:
    message_id = _field(fields, "id")
    await cluster.admin.timers.cancel(message_id)
    return Done(said("done_cancelled", "good", id=message_id), "/timers", message_id)


async def change_setting(cluster: Cluster, fields: Fields) -> Done:
    """Change one setting of one registered broker."""
    address, key = _field(fields, "address"), _field(fields, "key")
    value = fields.get("value", "")
    if address not in {one.address for one in await cluster.admin.brokers.list()}:
        raise ValidationError(f"address: no broker is registered at {address[:80]}")
    before = (await cluster.admin.brokers.settings(address)).get(key)
    if before is None:
        raise ValidationError(f"key: {key[:80]}: the broker has no such setting")
    await cluster.admin.brokers.change_settings(address, {key: value})
    text = said("done_setting", "good", key=key, value=masked(key, value), address=address)
    return Done(text, f"/brokers/{address}", f"{address} {key}", masked(key, before), masked(key, value))


CHANGES: Final[Mapping[str, Change]] = {
    "topic-save": Change(OPERATOR, "topic", save_topic),
    "topic-delete": Change(ADMIN, "topics", delete_topics),
    "message-send": Change(OPERATOR, "topic", send_message),
    "message-again": Change(OPERATOR, "id", send_again),
    "group-save": Change(OPERATOR, "group", save_group),
    "group-delete": Change(ADMIN, "group", delete_group),
    "group-reset": Change(OPERATOR, "group", reset_group),
    "redrive": Change(OPERATOR, "group", redrive),
    "redrive-stop": Change(OPERATOR, "group", stop_redrive),
    "timer-cancel": Change(OPERATOR, "id", cancel_timer),
    "broker-setting": Change(ADMIN, "address", change_setting),
}
