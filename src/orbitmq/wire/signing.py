"""Signatures of requests (RocketMQ's ACL 1.0 and 2.0): a client's keys, and the fields that they sign."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from orbitmq.errors import ValidationError
from orbitmq.wire.command import Command
from orbitmq.wire.errors import FrameError

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"  # noqa: S105 - the name of the field
SIGNATURE: Final = "Signature"
# RocketMQ 5 adds these fields after signing in clients, and before signing in brokers.
_ZONE: Final = frozenset({"__ZONE_NAME", "__ZONE_MODE"})
# Clients up to 4.9.3 do not sign this field.
_LEFT_OUT: Final = frozenset({"_UNIQUE_KEY_QUERY"})
# The protocol signs by HMAC-SHA1.
_sha1: Final = partial(hashlib.sha1, usedforsecurity=False)
_BLOCK_BYTES: Final = 64
_HIDDEN: Final = "***"
MAX_KEY_CHARACTERS: Final = 4096


class Secret:
    """A text that is shown as ``***`` wherever it is printed, logged or formatted.

    Secrets of the same text are equal. :meth:`reveal` returns the text.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return _HIDDEN

    __str__ = __repr__

    def __format__(self, form: str) -> str:
        return format(_HIDDEN, form)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash(self._text)


@dataclass(frozen=True, slots=True)
class Credentials:
    """The keys with which a client signs its requests.

    Example::

        Producer("shop", credentials=Credentials("app", os.environ["MQ_SECRET"]))

    Attributes:
        access_key: the user's name at the brokers.
        secret_key: given as a string, kept as a :class:`Secret`: it is shown as ``***`` and never sent.
        security_token: the token of temporary keys (STS).

    Raises:
        ValidationError: a key is not a text, is empty, or has white space at an end, such as the line break
            of a file.
    """

    access_key: str
    secret_key: str | Secret
    security_token: str | Secret | None = None

    def __post_init__(self) -> None:
        _check_key("access_key", self.access_key)
        object.__setattr__(self, "secret_key", _secret("secret_key", self.secret_key))
        if self.security_token is not None:
            object.__setattr__(self, "security_token", _secret("security_token", self.security_token))


CredentialsSource: TypeAlias = Credentials | Callable[[], Credentials]


def check_source(source: object) -> None:
    """Check that a source can give credentials.

    Raises:
        ValidationError: the source is neither Credentials nor a function.
    """
    if not isinstance(source, Credentials) and not callable(source):
        # The text does not show the value, which may be the secret itself.
        raise ValidationError(
            "credentials must be Credentials(access_key, secret_key) or a function that returns them, "
            f"got {type(source).__name__}"
        )


def signed_content(ext: Mapping[str, str]) -> bytes:
    """The signed part of the header fields: their values in the order of their names. The body follows it.

    Raises:
        FrameError: a value has no UTF-8 form.
    """
    try:
        return "".join([ext[name] for name in sorted(ext) if name != SIGNATURE]).encode()
    except UnicodeEncodeError as error:
        raise FrameError(f"a header field has text without a UTF-8 form: {error}") from error


def has_keys(ext: Mapping[str, str]) -> bool:
    """Whether a request has an access key or a signature."""
    return ACCESS_KEY in ext or SIGNATURE in ext


def named_user(command: Command) -> str:
    """The user of a request's access key or of the client's certificate, unchecked; empty without both."""
    return command.ext.get(ACCESS_KEY, "") if has_keys(command.ext) else command.certified


