"""Users and access rules: typed headers. Required fields come first."""

from __future__ import annotations

from typing import ClassVar

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.base import RequestHeader

__all__ = [
    "AuthCreateAclRequest",
    "AuthCreateUserRequest",
    "AuthDeleteAclRequest",
    "AuthDeleteUserRequest",
    "AuthGetAclRequest",
    "AuthGetUserRequest",
    "AuthListAclRequest",
    "AuthListUserRequest",
    "AuthUpdateAclRequest",
    "AuthUpdateUserRequest",
]


class AuthCreateUserRequest(RequestHeader, kw_only=True):
    """AUTH_CREATE_USER (3001), admin to broker."""

    code: ClassVar[int] = RequestCode.AUTH_CREATE_USER

    username: str | None = None


class AuthUpdateUserRequest(RequestHeader, kw_only=True):
    """AUTH_UPDATE_USER (3002), admin to broker."""

    code: ClassVar[int] = RequestCode.AUTH_UPDATE_USER

    username: str | None = None


class AuthDeleteUserRequest(RequestHeader, kw_only=True):
    """AUTH_DELETE_USER (3003), admin to broker."""

    code: ClassVar[int] = RequestCode.AUTH_DELETE_USER

    username: str | None = None


class AuthGetUserRequest(RequestHeader, kw_only=True):
    """AUTH_GET_USER (3004), admin to broker."""

    code: ClassVar[int] = RequestCode.AUTH_GET_USER

    username: str | None = None


class AuthListUserRequest(RequestHeader, kw_only=True):
    """AUTH_LIST_USER (3005), admin to broker."""

    code: ClassVar[int] = RequestCode.AUTH_LIST_USER

    filter: str | None = None


class AuthCreateAclRequest(RequestHeader, kw_only=True):
    """AUTH_CREATE_ACL (3006), admin to broker."""

    code: ClassVar[int] = RequestCode.AUTH_CREATE_ACL

    subject: str | None = None


class AuthUpdateAclRequest(RequestHeader, kw_only=True):
    """AUTH_UPDATE_ACL (3007), admin to broker."""

    code: ClassVar[int] = RequestCode.AUTH_UPDATE_ACL

    subject: str | None = None


class AuthDeleteAclRequest(RequestHeader, kw_only=True):
    """AUTH_DELETE_ACL (3008), admin to broker."""

    code: ClassVar[int] = RequestCode.AUTH_DELETE_ACL

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class AuthGetAclRequest(RequestHeader, kw_only=True):
    """AUTH_GET_ACL (3009), admin to broker."""

    code: ClassVar[int] = RequestCode.AUTH_GET_ACL

    subject: str | None = None


class AuthListAclRequest(RequestHeader, kw_only=True):
    """AUTH_LIST_ACL (3010), admin to broker."""

    code: ClassVar[int] = RequestCode.AUTH_LIST_ACL

    subject_filter: str | None = None
    resource_filter: str | None = None
