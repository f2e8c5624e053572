"""Reads the files of ACL 1.0 (``plain_acl.yml``): accounts, white addresses, version.

PyYAML parses a file into nodes, which have line numbers; no object is made from a tag. Anything unknown in a
file is an error that names the file and the line, and never shows a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orbitmq.auth.plain_accounts import RIGHTS, Account
from orbitmq.auth.rules import MAX_ENTRIES
from orbitmq.auth.users import MAX_NAME_CHARACTERS, MAX_USERS
from orbitmq.errors import ValidationError
from orbitmq.wire.signing import Credentials, Secret

# The largest file: about 6,000 accounts. The parser in C reads it in a third of a second, which blocks the
# event loop.
MAX_BYTES: Final = 2**20
# The settings may name two more users.
MAX_ACCOUNTS: Final = MAX_USERS - 2
# RocketMQ 4.x refuses shorter keys.
MIN_KEY_CHARACTERS: Final = 7
WHITE: Final = "globalWhiteRemoteAddresses"
ACCOUNTS: Final = "accounts"
VERSION: Final = "dataVersion"
ACCESS_KEY: Final = "accessKey"
SECRET_KEY: Final = "secretKey"  # noqa: S105 - the name of the field
WHITE_ADDRESS: Final = "whiteRemoteAddress"
ADMIN: Final = "admin"
DEFAULT_TOPIC: Final = "defaultTopicPerm"
DEFAULT_GROUP: Final = "defaultGroupPerm"
TOPICS: Final = "topicPerms"
GROUPS: Final = "groupPerms"
_FIELDS: Final = (WHITE, ACCOUNTS, VERSION)
_OF_ACCOUNT: Final = (
    ACCESS_KEY,
    SECRET_KEY,
    WHITE_ADDRESS,
    ADMIN,
    DEFAULT_TOPIC,
    DEFAULT_GROUP,
    TOPICS,
    GROUPS,
)
_TAG: Final = "tag:yaml.org,2002:"


class PlainAclError(ValueError):
    """A file that cannot be used. The text names the file, the line and what was expected."""

    def __init__(self, path: str, line: int | None, text: str) -> None:
        super().__init__(f"{path}: {f'line {line}: ' if line else ''}{text}")


@dataclass(frozen=True, slots=True)
class Version:
    """How often requests changed a file, and when they last did (milliseconds since the epoch)."""

    counter: int
    timestamp: int


@dataclass(frozen=True, slots=True)
class PlainAcl:
    """The content of one file.

    Attributes:
        white_addresses: the values of globalWhiteRemoteAddresses, which has no effect in OrbitMQ.
        version: ``None`` if no request has changed the file.
    """

    path: str
    accounts: tuple[Account, ...] = ()
    white_addresses: tuple[str, ...] = ()
    version: Version | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the file has no content."""
        return not (self.accounts or self.white_addresses or self.version)


def read_all(contents: Mapping[str, bytes]) -> list[PlainAcl]:
    """Read all files of a broker, given by their paths.

    Raises:
        PlainAclError: a file cannot be used, two files have the same account, or there is no account.
    """
    files = [read(path, data) for path, data in contents.items()]
    seen: dict[str, str] = {}
    for file in files:
        for account in file.accounts:
            where = f"{file.path}, line {account.line}"
            if account.access_key in seen:
                before = seen[account.access_key]
                text = f"accessKey {account.access_key!r} is in {before} as well: keep one of them"
                raise PlainAclError(file.path, account.line, text)
            seen[account.access_key] = where
    if not seen:
        text = "no account: nobody could send a request; expected accounts: and below it '- accessKey: ...'"
        raise PlainAclError(", ".join(contents), None, text)
    if len(seen) > MAX_ACCOUNTS:
        text = f"there are {len(seen)} accounts, the limit is {MAX_ACCOUNTS}"
        raise PlainAclError(", ".join(contents), None, text)
    return files


def read(path: str, data: bytes) -> PlainAcl:
    """Read one file.

    Raises:
        PlainAclError: the file cannot be used.
    """
    if len(data) > MAX_BYTES:
        raise PlainAclError(path, None, f"the file has {len(data)} bytes, the limit is {MAX_BYTES}")
    node = _Nodes(path).root(data)
    return PlainAcl(path) if node is None else _File(path).all(node)


