"""The gate before a server's requests: who asks, and whether that is allowed."""

from __future__ import annotations

from typing import Final

from orbitmq.auth.requests import ACCESS, REQUESTS, Place
from orbitmq.auth.rules import ALLOWED, Rules, address_of
from orbitmq.auth.users import User, Users
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.signing import ACCESS_KEY, Secret

# With the most rules that a user may have, their verdicts take about a second of the event loop.
MAX_ASKED: Final = 2_000
# For names that are unknown: their refusal reads like that of a wrong signature, and takes as long.
_NOBODY: Final = User("", Secret("nobody has this key"))


class Gate:
    """Checks the signature of each request, and what its user may do.

    Args:
        authorizes: whether rules are asked; else every user who is known may do everything but change users
            and rules.
    """

    def __init__(self, place: Place, users: Users, rules: Rules, *, authorizes: bool) -> None:
        self._place = place
        self._users = users
        self._rules = rules
        self._authorizes = authorizes

    def check(self, command: Command, host: str) -> None:
        """Let a request pass, or not.

        Args:
            host: the peer's address.

        Raises:
            RemotingError: NO_PERMISSION, with RocketMQ's remark.
            WireError: a field or body that names what is asked is missing or cannot be read.
        """
        user = self.identity(command)
        if user.is_super:
            return
        if not self._authorizes:
            if command.code in ACCESS:
                raise _refused(f"User:{user.name} is no super user: users and rules are theirs.")
            return
        needs = REQUESTS.get(command.code)
        if needs is None:
            raise _refused(f"User:{user.name} is no super user: request {command.code} is theirs.")
        acl, address = self._rules.of(user.name), address_of(host)
        for count, asked in enumerate(dict.fromkeys(needs(command, self._place))):
            if count >= MAX_ASKED:
                raise RemotingError(
                    ResponseCode.INVALID_PARAMETER,
                    f"the request names more than {MAX_ASKED} topics and groups, the limit of one request",
                )
            why = acl.verdict(asked, address)
            if why != ALLOWED:
                about = f"{asked!s:.300} from {host}, {why}"
                raise _refused(f"User:{user.name} has no permission to access {about}")

    def identity(self, command: Command) -> User:
        """The user who signed a request.

        Raises:
            RemotingError: NO_PERMISSION.
        """
        name = command.ext.get(ACCESS_KEY, "")
        if not name:
            raise _refused("username cannot be null.")
        user = self._users.get(name) or _NOBODY
        if not user.key.made(command) or user is _NOBODY:
            raise _refused("check signature failed.")
        if not user.is_enabled:
            raise _refused(f"User:{name} is disabled.")
        return user


def _refused(remark: str) -> RemotingError:
    return RemotingError(ResponseCode.NO_PERMISSION, remark)
