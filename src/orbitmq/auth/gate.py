"""The gate before a server's requests: checks the sender's signature and rights."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final

from orbitmq.auth.needs import ACCESS
from orbitmq.auth.refusals import GateError, Refusal, Refusals
from orbitmq.auth.rules import ALLOWED, Asked, Rules, address_of
from orbitmq.auth.users import MAX_NAME_CHARACTERS, User, Users
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError, WireError
from orbitmq.wire.signing import ACCESS_KEY, Secret

# With the most rules that a user may have, their verdicts take about a second of the event loop.
MAX_ASKED: Final = 2_000
# For names that are unknown: their refusal reads like that of a wrong signature, and takes as long.
_NOBODY: Final = User("", Secret("nobody has this key"))


class Gate:
    """Checks the signature of each request, and what its user may do.

    Args:
        asked: what a request needs at this server; ``None``: it is for super users
            (:func:`orbitmq.auth.needs.asked_of`).
        authorizes: whether rules are asked; else every user who is known may do everything but change users
            and rules.
        observes: whether what would be refused passes; requests about users and rules are refused all the
            same.

    Attributes:
        refusals: counts what was refused, or would have been.
    """

    def __init__(
        self,
        asked: Callable[[Command], Iterable[Asked] | None],
        users: Users,
        rules: Rules,
        *,
        authorizes: bool,
        observes: Callable[[], bool] = lambda: False,
    ) -> None:
        self._asked = asked
        self._users = users
        self._rules = rules
        self._authorizes = authorizes
        self._observes = observes
        self.refusals = Refusals()

    def check(self, command: Command, host: str) -> None:
        """Raise unless the sender of a request is permitted to make it.

        Args:
            host: the peer's address.

        Raises:
            RemotingError: NO_PERMISSION, with RocketMQ's remark.
            WireError: a field or body that names what is asked is missing or cannot be read.
        """
        observes = command.code not in ACCESS and self._observes()
        try:
            self._verdict(command, host)
        except GateError as error:
            self.refusals.note(replace(error.refusal, address=host))
            if not observes:
                raise
        except (RemotingError, WireError):
            if not observes:
                raise

    def _verdict(self, command: Command, host: str) -> None:
        user = self.identity(command)
        if user.is_super:
            return
        if not self._authorizes:
            if command.code in ACCESS:
                remark = f"User:{user.name} is no super user: users and rules are theirs."
                raise GateError(remark, _of_super(user.name, command.code))
            return
        needs = self._asked(command)
        if needs is None:
            remark = f"User:{user.name} is no super user: request {command.code} is theirs."
            raise GateError(remark, _of_super(user.name, command.code))
        acl, address = self._rules.of(user.name), address_of(host)
        for count, asked in enumerate(dict.fromkeys(needs)):
            if count >= MAX_ASKED:
                raise RemotingError(
                    ResponseCode.INVALID_PARAMETER,
                    f"the request names more than {MAX_ASKED} topics and groups, the limit of one request",
                )
            why = acl.verdict(asked, address)
            if why != ALLOWED:
                about = f"{asked!s:.300} from {host}, {why}"
                raise GateError(
                    f"User:{user.name} has no permission to access {about}",
                    Refusal(user.name, "no right", str(asked.actions[0]), str(asked)),
                )

    def identity(self, command: Command) -> User:
        """The user who signed a request.

        Raises:
            RemotingError: NO_PERMISSION.
        """
        name = command.ext.get(ACCESS_KEY, "")
        if not name:
            raise GateError("username cannot be null.", Refusal("", "no keys"))
        user = self._users.get(name) or _NOBODY
        if not user.key.made(command) or user is _NOBODY:
            raise GateError("check signature failed.", Refusal(name[:MAX_NAME_CHARACTERS], "wrong keys"))
        if not user.is_enabled:
            raise GateError(f"User:{name} is disabled.", Refusal(name, "disabled"))
        return user


def _of_super(name: str, code: int) -> Refusal:
    return Refusal(name, f"request {code} is for super users")
