"""How two brokers of a name prove to each other that they have the keys of one user. No I/O.

Each side signs a number that the other side has just drawn, so a recorded greeting proves nothing. Later
bytes of the connection are not signed: without TLS, an attacker that can change the traffic may take a
broker's place. Only frames of tables are sealed (:mod:`orbitmq.replication.link.sealing`).
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from msgspec import structs

from orbitmq.auth.users import User, Users
from orbitmq.replication.link.errors import UnprovenError
from orbitmq.replication.link.hello import Hello
from orbitmq.replication.link.sealing import FOLLOWER, MASTER, Sealing, can_seal
from orbitmq.runtime.seam import Runtime
from orbitmq.wire.signing import Credentials, Secret

NUMBER_BYTES: Final = 16


class Keyring:
    """The keys with which a broker proves itself, and the users by which it checks proofs.

    Args:
        own: innerClientAuthenticationCredentials; None: this broker can prove nothing.
        users: the users of this broker; None: it requires no keys.
        enforces: whether a peer without a proof is refused.

    Attributes:
        seals: whether this broker seals tables for a peer that has proved itself and seals its own, too.
    """

    def __init__(
        self, runtime: Runtime, own: Credentials | None, users: Users | None, enforces: Callable[[], bool]
    ) -> None:
        self._random = runtime.random
        self.own = own
        self.users = users
        self.seals = own is not None and can_seal()
        self._enforces = enforces

    @property
    def required(self) -> bool:
        """Whether a link needs a proof."""
        return self.users is not None and self._enforces()

    def number(self) -> str:
        """A number for one greeting. Only a broker with the same secret could guess it."""
        drawn = self._random.randbytes(NUMBER_BYTES)
        secret = b"" if self.own is None else _bytes_of(self.own.secret_key)
        return hmac.digest(secret, drawn, "sha256")[:NUMBER_BYTES].hex()

    def user(self, name: str) -> User | None:
        """The user of this name if its keys may prove a broker: it is enabled and a superuser."""
        found = None if self.users is None else self.users.get(name)
        return found if found is not None and found.is_super and found.is_enabled else None


def proof(secret: Secret | str, side: str, sender: Hello, follower_number: str, master_number: str) -> str:
    """The proof in a greeting: its sender has the secret, and received both numbers.

    Args:
        side: the sender's side; it is signed so that a broker's own proof is not accepted as its peer's.
    """
    who = (sender.cluster, sender.group, str(sender.broker_id), sender.address, sender.run)
    parts = ("orbitmq ha 1", side, follower_number, master_number, *who)
    # Each part has its length before it, so that no two greetings have the same text.
    text = "".join(f"{len(part)}:{part}" for part in parts).encode("utf-8", "surrogatepass")
    return hmac.digest(_bytes_of(secret), text, "sha256").hex()


def is_proof(
    secret: Secret | str, side: str, sender: Hello, follower_number: str, master_number: str
) -> bool:
    """Whether the proof in a greeting is that of these values."""
    made = proof(secret, side, sender, follower_number, master_number)
    return hmac.compare_digest(sender.proof.encode("utf-8", "surrogatepass"), made.encode())


class FollowerProof:
    """How a master checks the proof of one follower.

    Attributes:
        user: the user whose keys the follower has proved to have; None: none so far.
    """

    def __init__(self, keys: Keyring) -> None:
        self._keys = keys
        self._number = ""
        self._numbers = ("", "")
        self.user: User | None = None

    @property
    def holds(self) -> bool:
        """Whether the link may go on: no proof is required, or the proved user is unchanged."""
        if not self._keys.required:
            return True
        return self.user is not None and self._keys.user(self.user.name) == self.user

    def answer(self, own: Hello, hello: Hello) -> Hello | None:
        """The answer to a greeting with a number or a proof; None: the follower has proved itself before, or
        need not.

        Raises:
            UnprovenError: the follower has to prove that it has the keys, and does not.
        """
        keys = self._keys
        if keys.users is None or self.user is not None:
            return None
        if not hello.number:
            if keys.required:
                raise UnprovenError(
                    f"{hello.address} brings no keys: it needs innerClientAuthenticationCredentials, "
                    "and a version that sends them",
                    "",
                )
            return None
        if not hello.proof:
            self._number = keys.number()
            return structs.replace(own, number=self._number)
        # A number is valid for one try.
        number, self._number = self._number, ""
        user = keys.user(hello.user)
        if user is None or not number or not is_proof(user.secret, FOLLOWER, hello, hello.number, number):
            if keys.required:
                raise UnprovenError(
                    f"{hello.address} does not have the keys of a super user of this broker "
                    "(innerClientAuthenticationCredentials)",
                    hello.user,
                )
            return structs.replace(own)
        self.user, self._numbers = user, (hello.number, number)
        return structs.replace(own, proof=proof(user.secret, MASTER, own, hello.number, number))

    def sealing(self, hello: Hello) -> Sealing | None:
        """The sealing of tables for the follower; None: the follower has proved nothing, or seals nothing."""
        if self.user is None or not (self._keys.seals and hello.seals):
            return None
        return Sealing(self.user.secret, MASTER, *self._numbers)


def _bytes_of(secret: Secret | str) -> bytes:
    return (secret.reveal() if isinstance(secret, Secret) else secret).encode()
