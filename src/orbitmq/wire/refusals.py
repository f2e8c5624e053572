"""Makes the error for an answer that is not a success, with the request's topic, group and user in its
text."""

from __future__ import annotations

import re
from typing import Final

from orbitmq.errors import BrokerError, NotPermittedError
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, Language
from orbitmq.wire.signing import ACCESS_KEY

# Remarks about the user, which ACL 2.0 sends with NO_PERMISSION. Other remarks of that code are about a
# topic, a group or a broker that is closed to every user; another broker may serve the request then.
_OF_A_USER = re.compile(r"^User:|^check signature failed|^username |^authentication failed", re.IGNORECASE)
_NOT_CHANGED = "Can not update config: "
# ACL 1.0 refuses by an exception, which is answered SYSTEM_ERROR.
_ACL_1 = "AclException"
# The user in such a remark; a certificate may have named it.
_NAMED = re.compile(r"^User:(\S+) ", re.IGNORECASE)
# Remarks about wrong keys, not about missing rights.
_OF_KEYS = re.compile(r"signature|not found|authentication failed", re.IGNORECASE)
# The requests whose header fields have one-letter names.
_SENDS = frozenset(
    {RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2}
)
# The remarks with which an Apache broker without users answers requests about users, and about rules.
_NO_USERS = re.compile(
    r"^An system error occurred, please try again later\.$|MetadataProvider is not configured"
)
_NOT_OFFERED = "not offered by this broker"
_OF_USERS = range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1)
# The requests that OrbitMQ's brokers answer even if their users come from files.
_LOOKS_AT_USERS: Final = frozenset(
    {
        RequestCode.AUTH_GET_USER,
        RequestCode.AUTH_LIST_USER,
        RequestCode.AUTH_GET_ACL,
        RequestCode.AUTH_LIST_ACL,
    }
)
_TOPICS, _GROUPS = ("topic",), ("consumerGroup", "group", "producerGroup")


def refuses_user(code: int, remark: str | None) -> bool:
    """Whether an answer refuses the client's keys or rights, as every server of the cluster would."""
    if code == ResponseCode.NO_PERMISSION:
        return _OF_A_USER.search(remark or "") is not None
    return code == ResponseCode.SYSTEM_ERROR and _ACL_1 in (remark or "")


def is_not_offered(error: BrokerError) -> bool:
    """Whether an error of :func:`error_of` is that the broker does not offer the request."""
    return error.remark.startswith(_NOT_OFFERED)


def error_of(request: Command, answer: Command, address: str) -> BrokerError:
    """The error for an answer that is not a success.

    Args:
        request: the request as it was sent, with the fields of its signature.
    """
    of_users = request.code in _OF_USERS
    without_users = (
        of_users
        and answer.code == ResponseCode.SYSTEM_ERROR
        and _NO_USERS.search(answer.remark or "") is not None
    )
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED or without_users:
        hint = _why_no_users(request.code, answer) if of_users else ""
        return BrokerError(answer.code, f"{_NOT_OFFERED} (code {request.code}){hint}", address)
    if answer.code != ResponseCode.NO_PERMISSION and not refuses_user(answer.code, answer.remark):
        return BrokerError(answer.code, answer.remark, address)
    remark, what = answer.remark or "no remark", _what(request)
    user = request.ext.get(ACCESS_KEY, "")
    if not user and (named := _NAMED.match(remark)):
        user = named[1]
    if remark.startswith(_NOT_CHANGED):
        # RocketMQ answers a wrong setting like one that may not be changed: with NO_PERMISSION.
        text = f"{address}: {remark}"
    elif not refuses_user(answer.code, answer.remark):
        text = f"{address} does not permit {what}: {remark}"
    elif not user:
        text = f"{address} does not permit {what} to a client without credentials: {remark}"
    elif _OF_KEYS.search(remark):
        text = f"{address} refuses {what}: the access key {user!r} or its secret key is wrong: {remark}"
    else:
        text = f"{address} does not permit {what} to {user!r}: {remark}"
    return NotPermittedError(
        text, code=answer.code, remark=answer.remark, address=address, user=user, what=what
    )


def _why_no_users(code: int, answer: Command) -> str:
    if answer.language != Language.PYTHON:
        return "; only brokers with authenticationEnabled=true have users"
    if code in _LOOKS_AT_USERS:
        return (
            ": authentication is off; authenticationEnabled=true and initAuthenticationUser switch it on "
            "(docs/security.md)"
        )
    return ": authentication is off (authenticationEnabled=true), or users come from files (aclEnable=true)"


def _what(request: Command) -> str:
    """The name of the request, with its topic and its group."""
    try:
        parts = [RequestCode(request.code).name]
    except ValueError:
        parts = [f"request {request.code}"]
    sends = request.code in _SENDS
    for called, names in (("topic", ("b",) if sends else _TOPICS), ("group", ("a",) if sends else _GROUPS)):
        parts += [f"{called} {request.ext[name]}" for name in names if request.ext.get(name)][:1]
    return ", ".join(parts)
