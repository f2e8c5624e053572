"""The headers of OrbitMQ's requests about redrives, which send dead letters again."""

from __future__ import annotations

from typing import ClassVar

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.base import RequestHeader

__all__ = ["ChangeRedriveRequest", "ListRedrivesRequest", "StartRedriveRequest"]


class StartRedriveRequest(RequestHeader, kw_only=True):
    """START_REDRIVE (31001), admin to broker."""

    code: ClassVar[int] = RequestCode.START_REDRIVE


class ListRedrivesRequest(RequestHeader, kw_only=True):
    """LIST_REDRIVES (31002), admin to broker."""

    code: ClassVar[int] = RequestCode.LIST_REDRIVES


class ChangeRedriveRequest(RequestHeader, kw_only=True):
    """CHANGE_REDRIVE (31003), admin to broker. ``action`` is PAUSE, RESUME or STOP."""

    code: ClassVar[int] = RequestCode.CHANGE_REDRIVE

    group: str
    action: str
