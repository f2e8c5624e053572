"""Logins with a password: by the console's users file, or as a user of the RocketMQ cluster."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from orbitmq.admin import Admin
from orbitmq.console.rights import ADMIN
from orbitmq.console.slowing import Slowing
from orbitmq.console.users_file import NOBODY, User
from orbitmq.console.ways import ClusterOfPages
from orbitmq.errors import NotPermittedError, OrbitError, ValidationError
from orbitmq.runtime.seam import Threads
from orbitmq.wire.signing import Credentials

# The most logins that are checked at the same time, and that wait for it. A check may take 16 MiB and a part
# of a second.
MOST_AT_ONCE: Final = 2
MOST_WAITING: Final = 20
LOGIN_S: Final = 10.0
MOST_NAME: Final = 127
# Parts of the remarks by which brokers accept a user's keys, but refuse the request by their rules.
_KNOWN: Final = ("has no permission to access", "is no super user")


@dataclass(frozen=True, slots=True)
class Entered:
    """A logged-in user. ``cluster`` signs with the user's keys; ``None`` for users that share the
    console's."""

    user: str
    role: str
    cluster: ClusterOfPages | None = None


class Door(Protocol):
    """Checks the passwords of users."""

    async def enter(self, name: str, password: str) -> Entered | None:
        """The user of this name and password; ``None`` if one of them is wrong.

        Raises:
            OrbitError: no user can log in now; the text has the reason.
        """
        ...


class FileDoor:
    """Checks the users of the console's users file."""

    def __init__(self, users: Mapping[str, User], threads: Threads) -> None:
        self._users, self._threads = users, threads

    async def enter(self, name: str, password: str) -> Entered | None:
        user = self._users.get(name, NOBODY)
        right = await self._threads.run(user.has_password, password)
        return Entered(user.name, user.role) if right else None


class RocketMQDoor:
    """Checks the users of the RocketMQ cluster. Their keys sign their requests, so the brokers check their
    rights.

    A cluster that checks no keys would accept any user, so no user can log in to it.
    """

    def __init__(self, options: Mapping[str, Any], monotonic: Callable[[], float]) -> None:
        self._options, self._monotonic = options, monotonic

    async def enter(self, name: str, password: str) -> Entered | None:
        try:
            keys = Credentials(name, password)
        except ValidationError:
            return None
        made = ClusterOfPages({**self._options, "credentials": keys}, self._monotonic)
        wrong = ClusterOfPages(
            {**self._options, "credentials": Credentials(name, secrets.token_hex(16))}, self._monotonic
        )
        accepted = False
        try:
            async with asyncio.timeout(LOGIN_S):
                accepted = await self._accepted(made.admin, wrong.admin)
        except TimeoutError:
            raise ValidationError("the cluster did not answer in time") from None
        finally:
            await wrong.close()
            if not accepted:
                await made.close()
        return Entered(name, ADMIN, made) if accepted else None

    async def _accepted(self, right: Admin, wrong: Admin) -> bool:
        """Whether at least one broker checks keys, and all brokers that do accept these."""
        try:
            brokers = await right.brokers.list()
        except NotPermittedError:
            return False
        checking = 0
        for broker in brokers:
            try:
                if await _identity_is_known(wrong, broker.address):
                    continue
                checking += 1
                if not await _identity_is_known(right, broker.address):
                    return False
            except NotPermittedError:
                raise
            except OrbitError:
                continue  # this broker does not answer, so the other brokers decide
        if not checking:
            raise ValidationError(
                "no broker that answers checks keys (authenticationEnabled): use a file of users, --users"
            )
        return True


async def _identity_is_known(admin: Admin, address: str) -> bool:
    try:
        await admin.brokers.runtime(address)
    except NotPermittedError as error:
        return any(text in str(error.remark) for text in _KNOWN)
    return True


class Desk:
    """Handles logins, not too many at once, and slows down after failures.

    Args:
        by_address: whether an address is slowed down, too; behind a proxy all clients have one address.
    """

    def __init__(self, door: Door, monotonic: Callable[[], float], *, by_address: bool) -> None:
        self._door, self._monotonic, self._by_address = door, monotonic, by_address
        self._slowing = Slowing()
        self._line = asyncio.Semaphore(MOST_AT_ONCE)
        self._waiting = 0

    def wait_s(self, name: str, address: str) -> float:
        """The seconds until this user may try again from this address; 0 if at once."""
        now = self._monotonic()
        return max(self._slowing.wait_s(key, now) for key in self._keys(name, address))

    @property
    def is_busy(self) -> bool:
        """Whether too many logins wait already."""
        return self._waiting >= MOST_WAITING

    async def enter(self, name: str, password: str, address: str) -> Entered | None:
        """The user; ``None`` if the name or the password is wrong. The errors are those of
        :meth:`Door.enter`."""
        keys = self._keys(name, address)
        now = self._monotonic()
        # Counted as a failure before the check, so that it slows down attempts during the check, too.
        for key in keys:
            self._slowing.failed(key, now)
        self._waiting += 1
        try:
            async with self._line:
                found = await self._door.enter(name[:MOST_NAME], password)
        finally:
            self._waiting -= 1
        if found is not None:
            for key in keys:
                self._slowing.succeeded(key)
        return found

    def _keys(self, name: str, address: str) -> list[str]:
        return [f"user {name[:MOST_NAME]}", *([f"address {address}"] if self._by_address else [])]
