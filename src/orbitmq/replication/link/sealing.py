"""Seals the tables that two brokers exchange, so that they may hold users' secrets. No I/O.

The key is derived from the secret and the numbers of both sides' proofs, so each link has its own key. Frames
are counted on both sides, so none can be read, changed, left out, repeated or sent back by others. The log,
and the frames that hold no tables, are not sealed; TLS protects them.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from orbitmq.replication.link.errors import LinkError
from orbitmq.replication.link.stream import FrameKind
from orbitmq.wire.signing import Secret

FOLLOWER: Final = "follower"
MASTER: Final = "master"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12


def can_seal() -> bool:
    """Whether the library that seals is installed."""
    return find_spec("cryptography") is not None


class Sealing:
    """Seals and opens the frames of one side of a link, in the order in which they are sent.

    Args:
        secret: of the user whose keys both sides have proved to have.
        side: this broker's.
    """

    def __init__(self, secret: Secret | str, side: str, follower_number: str, master_number: str) -> None:
        # Imported only by brokers that require keys and have replicas.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        numbers = follower_number, master_number
        self._seals = AESGCM(_key(secret, side, *numbers))
        self._opens = AESGCM(_key(secret, FOLLOWER if side == MASTER else MASTER, *numbers))
        self._sealed = self._opened = 0

    def seal(self, kind: FrameKind, payload: bytes) -> bytes:
        """The payload of a frame as it is sent."""
        if kind is not FrameKind.STATE:
            return payload
        self._sealed += 1
        return self._seals.encrypt(_nonce(self._sealed), payload, None)

    def open(self, kind: FrameKind, payload: bytes) -> bytes:
        """The opened payload of a received frame.

        Raises:
            LinkError: the payload is not the next one that the other side has sealed.
        """
        if kind is not FrameKind.STATE:
            return payload
        from cryptography.exceptions import InvalidTag

        self._opened += 1
        try:
            return self._opens.decrypt(_nonce(self._opened), payload, None)
        except (InvalidTag, ValueError) as error:
            raise LinkError("a frame of tables is not sealed with the keys of this link") from error


def _key(secret: Secret | str, side: str, follower_number: str, master_number: str) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    made_of = (secret.reveal() if isinstance(secret, Secret) else secret).encode()
    salt = f"{follower_number}:{master_number}".encode("utf-8", "surrogatepass")
    return HKDF(SHA256(), _KEY_BYTES, salt, f"orbitmq tables 1 {side}".encode()).derive(made_of)


def _nonce(number: int) -> bytes:
    return number.to_bytes(_NONCE_BYTES, "big")
