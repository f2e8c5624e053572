"""Where programs without code of their own (the command line, Spark's options) take keys and TLS from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orbitmq.client.core.identity_names import VARIABLES
from orbitmq.errors import ValidationError
from orbitmq.runtime.client_tls import Tls
from orbitmq.runtime.seam import HostFacts
from orbitmq.runtime.text_files import first_bytes
from orbitmq.transport.identity import Identity
from orbitmq.wire.signing import Credentials, Secret

_KEYS: Final = ("accessKey", "secretKey", "securityToken")
_FILES: Final = ("tlsCa", "tlsCert", "tlsKey")
_WORDS: Final = {"true": True, "false": False}
MAX_FILE_BYTES: Final = 64 * 1024


def identity_of(given: Mapping[str, str], host: HostFacts) -> Identity:
    """The identity that options name, and for what they leave out the environment.

    Keys stand in the options or in one file, whose lines are ``accessKey=...`` and ``secretKey=...``, or with
    a colon, as in RocketMQ's tools.yml. Options about keys replace all keys of the environment, and a named
    file those of the variables; so it is with TLS.

    Args:
        given: by the names in :data:`VARIABLES`.

    Raises:
        ValidationError: half of the keys, a file that cannot be read, or another value than true and false.
            The text names the option or the variable, and no key.
    """
    return Identity(_credentials(given, host), _tls(given, host))


def _chosen(names: tuple[str, ...], given: Mapping[str, str], host: HostFacts) -> tuple[dict[str, str], bool]:
    """The values that are given, else the environment's; and whether they are the environment's."""
    found = {name: given[name] for name in names if given.get(name)}
    if found:
        return found, False
    named = {name: host.variable(VARIABLES[name]) for name in names}
    return {name: value for name, value in named.items() if value}, True


def _credentials(given: Mapping[str, str], host: HostFacts) -> Credentials | None:
    values, of_environment = _chosen(("credentialsFile", *_KEYS), given, host)

    def called(name: str) -> str:
        return VARIABLES[name] if of_environment else name

    path = values.pop("credentialsFile", "")
    where = ""
    if path:
        if values:
            extra = next(iter(values))
            raise ValidationError(
                f"{called('credentialsFile')} and {called(extra)} both give keys: give one of them"
            )
        values, where = _in_file(path), f" in {path}"
    if not values:
        return None
    for name in ("accessKey", "secretKey"):
        if name not in values:
            other = "secretKey" if name == "accessKey" else "accessKey"
            shown = name if path else called(name)
            raise ValidationError(f"{shown} is missing{where or f' beside {called(other)}'}")
    token = values.get("securityToken")
    return Credentials(values["accessKey"], Secret(values["secretKey"]), Secret(token) if token else None)


def _in_file(path: str) -> dict[str, str]:
    try:
        text = first_bytes(path, MAX_FILE_BYTES).decode()
    except OSError as error:
        raise ValidationError(f"the file of keys {path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise ValidationError(f"the file of keys {path} is no text") from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        if not words or words.startswith("#"):
            continue
        at = min((at for sign in "=:" if (at := words.find(sign)) > 0), default=-1)
        name, value = words[:at].strip(), words[at + 1 :].strip()
        if at < 0 or name not in _KEYS:
            # The line itself is not shown: it may be a key.
            raise ValidationError(f"line {number} of {path} is not one of {', '.join(_KEYS)}, = and a value")
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found[name] = value
    if not found:
        raise ValidationError(f"the file of keys {path} has none: write accessKey=... and secretKey=...")
    return found


def _tls(given: Mapping[str, str], host: HostFacts) -> Tls | None:
    values, of_environment = _chosen(("tls", *_FILES, "tlsCheckHost"), given, host)

    def flag(name: str, default: bool) -> bool:
        text = values.get(name, "").lower()
        if text and text not in _WORDS:
            called = VARIABLES[name] if of_environment else name
            raise ValidationError(f"{called} must be true or false, got {text[:40]!r}")
        return _WORDS.get(text, default)

    if not flag("tls", bool(values)):
        return None
    ca, cert, key = (values.get(name) for name in _FILES)
    try:
        return Tls(ca=ca, cert=cert, key=key, check_host=flag("tlsCheckHost", True))
    except ValidationError as error:
        text = str(error)
        for name, field in zip(_FILES, ("Tls.ca", "Tls.cert", "Tls.key"), strict=True):
            text = text.replace(field, VARIABLES[name] if of_environment else name)
        raise ValidationError(text) from error
