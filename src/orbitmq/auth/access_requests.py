"""Handles the requests about users and rules (3001 to 3010), whose sender the gate has checked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

from orbitmq.auth import rules, users
from orbitmq.auth.gate import AuthGate
from orbitmq.auth.rules import USER, Acl, PolicyType, Resource, Rules, one_of, user_of
from orbitmq.auth.users import Users
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.auth import AclInfo, UserInfo
from orbitmq.wire.bodies.base import encode_list
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError

Answer: TypeAlias = Command | Awaitable[Command]
# The most changes, passed on by slaves, that are remembered until the tool sends them to this broker as well.
MAX_PASSED: Final = 100


class AccessRequests:
    """Changes and lists users and rules. No answer has a secret, except those of ``revealing``.

    RocketMQ's tools send a change to a master and its slaves, in any order, and stop at the first failure. A
    slave passes the change on to its master, so the master gets it several times: each is answered with
    success.

    Args:
        written: returns when the changes of the named tables are on disk.

    Attributes:
        looks: the handlers of the requests that change nothing, by their codes.
        revealing: handlers for the same codes that show secrets, but only to super users.
        by_code: the handler of each request code.
    """

    def __init__(
        self, users: Users, rules: Rules, gate: AuthGate, written: Callable[..., Awaitable[object]]
    ) -> None:
        self._users = users
        self._rules = rules
        self._gate = gate
        self._await_written = written
        self.looks: dict[int, Callable[[Command], Answer]] = {
            RequestCode.AUTH_GET_USER: self._user,
            RequestCode.AUTH_LIST_USER: self._list_users,
            RequestCode.AUTH_GET_ACL: self._rules_of,
            RequestCode.AUTH_LIST_ACL: self._list_rules,
        }
        self.revealing: dict[int, Callable[[Command], Answer]] = {
            RequestCode.AUTH_GET_USER: partial(self._user, reveals=True),
            RequestCode.AUTH_LIST_USER: partial(self._list_users, reveals=True),
        }
        self._passed: dict[tuple[int, str], None] = {}
        self.by_code: dict[int, Callable[[Command], Answer]] = {
            **self.looks,
            RequestCode.AUTH_CREATE_USER: self._create_user,
            RequestCode.AUTH_UPDATE_USER: self._update_user,
            RequestCode.AUTH_DELETE_USER: self._delete_user,
            RequestCode.AUTH_CREATE_ACL: self._add_rules,
            RequestCode.AUTH_UPDATE_ACL: self._add_rules,
            RequestCode.AUTH_DELETE_ACL: self._delete_rules,
        }

    # -- users -------------------------------------------------------------------------------------------

    def _create_user(self, command: Command) -> Answer:
        """Create a user; without a type it is a normal one."""
        name = headers.AuthCreateUserRequest.from_ext(command.ext).username
        again = self._comes_again(command, name)
        self._users.create(name, UserInfo.decode(command.body), self._gate.identity(command), again=again)
        return self._written(command, users.TABLE)

    def _update_user(self, command: Command) -> Answer:
        """Change the password, type or status of a user; a field that the body lacks stays."""
        name = headers.AuthUpdateUserRequest.from_ext(command.ext).username
        self._users.update(name, UserInfo.decode(command.body), self._gate.identity(command))
        return self._written(command, users.TABLE)

    def _delete_user(self, command: Command) -> Answer:
        """Remove a user with all its rules. For an unknown user the answer is a success, too."""
        name = headers.AuthDeleteUserRequest.from_ext(command.ext).username
        self._users.delete(name, self._gate.identity(command))
        self._rules.remove(name)
        return self._written(command, rules.TABLE, users.TABLE)

    def _user(self, command: Command, *, reveals: bool = False) -> Answer:
        """One user; the answer is empty if there is none."""
        name = headers.AuthGetUserRequest.from_ext(command.ext).username
        if not name.strip():
            raise RemotingError(ResponseCode.INVALID_PARAMETER, "The username is blank")
        found = self._users.get(name)
        secret = reveals and self._gate.identity(command).is_super
        return command.reply(body=b"" if found is None else found.shown(secret=secret).encode())

    def _list_users(self, command: Command, *, reveals: bool = False) -> Answer:
        """The users whose names contain the filter; the answer is empty if there is none."""
        wanted = headers.AuthListUserRequest.from_ext(command.ext).filter
        secret = reveals and self._gate.identity(command).is_super
        found = [user.shown(secret=secret) for user in self._users.all() if wanted in user.name]
        return command.reply(body=encode_list(found) if found else b"")

    # -- rules -------------------------------------------------------------------------------------------

    def _add_rules(self, command: Command) -> Answer:
        """Add rules to a user, replacing those about the same resources, for both create and update."""
        info = AclInfo.decode(command.body)
        name = self._known(info.subject or headers.AuthCreateAclRequest.from_ext(command.ext).subject)
        self._rules.add(name, Acl.of(info))
        return self._written(command, rules.TABLE)

    def _delete_rules(self, command: Command) -> Answer:
        """Remove all rules of a user, or its rules about one resource."""
        header = headers.AuthDeleteAclRequest.from_ext(command.ext)
        name = self._known(header.subject)
        again = self._comes_again(command, name)
        acl = self._rules.get(name)
        if acl is None and again:
            return self._written(command, rules.TABLE)
        if acl is None:
            raise RemotingError(ResponseCode.NO_PERMISSION, "The acl is not exist.")
        if header.resource:
            kind = one_of(PolicyType, "policyType", header.policy_type or PolicyType.CUSTOM)
            acl = acl.without(kind, Resource.parse(header.resource))
        else:
            acl = None
        if acl is None:
            self._rules.remove(name)
        else:
            self._rules.put(name, acl)
        return self._written(command, rules.TABLE)

    def _rules_of(self, command: Command) -> Answer:
        """The rules of one user; the answer is empty if there are none."""
        name = user_of(headers.AuthGetAclRequest.from_ext(command.ext).subject)
        if self._users.get(name) is None:
            raise RemotingError(ResponseCode.NO_PERMISSION, "The subject is not exist.")
        acl = self._rules.get(name)
        return command.reply(body=b"" if acl is None else acl.shown(name).encode())

    def _list_rules(self, command: Command) -> Answer:
        """The rules whose subject and resource contain the filters; the answer is empty if there are none."""
        header = headers.AuthListAclRequest.from_ext(command.ext)
        shown = [
            acl.shown(name, header.resource_filter)
            for name, acl in self._rules.all()
            if header.subject_filter in USER + name
        ]
        found = [info for info in shown if info.policies]
        return command.reply(body=encode_list(found) if found else b"")

    def _comes_again(self, command: Command, name: str) -> bool:
        """Whether a slave of this broker may have passed on the same change before."""
        place = command.code, name
        if not self._gate.sender(command, "").passed_by:
            noted = place in self._passed
            self._passed.pop(place, None)
            return noted
        self._passed[place] = None
        if len(self._passed) > MAX_PASSED:
            del self._passed[next(iter(self._passed))]
        return True

    def _known(self, subject: str) -> str:
        name = user_of(subject)
        if self._users.get(name) is None:
            raise RemotingError(ResponseCode.NO_PERMISSION, f"The subject of {USER}{name[:80]} is not exist.")
        return name

    async def _written(self, command: Command, *tables: str) -> Command:
        await self._await_written(*tables)
        return command.reply()
