"""Users and rules (AdminBrokerProcessor, 3001 to 3010). The gate has checked the sender."""

from __future__ import annotations

from orbitmq.auth.gate import Gate
from orbitmq.auth.rules import USER, Acl, PolicyType, Resource, one_of, user_of
from orbitmq.broker.access.tables import Access
from orbitmq.broker.change_feed import ACLS, USERS
from orbitmq.broker.handlers.base import Answer, Family, Handler
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.auth import AclInfo, UserInfo
from orbitmq.wire.bodies.base import encode_list
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError


class AccessHandlers(Family):
    """Changes and listings. No answer has a secret."""

    def __init__(self, access: Access, gate: Gate) -> None:
        self._access = access
        self._users = access.users
        self._rules = access.rules
        self._gate = gate

    def routes(self) -> dict[int, Handler]:
        return {
            RequestCode.AUTH_CREATE_USER: self.create_user,
            RequestCode.AUTH_UPDATE_USER: self.update_user,
            RequestCode.AUTH_DELETE_USER: self.delete_user,
            RequestCode.AUTH_GET_USER: self.user,
            RequestCode.AUTH_LIST_USER: self.list_users,
            RequestCode.AUTH_CREATE_ACL: self.add_rules,
            RequestCode.AUTH_UPDATE_ACL: self.add_rules,
            RequestCode.AUTH_DELETE_ACL: self.delete_rules,
            RequestCode.AUTH_GET_ACL: self.rules,
            RequestCode.AUTH_LIST_ACL: self.list_rules,
        }

    # -- users -------------------------------------------------------------------------------------------

    def create_user(self, _connection: ServerConnection, command: Command) -> Answer:
        """Make a user; without a type a normal one."""
        name = headers.AuthCreateUserRequest.from_ext(command.ext).username
        self._users.create(name, UserInfo.decode(command.body), self._gate.identity(command))
        return self._written(command, USERS)

    def update_user(self, _connection: ServerConnection, command: Command) -> Answer:
        """Change password, type or status; what the body leaves out stays."""
        name = headers.AuthUpdateUserRequest.from_ext(command.ext).username
        self._users.update(name, UserInfo.decode(command.body), self._gate.identity(command))
        return self._written(command, USERS)

    def delete_user(self, _connection: ServerConnection, command: Command) -> Answer:
        """Remove a user and his rules. One that is not there is a success."""
        name = headers.AuthDeleteUserRequest.from_ext(command.ext).username
        self._users.delete(name, self._gate.identity(command))
        self._rules.remove(name)
        return self._written(command, USERS, ACLS)

    def user(self, _connection: ServerConnection, command: Command) -> Answer:
        """One user; an empty answer when there is none."""
        name = headers.AuthGetUserRequest.from_ext(command.ext).username
        if not name.strip():
            raise RemotingError(ResponseCode.INVALID_PARAMETER, "The username is blank")
        found = self._users.get(name)
        return command.reply(body=b"" if found is None else found.shown().encode())

    def list_users(self, _connection: ServerConnection, command: Command) -> Answer:
        """The users whose names contain the filter; an empty answer when there is none."""
        wanted = headers.AuthListUserRequest.from_ext(command.ext).filter
        found = [user.shown() for user in self._users.all() if wanted in user.name]
        return command.reply(body=encode_list(found) if found else b"")

    # -- rules -------------------------------------------------------------------------------------------

    def add_rules(self, _connection: ServerConnection, command: Command) -> Answer:
        """Add rules to those of a user; one about the same resource is replaced. Both codes do this."""
        info = AclInfo.decode(command.body)
        name = self._known(info.subject or headers.AuthCreateAclRequest.from_ext(command.ext).subject)
        self._rules.add(name, Acl.of(info))
        return self._written(command, ACLS)

    def delete_rules(self, _connection: ServerConnection, command: Command) -> Answer:
        """Remove the rules of a user, or those about one resource."""
        header = headers.AuthDeleteAclRequest.from_ext(command.ext)
        name = self._known(header.subject)
        acl = self._rules.get(name)
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
        return self._written(command, ACLS)

    def rules(self, _connection: ServerConnection, command: Command) -> Answer:
        """The rules of one user; an empty answer when there are none."""
        name = user_of(headers.AuthGetAclRequest.from_ext(command.ext).subject)
        if self._users.get(name) is None:
            raise RemotingError(ResponseCode.NO_PERMISSION, "The subject is not exist.")
        acl = self._rules.get(name)
        return command.reply(body=b"" if acl is None else acl.shown(name).encode())

    def list_rules(self, _connection: ServerConnection, command: Command) -> Answer:
        """The rules that the filters leave; an empty answer when there are none."""
        header = headers.AuthListAclRequest.from_ext(command.ext)
        shown = [
            acl.shown(name, header.resource_filter)
            for name, acl in self._rules.all()
            if header.subject_filter in USER + name
        ]
        found = [info for info in shown if info.policies]
        return command.reply(body=encode_list(found) if found else b"")

    def _known(self, subject: str) -> str:
        name = user_of(subject)
        if self._users.get(name) is None:
            raise RemotingError(ResponseCode.NO_PERMISSION, f"The subject of {USER}{name[:80]} is not exist.")
        return name

    async def _written(self, command: Command, *tables: str) -> Command:
        await self._access.written(*tables)
        return command.reply()
