"""The headers of OrbitMQ's requests about quotas, which RocketMQ does not have."""

from __future__ import annotations

from typing import ClassVar

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.base import RequestHeader

__all__ = ["ListQuotasRequest", "SetQuotaRequest"]


class SetQuotaRequest(RequestHeader, kw_only=True):
    """SET_QUOTA (31005), admin to broker. The body is a quota; a quota without limits removes the present
    one."""

    code: ClassVar[int] = RequestCode.SET_QUOTA


class ListQuotasRequest(RequestHeader, kw_only=True):
    """LIST_QUOTAS (31006), admin to broker."""

    code: ClassVar[int] = RequestCode.LIST_QUOTAS
