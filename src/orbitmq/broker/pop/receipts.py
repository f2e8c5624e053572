"""Receipts: texts that a client sends back with a popped message, and checks of them."""

from __future__ import annotations

from orbitmq.broker.messaging.room import fitted
from orbitmq.broker.role import RoleState
from orbitmq.message import property_names
from orbitmq.message.properties import decode_properties
from orbitmq.message.record import Record
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.pop_info import ExtraInfo

# The shortest and the longest invisible time; RocketMQ's check points are timers (timerMaxDelaySec).
INVISIBLE_LIMITS_MS = (1, 3 * 24 * 3600 * 1000)


def revive_queue(pop_time_ms: int, queues: int) -> int:
    """The revive queue for the check point of a pop, computed from the pop's time."""
    return pop_time_ms % queues


def check_leads(role: RoleState) -> None:
    """Refuse a request at a slave: its master has the messages in flight.

    Raises:
        RemotingError: SLAVE_NOT_AVAILABLE.
    """
    if not role.leads:
        raise RemotingError(
            ResponseCode.SLAVE_NOT_AVAILABLE,
            f"this broker is a {role.role.value}: its master deals messages out",
        )


def check_invisible_time(invisible_ms: int) -> None:
    """Refuse a time outside of :data:`INVISIBLE_LIMITS_MS`.

    Raises:
        RemotingError: INVALID_PARAMETER.
    """
    low, high = INVISIBLE_LIMITS_MS
    if not low <= invisible_ms <= high:
        raise RemotingError(
            ResponseCode.INVALID_PARAMETER, f"invisibleTime {invisible_ms} ms: limits {low} to {high} ms"
        )


def with_receipt(record: Record, receipt: ExtraInfo) -> bytes | None:
    """The properties with which a pop hands out a message of a retry topic; ``None``: no room for them."""
    properties = decode_properties(record.properties)
    properties[property_names.POP_CK] = receipt.encode()
    return fitted(properties)
