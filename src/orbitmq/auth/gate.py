"""The gate of a server: checks the signature or certificate of each request's sender, and its rights."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from orbitmq.auth.needs import ABOUT_USERS
from orbitmq.auth.refusals import (
    DISABLED,
    NO_KEYS,
    OTHER_USER,
    UNKNOWN,
    WRONG_KEYS,
    GateError,
    Refusal,
    Refusals,
)
from orbitmq.auth.rules import ALLOWED, Asked, Rules, address_of
from orbitmq.auth.slowing import Slowing
from orbitmq.auth.users import MAX_NAME_CHARACTERS, User, Users
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError, WireError
from orbitmq.wire.signing import ACCESS_KEY, Secret, SigningKey, has_keys, named_user

T = TypeVar("T")

# The most rights that one request may need. For a user with the most rules, their verdicts take the event
# loop about a second.
MAX_ASKED: Final = 2_000
# Stands for unknown users, so that their refusal reads like that of a wrong signature, and takes as long.
_NOBODY: Final = User("", Secret("nobody has this key"))


# OrbitMQ's header fields of a request that a broker passes on: the user and the host of the client.
FOR_USER: Final = "orbitmqForUser"
FOR_HOST: Final = "orbitmqForHost"


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender of a permitted request.

    Attributes:
        host: the host of the user's client.
        passed_by: the super user that passed the request on; empty if the user's client sent it.
    """

    user: User
    host: str
    passed_by: str = ""


@dataclass(frozen=True, slots=True)
class ShownIdentity:
    """The identity that a client claims, unchecked.

    Attributes:
        keys: the user that the request's access key names; None without keys.
        made: whether the request's signature was made with a given key.
        certificate: the user that the client's certificate names; empty without one.
        unnamed: why the certificate names no user; empty if it does, or if the server reads no certificates.
    """

    keys: str | None
    made: Callable[[SigningKey], bool]
    certificate: str = ""
    unnamed: str = ""


