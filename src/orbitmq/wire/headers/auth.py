"""Users and rules: typed headers. Java sends a blank name too, so nothing is required."""

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


class _OfUser(RequestHeader, kw_only=True):
    username: str = ""


class AuthCreateUserRequest(_OfUser, kw_only=True):
    """AUTH_CREATE_USER (3001), admin to broker."""

    code: ClassVar[int] = RequestCode.AUTH_CREATE_USER


class AuthUpdateUserRequest(_OfUser, kw_only=True):
    """AUTH_UPDATE_USER (3002), admin to broker."""

    code: ClassVar[int] = RequestCode.AUTH_UPDATE_USER


class AuthDeleteUserRequest(_OfUser, kw_only=True):
    """AUTH_DELETE_USER (3003), admin to broker."""

    code: ClassVar[int] = RequestCode.AUTH_DELETE_USER


class AuthGetUserRequest(_OfUser, kw_only=True):
    """AUTH_GET_USER (3004), admin to broker."""

    code: ClassVar[int] = RequestCode.AUTH_GET_USER


class AuthListUserRequest(RequestHeader, kw_only=True):
    """AUTH_LIST_USER (3005), admin to broker. Names that contain ``filter``."""

    code: ClassVar[int] = RequestCode.AUTH_LIST_USER

    filter: str = ""


class AuthCreateAclRequest(RequestHeader, kw_only=True):
    """AUTH_CREATE_ACL (3006), admin to broker."""

    code: ClassVar[int] = RequestCode.AUTH_CREATE_ACL

    subject: str = ""


class AuthUpdateAclRequest(RequestHeader, kw_only=True):
    """AUTH_UPDATE_ACL (3007), admin to broker."""

    code: ClassVar[int] = RequestCode.AUTH_UPDATE_ACL

    subject: str = ""


class AuthDeleteAclRequest(RequestHeader, kw_only=True):
    """AUTH_DELETE_ACL (3008), admin to broker. Without ``resource`` all rules of the subject."""

    code: ClassVar[int] = RequestCode.AUTH_DELETE_ACL

    subject: str = ""
    policy_type: str = ""
    resource: str = ""


class AuthGetAclRequest(RequestHeader, kw_only=True):
    """AUTH_GET_ACL (3009), admin to broker."""

    code: ClassVar[int] = RequestCode.AUTH_GET_ACL

    subject: str = ""


class AuthListAclRequest(RequestHeader, kw_only=True):
    """AUTH_LIST_ACL (3010), admin to broker. Subjects and resources that contain the filters."""

    code: ClassVar[int] = RequestCode.AUTH_LIST_ACL

    subject_filter: str = ""
    resource_filter: str = ""