def decoded(path: str, data: bytes) -> str:
    """The text of a file.

    Raises:
        PlainAclError: the file is not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise PlainAclError(path, line, "a byte that is not UTF-8; save the file as UTF-8") from None


def right_of(entry: str) -> tuple[str, str]:
    """The name and the right in an entry such as ``orders=PUB|SUB``.

    Raises:
        ValueError: the entry is malformed; the text has what was expected.
    """
    name, equals, right = (part.strip() for part in entry.partition("="))
    if not equals or not name or "=" in right:
        raise ValueError(f"{entry[:80]!r}; expected a name and a right, as orders=PUB|SUB")
    if len(name) > MAX_NAME_CHARACTERS:
        raise ValueError(f"a name has {len(name)} characters, the limit is {MAX_NAME_CHARACTERS}")
    if "*" in name:
        raise ValueError(f"{name[:80]!r}; expected a whole name: ACL 1.0 has no patterns")
    return name, checked_right(right)


def checked_right(right: str) -> str:
    """Check a right such as ``PUB|SUB``; returns it unchanged.

    Raises:
        ValueError: there is no such right.
    """
    if right not in RIGHTS:
        raise ValueError(f"{right[:80]!r}; expected one of {', '.join(RIGHTS)}")
    return right


class _Nodes:
    """Reads values from the YAML nodes of one file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def root(self, data: bytes) -> Any:
        """The node of the whole file; ``None`` for an empty file."""
        try:
            import yaml
        except ImportError as error:
            text = "aclEnable=true needs PyYAML: pip install 'orbitmq[server]'"
            raise PlainAclError(self._path, None, text) from error
        try:
            return yaml.compose(decoded(self._path, data), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else None
            # The text between quotes may be a part of a secret.
            text = re.sub(r"'[^']{2,}'|\"[^\"]{2,}\"", "...", error.problem or "it is not YAML")
            raise PlainAclError(self._path, line, f"no YAML: {text}") from None
        except yaml.YAMLError:
            raise PlainAclError(self._path, None, "no YAML: it has control characters") from None
        except RecursionError:
            raise PlainAclError(self._path, None, "no YAML of ACL 1.0: it is too deep") from None

    def error(self, node: Any, text: str) -> PlainAclError:
        return PlainAclError(self._path, node.start_mark.line + 1, text)

    def fields(self, node: Any, known: Sequence[str], what: str) -> dict[str, Any]:
        """The values of a mapping by their keys."""
        if node.id != "mapping":
            raise self.error(node, f"expected {what}: keys and values, as {known[0]}: ...")
        found: dict[str, Any] = {}
        for key, value in node.value:
            name = key.value if key.id == "scalar" else ""
            if name not in known:
                raise self.error(key, f"unknown key {name[:80]!r}; {what} has {', '.join(known)}")
            if name in found:
                raise self.error(key, f"{name} is there twice: keep one of them")
            found[name] = value
        return found

    def items(self, node: Any, field: str, limit: int) -> Sequence[Any]:
        """The entries of a list."""
        if node is None or _is_null(node):
            return ()
        if node.id != "sequence":
            raise self.error(node, f"{field}: expected a list, each entry on a line of its own after '- '")
        if len(node.value) > limit:
            raise self.error(node, f"{field} has {len(node.value)} entries, the limit is {limit}")
        entries: Sequence[Any] = node.value
        return entries

    def text(self, node: Any, field: str) -> str:
        """The text of a node; empty without one. A number is read as its digits."""
        if node is None or _is_null(node):
            return ""
        if node.id == "scalar":
            value: str = node.value
            if node.tag == f"{_TAG}str":
                return value
            if node.tag == f"{_TAG}int" and value.isdecimal() and value == str(int(value[:20])):
                return value
        raise self.error(node, f"{field}: expected a text; put it in quotes")

    def number(self, node: Any, field: str) -> int:
        value = self.text(node, field)
        if not (value.isascii() and value.isdecimal() and len(value) < 20):
            raise self.error(node, f"{field}: expected a number")
        return int(value)

    def flag(self, node: Any, field: str) -> bool:
        if node is None or _is_null(node):
            return False
        value = node.value.lower() if node.id == "scalar" else ""
        if node.id == "scalar" and (node.tag == f"{_TAG}bool" or value in ("true", "false")):
            return value in ("true", "yes", "on")
        raise self.error(node, f"{field}: expected true or false")


class _File(_Nodes):
    """Reads the accounts, white addresses and version of one file."""

    def all(self, node: Any) -> PlainAcl:
        if _is_null(node):
            return PlainAcl(self._path)
        fields = self.fields(node, _FIELDS, "the file")
        accounts = self.items(fields.get(ACCOUNTS), ACCOUNTS, MAX_ACCOUNTS)
        white = self.items(fields.get(WHITE), WHITE, MAX_ENTRIES)
        return PlainAcl(
            self._path,
            tuple(self._account(each) for each in accounts),
            tuple(self.text(each, WHITE) for each in white),
            self._version(fields.get(VERSION)),
        )

    def _version(self, node: Any) -> Version | None:
        for each in self.items(node, VERSION, 1):
            fields = self.fields(each, ("timestamp", "counter", "stateVersion"), VERSION)
            if "timestamp" in fields and "counter" in fields:
                counter, timestamp = fields["counter"], fields["timestamp"]
                return Version(self.number(counter, "counter"), self.number(timestamp, "timestamp"))
        return None

    def _account(self, node: Any) -> Account:
        fields = self.fields(node, _OF_ACCOUNT, "an account")
        access_key = self.text(fields.get(ACCESS_KEY), ACCESS_KEY)
        secret = self._secret(node, access_key, self.text(fields.get(SECRET_KEY), SECRET_KEY))
        topics = tuple(self._rights(fields.get(TOPICS), TOPICS))
        groups = tuple(self._rights(fields.get(GROUPS), GROUPS))
        if 2 * (len(topics) + len(groups)) + 3 > MAX_ENTRIES:
            limit = (MAX_ENTRIES - 3) // 2
            text = f"{TOPICS} and {GROUPS} have {len(topics) + len(groups)} entries, the limit is {limit}"
            raise self.error(node, text)
        return Account(
            access_key,
            secret,
            node.start_mark.line + 1,
            self.flag(fields.get(ADMIN), ADMIN),
            self.text(fields.get(WHITE_ADDRESS), WHITE_ADDRESS),
            self._default(fields.get(DEFAULT_TOPIC), DEFAULT_TOPIC),
            self._default(fields.get(DEFAULT_GROUP), DEFAULT_GROUP),
            topics,
            groups,
        )

    def _secret(self, node: Any, access_key: str, secret: str) -> Secret:
        for field, value in ((ACCESS_KEY, access_key), (SECRET_KEY, secret)):
            if len(value) < MIN_KEY_CHARACTERS:
                text = f"{field} has {len(value)} characters; expected {MIN_KEY_CHARACTERS} or more"
                raise self.error(node, text)
        if len(access_key) > MAX_NAME_CHARACTERS:
            text = f"{ACCESS_KEY} has {len(access_key)} characters, the limit is {MAX_NAME_CHARACTERS}"
            raise self.error(node, text)
        try:
            found = Credentials(access_key, secret).secret_key
        except ValidationError as error:
            text = str(error).replace("access_key", ACCESS_KEY).replace("secret_key", SECRET_KEY)
            raise self.error(node, text) from None
        assert isinstance(found, Secret)
        return found

    def _default(self, node: Any, field: str) -> str:
        right = self.text(node, field).strip()
        try:
            return checked_right(right) if right else ""
        except ValueError as error:
            raise self.error(node, f"{field} is {error}") from None

    def _rights(self, node: Any, field: str) -> Iterator[tuple[str, str]]:
        for each in self.items(node, field, MAX_ENTRIES):
            try:
                yield right_of(self.text(each, field))
            except ValueError as error:
                if isinstance(error, PlainAclError):
                    raise
                raise self.error(each, f"{field}: {error}") from None


def _is_null(node: Any) -> bool:
    return bool(node.tag == f"{_TAG}null")
