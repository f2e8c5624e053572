"""The requests that count as changes, and the description of their targets for an audit log. No I/O."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeAlias

from orbitmq.auth.rules import USER, Asked, Rules, user_of
from orbitmq.auth.users import Users
from orbitmq.wire.bodies.auth import AclInfo
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError, WireError
from orbitmq.wire.signing import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE

# The changes that people make. Requests that clients and brokers send by themselves are in no audit log:
# sends, offsets, topics created by sends, registrations, heartbeats.
CHANGES: Final = frozenset(
    {
        Code.UPDATE_AND_CREATE_TOPIC,
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
        Code.DELETE_TOPIC_IN_BROKER,
        Code.DELETE_TOPIC_IN_NAMESRV,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        Code.DELETE_SUBSCRIPTIONGROUP,
        Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
        Code.CLONE_GROUP_OFFSET,
        Code.SET_MESSAGE_REQUEST_MODE,
        Code.CONSUME_MESSAGE_DIRECTLY,
        Code.RESUME_CHECK_HALF_MESSAGE,
        Code.CLEAN_EXPIRED_CONSUMEQUEUE,
        Code.CLEAN_UNUSED_TOPIC,
        Code.DELETE_EXPIRED_COMMITLOG,
        Code.UPDATE_BROKER_CONFIG,
        Code.UPDATE_NAMESRV_CONFIG,
        Code.PUT_KV_CONFIG,
        Code.DELETE_KV_CONFIG,
        Code.WIPE_WRITE_PERM_OF_BROKER,
        Code.ADD_WRITE_PERM_OF_BROKER,
        Code.AUTH_CREATE_USER,
        Code.AUTH_UPDATE_USER,
        Code.AUTH_DELETE_USER,
        Code.AUTH_CREATE_ACL,
        Code.AUTH_UPDATE_ACL,
        Code.AUTH_DELETE_ACL,
        Code.UPDATE_AND_CREATE_ACL_CONFIG,
        Code.DELETE_ACL_CONFIG,
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        Code.START_REDRIVE,
        Code.CHANGE_REDRIVE,
        Code.SET_QUOTA,
    }
)
# The limits of one line: of a text chosen by a peer, of the number of targets, of the state before or after.
MAX_TEXT: Final = 200
MAX_TARGETS: Final = 100
MAX_STATE_BYTES: Final = 8_192
_OF_SIGNING: Final = frozenset({ACCESS_KEY, SIGNATURE, SECURITY_TOKEN})

# Returns the present state of a request's targets, by names such as "Topic:orders"; None for a missing
# target.
Look: TypeAlias = Callable[[Command], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Sights:
    """The descriptions of the targets of changes at one server.

    Attributes:
        asked: returns the rights that a request needs (:func:`orbitmq.auth.needs.asked_of`), which name the
            targets of a request code without a look.
        looks: by request code, the function that returns the targets' state.
    """

    asked: Callable[[Command], Iterable[Asked] | None] = lambda _command: None
    looks: Mapping[int, Look] = field(default_factory=dict)

    def targets(self, command: Command) -> dict[str, Any]:
        """The ``target`` of a request, with its present state or, without a look, the request's fields."""
        try:
            look = self.looks.get(command.code)
            if look is not None:
                return {**_targets(state := look(command)), "before": limited(state)}
            named = _targets(str(asked) for asked in self.asked(command) or ())
        except (RemotingError, WireError, ValueError):
            # The handler will refuse the request.
            named = {}
        fields = {key: text(value) for key, value in command.ext.items() if key not in _OF_SIGNING}
        return {**named, "fields": limited(fields)} if fields else named

    def state(self, command: Command) -> object:
        """The present state of the request's target; None if the request's code has no look."""
        look = self.looks.get(command.code)
        try:
            return None if look is None else limited(look(command))
        except (RemotingError, WireError, ValueError):
            return None


def _targets(names: Iterable[str]) -> dict[str, Any]:
    found = [text(name) for name in islice(dict.fromkeys(names), MAX_TARGETS + 1)]
    return {"target": [*found[:MAX_TARGETS], "..."] if len(found) > MAX_TARGETS else found}


def limited(state: Mapping[str, Any]) -> object:
    """The state; a state that is too long for a line is replaced by its size."""
    size = len(json.dumps(state))
    return state if size <= MAX_STATE_BYTES else f"left out: {size} bytes, the limit is {MAX_STATE_BYTES}"


def text(value: str) -> str:
    """A text chosen by a peer, cut to the length that a line may show."""
    return value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}..."


def name_of(code: int) -> str:
    """The name of a request code; empty for an unknown code."""
    return Code(code).name if code in Code.__members__.values() else ""


def access_looks(users: Users, rules: Rules) -> dict[int, Look]:
    """The looks of the requests about users and rules, by request code. Their states have no secrets."""

    def of_user(name: str) -> dict[str, Any]:
        found = users.get(name)
        return {text(f"{USER}{name}"): None if found is None else found.shown().to_plain()}

    def user(command: Command) -> dict[str, Any]:
        return of_user(command.ext.get("username", ""))

    def acl(name: str) -> dict[str, Any]:
        found = rules.get(name)
        return {text(f"rules of {USER}{name}"): None if found is None else found.plain()}

    def user_and_rules(command: Command) -> dict[str, Any]:
        return {**user(command), **acl(command.ext.get("username", ""))}

    def account(command: Command) -> dict[str, Any]:
        return of_user(name := command.ext.get("accessKey", "")) | acl(name)

    def added(command: Command) -> dict[str, Any]:
        return acl(user_of(AclInfo.decode(command.body).subject or command.ext.get("subject")))

    def deleted(command: Command) -> dict[str, Any]:
        return acl(user_of(command.ext.get("subject")))

    return {
        Code.AUTH_CREATE_USER: user,
        Code.AUTH_UPDATE_USER: user,
        Code.AUTH_DELETE_USER: user_and_rules,
        Code.AUTH_CREATE_ACL: added,
        Code.AUTH_UPDATE_ACL: added,
        Code.AUTH_DELETE_ACL: deleted,
        Code.UPDATE_AND_CREATE_ACL_CONFIG: account,
        Code.DELETE_ACL_CONFIG: account,
    }


def settings_look(shown: Callable[[], Mapping[str, str]], parse: Callable[[str], Mapping[str, str]]) -> Look:
    """The look of a change of settings.

    Args:
        shown: returns the present settings, with masked secrets.
        parse: reads the request's body.
    """

    def look(command: Command) -> dict[str, Any]:
        present = shown()
        return {text(key): present.get(key) for key in islice(parse(command.body.decode()), MAX_TARGETS)}

    return look
