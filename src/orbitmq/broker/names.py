"""Checks of names that users choose, with RocketMQ's response code and words."""

from __future__ import annotations

from orbitmq.message import reserved
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError


def check_topic(topic: str) -> None:
    """Refuse a topic name that RocketMQ would refuse (behaviour MV-03).

    Raises:
        RemotingError: INVALID_PARAMETER with the rule that is broken.
    """
    _refuse(reserved.topic_fault(topic))


def check_group(group: str) -> None:
    """Refuse a group name that RocketMQ would refuse (behaviour MV-04).

    Raises:
        RemotingError: INVALID_PARAMETER with the rule that is broken.
    """
    _refuse(reserved.group_fault(group))


def _refuse(fault: str | None) -> None:
    if fault is not None:
        raise RemotingError(ResponseCode.INVALID_PARAMETER, fault)
