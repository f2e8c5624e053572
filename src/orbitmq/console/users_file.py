"""The file with the console's users, one line each, with role and hashed password. Pure.

A line is ``anna:operator:scrypt:16384:8:1:SALT:HASH``; without a password it is for a user named by a proxy.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orbitmq.console.rights import ROLES
from orbitmq.errors import ValidationError
from orbitmq.message.numbers import whole_number

MAX_BYTES: Final = 1024 * 1024
MOST_PASSWORD: Final = 1024
_COST, _BLOCK, _LANES = 16_384, 8, 1
# The highest accepted costs of scrypt: higher ones would take more than a second and 256 MiB.
_MOST: Final = (262_144, 16, 4)
_MEMORY: Final = 320 * 1024 * 1024
_NAME: Final = re.compile(r"[^\s:#][^\s:]{0,126}")


@dataclass(frozen=True, slots=True)
class User:
    """A user. ``salt`` and ``hashed`` are empty when the user has no password."""

    name: str
    role: str
    cost: tuple[int, int, int] = (_COST, _BLOCK, _LANES)
    salt: bytes = b""
    hashed: bytes = b""

    def has_password(self, password: str) -> bool:
        """Whether this is the user's password. The check takes a while, so it has to run in a thread."""
        given = _hash(password, self.salt or b"none", self.cost)
        return secrets.compare_digest(given, self.hashed) and bool(self.hashed)


# Stands for unknown users, so that the check of their password takes as long.
NOBODY: Final = User("", ROLES[0])


def parsed(text: str, path: str) -> Mapping[str, User]:
    """The users in the text of a file.

    Raises:
        ValidationError: a line is malformed; the text has its number.
    """
    found: dict[str, User] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        user = _user(line.strip())
        if user is None:
            raise ValidationError(
                f"{path}, line {number}: expected NAME:ROLE (one of {', '.join(ROLES)}), and for a password "
                "what 'orbitmq console password' prints"
            )
        if user.name in found:
            raise ValidationError(f"{path}, line {number}: {user.name} is there twice")
        found[user.name] = user
    if not found:
        raise ValidationError(f"{path}: it has no user")
    return found


def _user(line: str) -> User | None:
    name, _, rest = line.partition(":")
    role, _, password = rest.partition(":")
    if not _NAME.fullmatch(name) or role not in ROLES:
        return None
    if not password:
        return User(name, role)
    parts = password.split(":")
    if len(parts) != 6 or parts[0] != "scrypt":
        return None
    cost = [whole_number(part) or 0 for part in parts[1:4]]
    try:
        salt, hashed = bytes.fromhex(parts[4]), bytes.fromhex(parts[5])
    except ValueError:
        return None
    fits = all(1 <= one <= most for one, most in zip(cost, _MOST, strict=True))
    if not fits or cost[0] < 2 or cost[0] & (cost[0] - 1) or len(salt) < 8 or len(hashed) != 32:
        return None
    return User(name, role, (cost[0], cost[1], cost[2]), salt, hashed)


def line_of(name: str, role: str, password: str) -> str:
    """The line of a user with this password.

    Raises:
        ValidationError: the name, the role or the password is not allowed.
    """
    if not _NAME.fullmatch(name):
        raise ValidationError(f"{name[:80]}: a name has no blanks and colons, and 127 characters at most")
    if role not in ROLES:
        raise ValidationError(f"{role[:80]}: expected one of {', '.join(ROLES)}")
    if not 8 <= len(password) <= MOST_PASSWORD:
        raise ValidationError(f"the password has {len(password)} characters; expected 8 to {MOST_PASSWORD:,}")
    salt = secrets.token_bytes(16)
    cost = (_COST, _BLOCK, _LANES)
    hashed = _hash(password, salt, cost)
    return f"{name}:{role}:scrypt:{_COST}:{_BLOCK}:{_LANES}:{salt.hex()}:{hashed.hex()}"


def _hash(password: str, salt: bytes, cost: tuple[int, int, int]) -> bytes:
    n, r, p = cost
    given = password[:MOST_PASSWORD].encode(errors="surrogatepass")
    return hashlib.scrypt(given, salt=salt, n=n, r=r, p=p, maxmem=_MEMORY, dklen=32)
