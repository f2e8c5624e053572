"""Changes by administrators: refused at a broker where they would not last."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from inspect import isawaitable

from orbitmq.auth.needs import ACCESS
from orbitmq.broker.handlers.base import Answer, Handler
from orbitmq.broker.role import Role, RoleState
from orbitmq.broker.to_master import ToMaster
from orbitmq.transport.server import ServerConnection
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError

# A slave, and a broker in pre-online, get their tables from another broker: a change there is lost. An acting
# master hands additions and moved offsets to its master.
_KEEPS = frozenset({Role.MASTER, Role.FENCED, Role.ACTING_MASTER})
# Deletions are refused at an acting master: its returning master still has the topic and would restore it.
# Deletions of users and rules are accepted there: each has a record, which the master compares with its own.
_DELETES = frozenset({Role.MASTER})
ROLES = {
    RequestCode.UPDATE_AND_CREATE_TOPIC: _KEEPS,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _KEEPS,
    RequestCode.DELETE_TOPIC_IN_BROKER: _DELETES,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _KEEPS,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _KEEPS,
    RequestCode.DELETE_SUBSCRIPTIONGROUP: _DELETES,
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: _KEEPS,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _KEEPS,
    RequestCode.CLONE_GROUP_OFFSET: _KEEPS,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _KEEPS,
    RequestCode.SET_QUOTA: _KEEPS,
    RequestCode.AUTH_CREATE_USER: _KEEPS,
    RequestCode.AUTH_UPDATE_USER: _KEEPS,
    RequestCode.AUTH_DELETE_USER: _KEEPS,
    RequestCode.AUTH_CREATE_ACL: _KEEPS,
    RequestCode.AUTH_UPDATE_ACL: _KEEPS,
    RequestCode.AUTH_DELETE_ACL: _KEEPS,
}
_ACCESS = ACCESS.keys() & ROLES.keys()
# mqadmin sends these changes to masters and slaves, in no order, and stops at the first refusal: deleteTopic,
# deleteSubGroup (for the topics of the group), all changes of users and rules. A slave passes them on to its
# master.
_BY_MASTER = frozenset({RequestCode.DELETE_TOPIC_IN_BROKER, *_ACCESS})


class AdminChanges:
    """Refuses changes in roles in which they would not last."""

    def __init__(self, role: RoleState, to_master: ToMaster, broker_name: str) -> None:
        self._role = role
        self._to_master = to_master
        self._broker_name = broker_name

    def around(self, code: int, handler: Handler) -> Handler:
        """``handler``, called only in the roles in which its change lasts."""
        return partial(self._change, ROLES[RequestCode(code)], handler)

    def _change(
        self, roles: frozenset[Role], handler: Handler, connection: ServerConnection, command: Command
    ) -> Answer:
        if command.code in _ACCESS and self._to_master.keeps_users():
            return handler(connection, command)
        if self._role.role not in roles and command.code in _BY_MASTER:
            by_master = self._to_master.ask(command, connection.remote[0])
            if by_master is not None:
                return by_master
        self._check(roles)
        answer = handler(connection, command)
        return self._lasting(roles, answer) if isawaitable(answer) else answer

    async def _lasting(self, roles: frozenset[Role], answer: Awaitable[Command | None]) -> Command | None:
        """The handler's answer, unless the role changed while the disk wrote the change."""
        command = await answer
        self._check(roles)
        return command

    def _check(self, roles: frozenset[Role]) -> None:
        role = self._role.role
        if role not in roles:
            raise RemotingError(
                ResponseCode.SYSTEM_ERROR,
                f"this would not last at a broker that is {role.value}: send it to the master of "
                f"{self._broker_name}",
            )
