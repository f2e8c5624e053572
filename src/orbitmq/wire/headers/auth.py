"""The headers of requests about users and rules. Java may send an empty name, so no field is required."""

from __future__ import annotations

from typing import ClassVar

from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.base import RequestHeader, ResponseHeader

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
    "DeleteAclConfigRequest",
    "GetBrokerAclConfigResponse",
    "UpdateAndCreateAclConfigRequest",
    "UpdateGlobalWhiteAddrsConfigRequest",
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
    """AUTH_LIST_USER (3005), admin to broker. Lists users whose names contain ``filter``."""

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
    """AUTH_DELETE_ACL (3008), admin to broker. Without ``resource`` it deletes all rules of the subject."""

    code: ClassVar[int] = RequestCode.AUTH_DELETE_ACL

    subject: str = ""
    policy_type: str = ""
    resource: str = ""


class AuthGetAclRequest(RequestHeader, kw_only=True):
    """AUTH_GET_ACL (3009), admin to broker."""

    code: ClassVar[int] = RequestCode.AUTH_GET_ACL

    subject: str = ""


class AuthListAclRequest(RequestHeader, kw_only=True):
    """AUTH_LIST_ACL (3010), admin to broker. Lists rules whose subjects and resources contain the filters."""

    code: ClassVar[int] = RequestCode.AUTH_LIST_ACL

    subject_filter: str = ""
    resource_filter: str = ""


class UpdateAndCreateAclConfigRequest(RequestHeader, kw_only=True):
    """UPDATE_AND_CREATE_ACL_CONFIG (50), admin to broker: an account of ACL 1.0.

    Attributes:
        topic_perms, group_perms: permissions such as ``orders=PUB|SUB,bills=SUB``.
    """

    code: ClassVar[int] = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None


class DeleteAclConfigRequest(RequestHeader, kw_only=True):
    """DELETE_ACL_CONFIG (51), admin to broker."""

    code: ClassVar[int] = RequestCode.DELETE_ACL_CONFIG

    access_key: str


class UpdateGlobalWhiteAddrsConfigRequest(RequestHeader, kw_only=True):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53), admin to broker. Without a path it changes plain_acl.yml."""

    code: ClassVar[int] = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG

    global_white_addrs: str
    acl_file_full_path: str | None = None


class GetBrokerAclConfigResponse(ResponseHeader, kw_only=True):
    """Answer to GET_BROKER_CLUSTER_ACL_INFO (52).

    Attributes:
        version: the version of plain_acl.yml, as JSON.
        all_acl_file_version: the versions of all files by their paths, as JSON.
    """

    version: str
    all_acl_file_version: str | None = None
    broker_name: str
    broker_addr: str
    cluster_name: str
