"""Contexts: named clusters with the user who signs requests, kept in one file of the user's folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from orbitmq.cli.failures import UsageError
from orbitmq.runtime.paths import joined
from orbitmq.runtime.secret_command import printed_secret
from orbitmq.runtime.system import SystemFiles
from orbitmq.runtime.text_files import private_bytes

if TYPE_CHECKING:
    from orbitmq.runtime.seam import HostFacts

VARIABLE: Final = "ORBITMQ_CONTEXT"
# For each name of an option, the option of 'orbitmq context create'.
OPTIONS: Final = {
    "credentialsFile": "--credentials-file",
    "tlsCa": "--ca",
    "tlsCert": "--cert",
    "tlsKey": "--key",
}
# A password manager may wait until a person has typed a passphrase.
SECRET_COMMAND_S = 60.0
MAX_FILE_BYTES: Final = 256 * 1024
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Context(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One cluster. If a context has no keys, or no TLS, those of the environment apply.

    Attributes:
        name_servers: addresses of the name servers.
        user, secret_command: the access key, and the command that prints its secret key.
        credentials_file: a file with both keys, in place of these two.
        tls: whether TLS is used; needed only if no file of TLS is given.
        ca, cert, key: the paths of the TLS files.
        check_host: whether a server's certificate must be valid for the connected host.
    """

    name_servers: str
    user: str = ""
    secret_command: str = ""
    credentials_file: str = ""
    tls: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""
    check_host: bool = True

    @property
    def speaks_tls(self) -> bool:
        return self.tls or bool(self.ca or self.cert or self.key)

    def tls_options(self) -> Mapping[str, str]:
        """The context's TLS settings, by the names of options."""
        if not self.speaks_tls:
            return {}
        files = {"tlsCa": self.ca, "tlsCert": self.cert, "tlsKey": self.key}
        return {"tls": "true", "tlsCheckHost": str(self.check_host).lower(), **files}

    def options(self, name: str) -> Mapping[str, str]:
        """The context's keys and TLS settings, by the names of options; runs its secret command.

        Raises:
            SecretCommandError: the secret command does not print exactly one line.
        """
        keys = {"credentialsFile": self.credentials_file}
        if self.user:
            called = f"the secret command of context {name}"
            secret = printed_secret(self.secret_command, SECRET_COMMAND_S, name=called)
            keys = {"accessKey": self.user, "secretKey": secret}
        return {**keys, **self.tls_options()}

    def as_json(self) -> dict[str, object]:
        """All fields, including those with default values."""
        return {field: getattr(self, field) for field in self.__struct_fields__}


class Contexts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All contexts of the user.

    Attributes:
        current: the name of the context that counts if a command names none; empty for none.
    """

    current: str = ""
    contexts: dict[str, Context] = msgspec.field(default_factory=dict)

    def named(self, name: str, where: str) -> Context:
        """The context of that name.

        Args:
            where: the option or the variable that holds the name, for the error.

        Raises:
            UsageError: no context has this name.
        """
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise UsageError(f"{where} {name}: there is no such context; there are: {known}")
        return self.contexts[name]


def check_name(name: str) -> None:
    """Refuse an invalid name of a context.

    Raises:
        UsageError: the name has other characters than letters, digits, dots, dashes and underscores, or more
            than 64.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name[:80]}: a context has a name of letters, digits, dots, dashes and underscores, 64 at most"
        )


def file_of(host: HostFacts) -> str:
    """The file that holds the contexts."""
    folder = host.variable("XDG_CONFIG_HOME") or joined(host.home, ".config")
    return joined(folder, "orbitmq", "contexts.json")


def load(host: HostFacts) -> Contexts:
    """The contexts; empty if there is no file.

    Raises:
        ValidationError: other users can read the file.
        UsageError: the file cannot be read, or has another form than this program writes.
    """
    path = file_of(host)
    try:
        content = private_bytes(path, MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_FILE_BYTES:
        raise UsageError(f"{path} is larger than {MAX_FILE_BYTES} bytes: is it a file of contexts?")
    try:
        found = msgspec.json.decode(content, type=Contexts)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is no file of contexts: {error}") from error
    if found.current and found.current not in found.contexts:
        raise UsageError(f"{path}: the current context {found.current} is not among its contexts")
    return found


def save(host: HostFacts, contexts: Contexts) -> None:
    """Write the contexts, readable by this user alone.

    Raises:
        UsageError: the contexts are too many for the file's limit.
        OSError: the file cannot be written.
    """
    content = msgspec.json.format(msgspec.json.encode(contexts), indent=2) + b"\n"
    if len(content) > MAX_FILE_BYTES:
        raise UsageError(f"{file_of(host)} would be larger than {MAX_FILE_BYTES} bytes: delete some contexts")
    SystemFiles().write_atomic(file_of(host), content, private=True)
