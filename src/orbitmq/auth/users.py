"""Users, whose secrets sign requests, and the table of a server's users."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, TypeVar

from orbitmq.errors import StartError, ValidationError
from orbitmq.wire.bodies.auth import UserInfo
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.signing import Credentials, Secret, SigningKey

# The most users: a table of this size is written in one piece, within a tenth of a second.
MAX_USERS: Final = 10_000
# The length of a group's retry topic, which is RocketMQ's longest name.
MAX_NAME_CHARACTERS: Final = 255
TABLE: Final = "users"

E = TypeVar("E", bound=StrEnum)


class UserType(StrEnum):
    """The type of a user. Super users may do everything; normal users only what their rules allow."""

    SUPER = "Super"
    NORMAL = "Normal"


class UserStatus(StrEnum):
    """The status of a user. The requests of a disabled user are refused."""

    ENABLE = "enable"
    DISABLE = "disable"


@dataclass(frozen=True, slots=True)
class User:
    """One user.

    Attributes:
        key: checks the signatures of the user's requests.
    """

    name: str
    secret: Secret
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE
    key: SigningKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", SigningKey(self.secret))

    @property
    def is_super(self) -> bool:
        return self.type is UserType.SUPER

    @property
    def is_enabled(self) -> bool:
        return self.status is UserStatus.ENABLE

    def plain(self) -> dict[str, str]:
        """The user in the form of the table file, with the secret."""
        return {
            "password": self.secret.reveal(),
            "userType": str(self.type),
            "userStatus": str(self.status),
        }

    @staticmethod
    def from_plain(name: str, plain: Mapping[str, Any]) -> User:
        """The user of :meth:`plain`.

        Raises:
            LookupError, ValueError: the data is not a user.
        """
        secret = Secret(str(plain["password"]))
        return User(name, secret, UserType(plain["userType"]), UserStatus(plain["userStatus"]))

    def shown(self, *, secret: bool = False) -> UserInfo:
        """The user in the form of answers; ``secret`` adds the password."""
        password = self.secret.reveal() if secret else None
        return UserInfo(self.name, password, str(self.type), str(self.status))


class Users:
    """The users of one server.

    Args:
        changed: called with the name and the user after each change; the user is ``None`` when removed.
    """

    def __init__(self, changed: Callable[[str, User | None], object]) -> None:
        self._changed = changed
        self._users: dict[str, User] = {}

    def get(self, name: str) -> User | None:
        """The user of this name; ``None`` without one."""
        return self._users.get(name)

    def all(self) -> list[User]:
        """All users, sorted by their names."""
        return [self._users[name] for name in sorted(self._users)]

    def begin(self, named: Iterable[Credentials]) -> None:
        """Create the super users that the settings name, unless there are users of these names.

        Raises:
            StartError: there is no super user, so that no users could be created.
        """
        for credentials in named:
            if credentials.access_key not in self._users:
                assert isinstance(credentials.secret_key, Secret)
                self.put(User(credentials.access_key, credentials.secret_key, UserType.SUPER))
        if not self.has_super():
            raise StartError(
                "authenticationEnabled=true and no super user who is not disabled: nobody could make users; "
                'set initAuthenticationUser={"username":"...","password":"..."} to a new name'
            )

    def has_super(self, *, besides: str = "") -> bool:
        """Whether there is an enabled super user other than ``besides``."""
        supers = (user for user in self._users.values() if user.is_super and user.is_enabled)
        return any(user.name != besides for user in supers)

    # -- changes by requests -----------------------------------------------------------------------------

    def create(self, name: str, info: UserInfo, by: User, *, again: bool = False) -> None:
        """Create a user.

        Args:
            again: whether the same request may have created the user already, which counts as success.

        Raises:
            RemotingError: the user exists; a value is invalid; a user other than a super user would create a
                super user.
        """
        kind = _one_of(UserType, "userType", info.user_type) or UserType.NORMAL
        status = _one_of(UserStatus, "userStatus", info.user_status) or UserStatus.ENABLE
        if kind is UserType.SUPER:
            _check_super(by, "create")
        known = self._users.get(name)
        if known is not None:
            same = (info.password, kind, status) == (known.secret.reveal(), known.type, known.status)
            if again and same:
                return
            raise RemotingError(ResponseCode.NO_PERMISSION, "The user is existed")
        if not info.password:
            raise RemotingError(ResponseCode.NO_PERMISSION, "password can not be blank")
        if len(self._users) >= MAX_USERS:
            raise RemotingError(ResponseCode.NO_PERMISSION, f"there are {MAX_USERS} users, the limit")
        self.put(User(name, _secret(name, info.password), kind, status))

    def update(self, name: str, info: UserInfo, by: User) -> None:
        """Change a user's password, type and status, as far as ``info`` has them.

        Raises:
            RemotingError: there is no such user; a value is invalid; a user other than a super user would
                change a super user; no super user would be left.
        """
        _check_name(name)
        kind = _one_of(UserType, "userType", info.user_type)
        status = _one_of(UserStatus, "userStatus", info.user_status)
        known = self._users.get(name)
        if kind is UserType.SUPER or (known is not None and known.is_super):
            _check_super(by, "update")
        if known is None:
            raise RemotingError(ResponseCode.NO_PERMISSION, "The user is not exist")
        changed = replace(
            known,
            secret=_secret(name, info.password) if info.password else known.secret,
            type=kind or known.type,
            status=status or known.status,
        )
        if not (changed.is_super and changed.is_enabled):
            self._check_last(known)
        self.put(changed)

    def delete(self, name: str, by: User) -> None:
        """Remove a user, if it exists.

        Raises:
            RemotingError: a user other than a super user would remove a super user; no super user would be
                left.
        """
        known = self._users.get(name)
        if known is None:
            return
        if known.is_super:
            _check_super(by, "update")
        self._check_last(known)
        self.remove(name)

    def _check_last(self, known: User) -> None:
        """Refuse to remove the last super user, after which no user could create a new one."""
        if known.is_super and known.is_enabled and not self.has_super(besides=known.name):
            raise RemotingError(
                ResponseCode.NO_PERMISSION,
                f"{known.name} is the last super user who is not disabled: make another one before",
            )

    # -- the table ---------------------------------------------------------------------------------------

    def put(self, user: User) -> None:
        """Add a user, or replace the user of its name."""
        self._users[user.name] = user
        self._changed(user.name, user)

    def remove(self, name: str) -> None:
        """Remove the user of this name."""
        if self._users.pop(name, None) is not None:
            self._changed(name, None)

    def load(self, users: Iterable[User]) -> None:
        """Add the users read from a file."""
        self._users.update((user.name, user) for user in users)


def _check_name(name: str) -> None:
    if not name.strip():
        raise RemotingError(ResponseCode.INVALID_PARAMETER, "The username is blank")
    if len(name) > MAX_NAME_CHARACTERS:
        raise RemotingError(
            ResponseCode.INVALID_PARAMETER,
            f"username has {len(name)} characters, the limit is {MAX_NAME_CHARACTERS}",
        )


def _secret(name: str, password: str) -> Secret:
    """The password as a Secret; refused if clients could not sign with it and this name."""
    _check_name(name)
    try:
        found = Credentials(name, password).secret_key
    except ValidationError as error:
        text = str(error).replace("access_key", "username").replace("secret_key", "password")
        raise RemotingError(ResponseCode.INVALID_PARAMETER, text) from None
    assert isinstance(found, Secret)
    return found


def _check_super(by: User, verb: str) -> None:
    if not by.is_super:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, f"The super user can only be {verb} by super user")


def _one_of(kind: type[E], field_name: str, text: str | None) -> E | None:
    """The member of this name, in upper or lower case; ``None`` for an empty name."""
    if not text:
        return None
    for member in kind:
        if member.lower() == text.lower():
            return member
    raise RemotingError(
        ResponseCode.INVALID_PARAMETER, f"{field_name} is {text[:80]!r}; expected one of {', '.join(kind)}"
    )