class AuthGate:
    """Checks the signature or the certificate of each request, and the rights of its user.

    A client's certificate counts for requests without keys. A request with keys is their user's; it is
    refused if the certificate names another user.

    Args:
        asked: returns the rights that a request needs at this server; ``None``: only super users may make it
            (:func:`orbitmq.auth.needs.asked_of`).
        authorizes: whether rules apply; else every known user may do everything except change users and
            rules.
        observes: whether requests that would be refused pass. Requests about users and rules are always
            refused.

    Attributes:
        refusals: counts the refusals, also those of requests that passed because the gate observes.
        slowing: the addresses that have signed wrongly, by any protocol.
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
        self.slowing = Slowing()

    @property
    def observing(self) -> bool:
        """Whether requests that would be refused pass."""
        return self._observes()

    def knows(self, command: Command) -> bool:
        """Whether a request names a known, enabled user; its signature is not checked."""
        return self.observing or self.serves(named_user(command))

    def serves(self, name: str) -> bool:
        """Whether there is an enabled user of this name."""
        user = self._users.get(name)
        return user is not None and user.is_enabled

    def check(
        self, command: Command, host: str, *, verified: bool = False, unnamed: str = ""
    ) -> Sender | None:
        """Refuse a request that its sender may not make.

        Args:
            host: the peer's address.
            verified: whether the signature was checked when the request arrived; then only the user and its
                rules are checked.
            unnamed: see :class:`ShownIdentity`.

        Returns:
            The sender; None if the request passes only because the gate observes.

        Raises:
            RemotingError: NO_PERMISSION, with RocketMQ's remark.
            WireError: a field or body that names the request's target is missing or cannot be read.
        """

        def judge() -> Sender:
            sender = self.sender(command, host, verified=verified, unnamed=unnamed)
            self._permit(sender.user, command.code, partial(self._asked, command), sender.host)
            return sender

        return self._judge(judge, host, observes=command.code not in ABOUT_USERS and self.observing)

    def check_call(
        self, shown: ShownIdentity, asked: Callable[[], Iterable[Asked] | None], host: str
    ) -> None:
        """As :meth:`check`, for a request of another protocol.

        Args:
            asked: returns the rights that the request needs, as in :class:`AuthGate`; called only if its
                user needs rights.

        Raises:
            RemotingError, WireError: as in :meth:`check`, or raised by ``asked``.
        """

        def judge() -> None:
            self._permit(self._identity(shown), None, asked, host)

        self._judge(judge, host, observes=self.observing)

    def _judge(self, judge: Callable[[], T], host: str, *, observes: bool) -> T | None:
        try:
            return judge()
        except GateError as error:
            self.refusals.note(replace(error.refusal, address=host))
            if not observes:
                raise
        except (RemotingError, WireError):
            if not observes:
                raise
        return None

    def _permit(
        self, user: User, code: int | None, asked: Callable[[], Iterable[Asked] | None], host: str
    ) -> None:
        if user.is_super:
            return
        if not self._authorizes:
            if code in ABOUT_USERS:
                remark = f"User:{user.name} is no super user: users and rules are theirs."
                raise GateError(remark, _of_super(user.name, code))
            return
        needs = asked()
        if needs is None:
            remark = f"User:{user.name} is no super user: request {code} is theirs."
            raise GateError(remark, _of_super(user.name, code))
        acl, address = self._rules.of(user.name), address_of(host)
        for count, each in enumerate(dict.fromkeys(needs)):
            if count >= MAX_ASKED:
                raise RemotingError(
                    ResponseCode.INVALID_PARAMETER,
                    f"the request names more than {MAX_ASKED} topics and groups, the limit of one request",
                )
            why = acl.verdict(each, address)
            if why != ALLOWED:
                about = f"{each!s:.300} from {host}, {why}"
                raise GateError(
                    f"User:{user.name} has no permission to access {about}",
                    Refusal(user.name, "no right", str(each.actions[0]), str(each)),
                )

    def identity(self, command: Command) -> User:
        """The user that made a request, or for which a broker has passed it on.

        Raises:
            RemotingError: NO_PERMISSION.
        """
        return self.sender(command, "").user

    def sender(self, command: Command, host: str, *, verified: bool = False, unnamed: str = "") -> Sender:
        """The sender of a request, or the user's client for which a broker has passed the request on.

        Args:
            host: the peer's address.
            verified, unnamed: see :meth:`check`.

        Raises:
            RemotingError: NO_PERMISSION.
        """
        keys = command.ext.get(ACCESS_KEY, "") if has_keys(command.ext) else None
        made = self._identity(
            ShownIdentity(keys, lambda key: verified or key.made(command), command.certified, unnamed)
        )
        name = command.ext.get(FOR_USER)
        if name is None or not made.is_super:
            return Sender(made, host)
        user = self._users.get(name)
        if user is None or not user.is_enabled:
            why = "unknown here" if user is None else DISABLED
            raise GateError(
                f"User:{name[:MAX_NAME_CHARACTERS]} is {why}.", Refusal(name[:MAX_NAME_CHARACTERS], why)
            )
        return Sender(user, command.ext.get(FOR_HOST, ""), made.name)

    def _identity(self, shown: ShownIdentity) -> User:
        owner = self._users.get(shown.certificate)
        user = self._certified(shown, owner) if shown.keys is None else self._signed(shown, owner)
        if not user.is_enabled:
            raise GateError(f"User:{user.name} is disabled.", Refusal(user.name, DISABLED))
        return user

    def _certified(self, shown: ShownIdentity, owner: User | None) -> User:
        """The user of a request without keys: the certificate's owner."""
        if owner is not None:
            return owner
        name = shown.certificate[:MAX_NAME_CHARACTERS]
        if name:
            raise GateError(f"User:{name} of the client's certificate is unknown.", Refusal(name, UNKNOWN))
        why = f" The client's certificate names no user: {shown.unnamed}." if shown.unnamed else ""
        raise GateError(f"username cannot be null.{why}", Refusal("", NO_KEYS))

    def _signed(self, shown: ShownIdentity, owner: User | None) -> User:
        """The user of a request with keys; refused if the certificate is another user's."""
        name = shown.keys or ""
        if not name:
            raise GateError("username cannot be null.", Refusal("", NO_KEYS))
        user = self._users.get(name) or _NOBODY
        if not shown.made(user.key) or user is _NOBODY:
            raise GateError("check signature failed.", Refusal(name[:MAX_NAME_CHARACTERS], WRONG_KEYS))
        if owner is not None and owner is not user:
            remark = f"User:{name} has signed this request, and the client's certificate is {owner.name}'s."
            raise GateError(remark, Refusal(name, OTHER_USER))
        return user


def _of_super(name: str, code: int | None) -> Refusal:
    return Refusal(name, f"request {code} is for super users")
