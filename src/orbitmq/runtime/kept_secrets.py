"""Secrets in files of a server: encrypted if a file with a key is named (``authKeyFile``).

The encryption is Fernet of ``cryptography``. The key file has one key a line, 32 random bytes as base64. The
first key encrypts, each key decrypts: a new key is written above the old one. The old one may be removed
after the next start, which writes the files of users anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from orbitmq.errors import StartError
from orbitmq.runtime.imports import is_missing
from orbitmq.runtime.seam import Files

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

CLEAR: Final = "password"
SEALED: Final = "encryptedPassword"
MAX_KEYS: Final = 10
_EXPECTED: Final = "expected 32 random bytes as base64 in a line, as `openssl rand -base64 32` prints them"


class KeptSecrets:
    """Converts the secrets of users to and from their form in files.

    Args:
        keys: the keys of the key file; None: secrets are in clear.
    """

    def __init__(self, keys: MultiFernet | None = None) -> None:
        self._keys = keys

    @staticmethod
    def of(files: Files, path: str) -> KeptSecrets:
        """The form of secrets of a server with the key file ``path``; empty: it has none.

        Raises:
            StartError: the file cannot be read, has no key, or ``cryptography`` is not installed.
        """
        return KeptSecrets(_keys(files, path) if path else None)

    @property
    def encrypts(self) -> bool:
        return self._keys is not None

    def out(self, plain: Mapping[str, Any]) -> Mapping[str, Any]:
        """The form of a user in a file."""
        if self._keys is None:
            return plain
        rest = {name: value for name, value in plain.items() if name != CLEAR}
        return {SEALED: self._keys.encrypt(plain[CLEAR].encode()).decode(), **rest}

    def into(self, kept: Mapping[str, Any]) -> Mapping[str, Any]:
        """The user from the form that :meth:`out` made, or from one whose secret is in clear.

        Raises:
            StartError: there is no key, or it is not the one that encrypted the secret.
            AttributeError: ``kept`` is no user.
        """
        token = kept.get(SEALED)
        if token is None:
            return kept
        if self._keys is None:
            raise StartError("the secrets of users are encrypted here, and authKeyFile names no key")
        from cryptography.fernet import InvalidToken

        try:
            secret = self._keys.decrypt(token.encode()).decode()
        except InvalidToken:
            raise StartError(
                "the secrets of users are encrypted with a key that the file of authKeyFile does not have"
            ) from None
        return {CLEAR: secret, **{name: value for name, value in kept.items() if name != SEALED}}


def _keys(files: Files, path: str) -> MultiFernet:
    try:
        from cryptography.fernet import Fernet, MultiFernet
    except ImportError as error:
        if not is_missing(error):
            raise
        raise StartError("authKeyFile needs cryptography: pip install 'orbitmq[server]'") from None
    try:
        lines = files.read_bytes(path).split()
    except OSError as error:
        raise StartError(f"cannot read authKeyFile={path}: {error.strerror or error}") from error
    if not 1 <= len(lines) <= MAX_KEYS:
        raise StartError(f"authKeyFile={path} has {len(lines)} lines, 1 to {MAX_KEYS} keys are possible")
    try:
        return MultiFernet([Fernet(line.translate(bytes.maketrans(b"+/", b"-_"))) for line in lines])
    except ValueError:
        raise StartError(f"authKeyFile={path} has a line that is no key: {_EXPECTED}") from None