class SigningKey:
    """A secret with which requests are signed by HMAC-SHA1 (RFC 2104).

    Both of its hashes have read the secret once, and are copied for each request.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret: Secret) -> None:
        key = secret.reveal().encode()
        if len(key) > _BLOCK_BYTES:
            key = _sha1(key).digest()
        key = key.ljust(_BLOCK_BYTES, b"\0")
        self._inner = _sha1(bytes(byte ^ 0x36 for byte in key))
        self._outer = _sha1(bytes(byte ^ 0x5C for byte in key))

    def signature(self, ext: Mapping[str, str], body: bytes | bytearray | memoryview) -> str:
        """The signature of a request with these fields.

        Raises:
            FrameError: a field has no UTF-8 form.
        """
        return b64encode(self.digest(signed_content(ext), body)).decode()

    def digest(self, *parts: bytes | bytearray | memoryview) -> bytes:
        """The HMAC-SHA1 of the concatenated parts."""
        inner = self._inner.copy()
        for part in parts:
            inner.update(part)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.digest()

    def made_digest(self, text: bytes, digest: bytes) -> bool:
        """Whether ``digest`` is this key's HMAC-SHA1 of ``text``."""
        return hmac.compare_digest(self.digest(text), digest)

    def made(self, command: Command) -> bool:
        """Whether the signature of a received request was made with this key."""
        given = command.ext.get(SIGNATURE, "").encode("utf-8", "surrogatepass")
        try:
            signatures = [self.signature(ext, command.body) for ext in _signed_forms(command.ext)]
        except FrameError:
            return False
        return any(hmac.compare_digest(given, each.encode()) for each in signatures)


def _signed_forms(ext: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
    """The sets of fields that the releases of RocketMQ may have signed."""
    yield ext
    zone, left_out = _ZONE & ext.keys(), _LEFT_OUT & ext.keys()
    for names in (zone, left_out, zone | left_out if zone and left_out else ()):
        if names:
            yield {name: value for name, value in ext.items() if name not in names}


class Signer:
    """Signs requests.

    Args:
        source: the credentials, or a function that is called for each request and returns them without
            waiting.
    """

    __slots__ = ("_key", "_known", "_source")

    def __init__(self, source: CredentialsSource) -> None:
        self._source = source
        self._known: Credentials | None = None
        self._key: SigningKey | None = None

    def credentials(self) -> Credentials:
        """The present credentials.

        Raises:
            ValidationError: the function returned something else.
            Exception: the function raised it.
        """
        source = self._source
        if isinstance(source, Credentials):
            return source
        given = source()
        if not isinstance(given, Credentials):
            raise ValidationError(
                f"the function given as credentials returned {type(given).__name__}, not Credentials"
            )
        return given

    def sign(
        self, command: Command, credentials: Credentials, body: bytes | bytearray | memoryview | None = None
    ) -> None:
        """Give a request its access key and signature; its fields must not change after that.

        Args:
            body: the body that is sent instead of the command's.

        Raises:
            FrameError: a field has no UTF-8 form.
        """
        key = self._key
        if key is None or credentials is not self._known:
            assert isinstance(credentials.secret_key, Secret)
            key = self._key = SigningKey(credentials.secret_key)
            self._known = credentials
        # A new mapping, since clients of other identities may share the caller's.
        ext = dict(command.ext)
        ext.pop(SECURITY_TOKEN, None)
        ext.pop(SIGNATURE, None)
        ext[ACCESS_KEY] = credentials.access_key
        if isinstance(credentials.security_token, Secret):
            ext[SECURITY_TOKEN] = credentials.security_token.reveal()
        ext[SIGNATURE] = key.signature(ext, command.body if body is None else body)
        command.ext = ext


def _secret(name: str, given: str | Secret) -> Secret:
    text = given.reveal() if isinstance(given, Secret) else given
    _check_key(name, text)
    return Secret(text)


def _check_key(name: str, given: object) -> None:
    """Refuse a value that cannot be a key; the errors do not show the value."""
    if not isinstance(given, str):
        raise ValidationError(f"{name} must be a string, got {type(given).__name__}")
    if not given:
        raise ValidationError(f"{name} is empty")
    if given != given.strip():
        raise ValidationError(f"{name} has white space at its beginning or end: strip what a file gave")
    if len(given) > MAX_KEY_CHARACTERS:
        raise ValidationError(f"{name} has {len(given)} characters, the limit is {MAX_KEY_CHARACTERS}")
    if not given.isprintable():
        raise ValidationError(f"{name} has characters that cannot be printed")
