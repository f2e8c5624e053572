"""The form of a message sent to a master of another group, and the choice of that master (no I/O)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orbitmq.broker.timers.units import latest_ms
from orbitmq.message import property_names, reserved, sysflag
from orbitmq.message.numbers import INT32, whole_number
from orbitmq.message.properties import properties_text
from orbitmq.store import NewMessage, PutStatus
from orbitmq.wire.bodies.route import TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers.send import SendMessageV2Request

if TYPE_CHECKING:
    from random import Random

DEFAULT_TOPIC_QUEUES = 8
# Properties that made the message wait in this log; sent along, they would make it wait once more (TX-04).
_PLACES = frozenset(
    {
        property_names.REAL_TOPIC,
        property_names.REAL_QUEUE_ID,
        property_names.DELIVERY_OF,
        property_names.TRANSACTION_PREPARED_QUEUE_OFFSET,
    }
)
_TIMES = frozenset(
    {
        property_names.DELAY,
        *property_names.TIMER_PROPERTIES,
        property_names.TIMER_ENQUEUE_MS,
        property_names.TIMER_DEQUEUE_MS,
        property_names.TIMER_ROLL_TIMES,
        property_names.TIMER_CUT_MS,
        property_names.TIMER_OUT_MS,
        property_names.TIMER_DELAY_LEVEL,
    }
)
# Answers of a master that has the message in its log (EscapeBridge.transformSendResult2PutResult, ES-08).
STORED: Mapping[int, PutStatus] = {
    ResponseCode.SUCCESS: PutStatus.OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: PutStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: PutStatus.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: PutStatus.FLUSH_SLAVE_TIMEOUT,
}


@dataclass(frozen=True, slots=True)
class Target:
    """A master that has the topic.

    Attributes:
        queues: how many of the topic's queues take messages there.
    """

    broker_name: str
    address: str
    queues: int


def targets(route: TopicRouteData, own_name: str) -> list[Target]:
    """The masters of other groups that take messages of a topic (ES-04)."""
    masters = {
        data.broker_name: data.broker_addrs[reserved.MASTER_ID]
        for data in route.broker_datas
        if reserved.MASTER_ID in data.broker_addrs
    }
    return [
        Target(queue.broker_name, masters[queue.broker_name], queue.write_queue_nums)
        for queue in route.queue_datas
        if queue.perm & reserved.PERM_WRITE
        and queue.write_queue_nums > 0
        and queue.broker_name in masters
        and queue.broker_name != own_name
    ]


def choose(candidates: Sequence[Target], tried: str, chance: Random) -> Target:
    """One of the candidates, not the broker that was tried last if there is another."""
    others = [target for target in candidates if target.broker_name != tried]
    return chance.choice(others or candidates)


def outward(message: NewMessage, properties: Mapping[str, str]) -> tuple[NewMessage, dict[str, str]]:
    """The message and its properties in the form for another master.

    A timer message that would go back into the timer topic for another wait gets the form in which its
    producer sent it: the other master lets it wait. That master answers when the message is as safe as its
    settings promise (RocketMQ's broker sets WAIT=false, this one does not): only then does the progress here
    move on.
    """
    half = sysflag.transaction_of(message.sys_flag) == sysflag.TRANSACTION_PREPARED
    removed = {property_names.WAIT} | _PLACES
    if not half:
        # The delay of a half message begins when its transaction is committed. A committed message still
        # carries the half message's mark in the log; with that mark the other master would take it for a half
        # message.
        removed |= _TIMES | {property_names.TRANSACTION_PREPARED}
    kept = {name: value for name, value in properties.items() if name not in removed}
    slot_ms = whole_number(properties.get(property_names.TIMER_OUT_MS, ""))
    if message.topic == reserved.TIMER_TOPIC and slot_ms is not None:
        wanted = properties.get(property_names.TIMER_DELIVER_MS, "")
        kept[property_names.TIMER_DELIVER_MS] = _deliver_at(slot_ms, wanted)
        queue = whole_number(properties.get(property_names.REAL_QUEUE_ID, ""), INT32) or 0
        topic = properties.get(property_names.REAL_TOPIC, message.topic)
        message = replace(message, topic=topic, queue_id=queue)
    return message, kept


def _deliver_at(slot_ms: int, wanted: str) -> str:
    """The delivery time of a slot's message: the time that its producer requested if that lies in the slot's
    second, else the end of that second."""
    end = latest_ms(slot_ms)
    asked = whole_number(wanted)
    return str(asked) if asked is not None and slot_ms < asked <= end else str(end)


def request(
    message: NewMessage,
    properties: Mapping[str, str],
    target: Target,
    group: str,
    limit: int | None,
    queue: int,
) -> SendMessageV2Request:
    """The request that sends a message made by :func:`outward` (ES-03).

    Args:
        group: the producer group for a message that names none.
        limit: the maximum of deliveries of a retry message, after which it becomes a dead letter.
    """
    return SendMessageV2Request(
        producer_group=properties.get(property_names.PRODUCER_GROUP) or group,
        topic=message.topic,
        default_topic=reserved.AUTO_CREATE_TOPIC,
        default_topic_queue_nums=DEFAULT_TOPIC_QUEUES,
        queue_id=queue % target.queues,
        sys_flag=message.sys_flag,
        born_timestamp=message.born_timestamp,
        flag=message.flag,
        properties=properties_text(properties),
        reconsume_times=message.reconsume_times,
        unit_mode=False,
        max_reconsume_times=limit,
        batch=False,
        broker_name=target.broker_name,
    )
