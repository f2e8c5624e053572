"""The sources of keys and TLS for programs without code of their own (the command line, Spark's options)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orbitmq.client.core.identity_names import VARIABLES
from orbitmq.errors import ValidationError
from orbitmq.runtime.client_tls import Tls, TlsOptionError
from orbitmq.runtime.seam import HostFacts
from orbitmq.runtime.text_files import first_bytes
from orbitmq.transport.identity import Identity
from orbitmq.wire.signing import Credentials, Secret

_KEYS: Final = ("accessKey", "secretKey", "securityToken")
# For each field of Tls, the name of the option.
_FILES: Final = {"ca": "tlsCa", "cert": "tlsCert", "key": "tlsKey"}
_CHECK_HOST: Final = "tlsCheckHost"
_WORDS: Final = {"true": True, "false": False}
MAX_FILE_BYTES: Final = 64 * 1024


def identity_of(
    given: Mapping[str, str], host: HostFacts, called: Mapping[str, str] | None = None
) -> Identity:
    """The identity that the options name; for missing options the environment counts.

    Keys are in the options or in one file, whose lines are ``accessKey=...`` and ``secretKey=...``, or with a
    colon, as in RocketMQ's tools.yml. If any option about keys is given, no key of the environment is used,
    and a named file takes precedence over variables with keys. The options about TLS likewise replace its
    variables.

    Args:
        given: the options by the names in :data:`VARIABLES`.
        called: the names of these options in error texts, where they differ.

    Raises:
        ValidationError: only one of the two keys, a file that cannot be read, or a value other than true and
            false. The text names the option or the variable, and contains no key.
    """
    options = _Options(given, host, {} if called is None else called)
    return Identity(_credentials(options), _tls(options))


@dataclass(frozen=True, slots=True)
class _Options:
    """The given options, with the environment as the fallback; ``called``: the names of options in error
    texts.
    """

    given: Mapping[str, str]
    host: HostFacts
    called: Mapping[str, str]

    def chosen(self, *names: str) -> tuple[dict[str, str], dict[str, str]]:
        """The given values of these options, else those of the environment; and the names of all options for
        error texts.
        """
        found = {name: self.given[name] for name in names if self.given.get(name)}
        if found:
            return found, {name: self.called.get(name, name) for name in names}
        named = {name: self.host.variable(VARIABLES[name]) for name in names}
        return {name: value for name, value in named.items() if value}, dict(VARIABLES)


def _credentials(options: _Options) -> Credentials | None:
    values, called = options.chosen("credentialsFile", *_KEYS)
    path = values.pop("credentialsFile", "")
    where = ""
    if path:
        if values:
            extra = next(iter(values))
            raise ValidationError(
                f"{called['credentialsFile']} and {called[extra]} both give keys: give one of them"
            )
        values, where = _in_file(path), f" in {path}"
    if not values:
        return None
    for name in ("accessKey", "secretKey"):
        if name not in values:
            other = "secretKey" if name == "accessKey" else "accessKey"
            shown = name if path else called[name]
            raise ValidationError(f"{shown} is missing{where or f' beside {called[other]}'}")
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
            # The line itself is not shown: it may hold a key.
            raise ValidationError(f"line {number} of {path} is not one of {', '.join(_KEYS)}, = and a value")
        if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found[name] = value
    if not found:
        raise ValidationError(f"the file of keys {path} has none: write accessKey=... and secretKey=...")
    return found


def _tls(options: _Options) -> Tls | None:
    values, called = options.chosen("tls", *_FILES.values(), _CHECK_HOST)

    def flag(name: str, default: bool) -> bool:
        text = values.get(name, "").lower()
        if text and text not in _WORDS:
            raise ValidationError(f"{called[name]} must be true or false, got {text[:40]!r}")
        return _WORDS.get(text, default)

    if not flag("tls", bool(values)):
        return None
    files = {field: values.get(name) for field, name in _FILES.items()}
    check_host = flag(_CHECK_HOST, True)
    try:
        return Tls(**files, check_host=check_host)
    except TlsOptionError as error:
        raise ValidationError(f"{called[_FILES[error.option]]}{error.problem}") from error
