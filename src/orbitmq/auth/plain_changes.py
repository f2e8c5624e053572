"""Makes the changes of ACL 1.0's files that RocketMQ's mqadmin 4.x requests. No I/O.

A file is read, changed and written as a whole, which loses its comments, as in RocketMQ 4.x. The texts of
refused changes, which mqadmin prints, are RocketMQ's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from orbitmq.auth.plain_accounts import RIGHTS
from orbitmq.auth.plain_acl import (
    ACCESS_KEY,
    ACCOUNTS,
    ADMIN,
    DEFAULT_GROUP,
    DEFAULT_TOPIC,
    GROUPS,
    MIN_KEY_CHARACTERS,
    SECRET_KEY,
    TOPICS,
    VERSION,
    WHITE,
    WHITE_ADDRESS,
    Version,
    decoded,
    read,
)
from orbitmq.wire.headers.auth import UpdateAndCreateAclConfigRequest

# Maps the contents of the files, by path, to the path of the changed file and its new content.
Change: TypeAlias = Callable[[Mapping[str, bytes]], tuple[str, bytes]]
_KEYS: Final = "cannot be null and length should longer than 6"


class PlainChangeError(ValueError):
    """A change is refused; the text has the reason."""


def put_account(asked: UpdateAndCreateAclConfigRequest, main: str, now_ms: int) -> Change:
    """Create an account in the file ``main``, or change it in the file that has it.

    Fields without a value stay, except ``admin``, which becomes false.
    """
    name, secret = asked.access_key, asked.secret_key or ""
    if min(len(name), len(secret)) < MIN_KEY_CHARACTERS:
        shown = "***" if secret else "null"
        raise PlainChangeError(f"The accessKey={name} and secretKey={shown} {_KEYS}")
    topics, groups = _entries(asked.topic_perms), _entries(asked.group_perms)
    for entry in (*(topics or ()), *(groups or ())):
        _check(entry)
    given: dict[str, Any] = {
        SECRET_KEY: secret,
        WHITE_ADDRESS: asked.white_remote_address,
        ADMIN: asked.admin,
        DEFAULT_TOPIC: asked.default_topic_perm or None,
        DEFAULT_GROUP: asked.default_group_perm or None,
        TOPICS: topics,
        GROUPS: groups,
    }
    changed = {key: value for key, value in given.items() if value is not None}

    def change(contents: Mapping[str, bytes]) -> tuple[str, bytes]:
        path = _file_of(contents, name) or main
        document = _document(path, contents)
        accounts = document.get(ACCOUNTS) or []
        known = [account for account in accounts if _is(account, name)]
        account = {ACCESS_KEY: name, **(known[0] if known else {}), **changed}
        document[ACCOUNTS] = [each for each in accounts if each not in known] + [account]
        return path, _written(document, path, contents, now_ms)

    return change


def delete_account(name: str, now_ms: int) -> Change:
    """Remove an account from its file."""

    def change(contents: Mapping[str, bytes]) -> tuple[str, bytes]:
        path = _file_of(contents, name)
        if path is None:
            raise PlainChangeError(
                f"The accesskey[{name}] corresponding to accessConfig has been deleted failed."
            )
        document = _document(path, contents)
        document[ACCOUNTS] = [each for each in document[ACCOUNTS] if not _is(each, name)]
        return path, _written(document, path, contents, now_ms)

    return change


def set_white_addresses(addresses: str, path: str, now_ms: int) -> Change:
    """Replace globalWhiteRemoteAddresses of one of the files."""

    def change(contents: Mapping[str, bytes]) -> tuple[str, bytes]:
        if path not in contents:
            raise PlainChangeError(f"The globalWhiteAddresses[{addresses}] has been updated failed.")
        document = _document(path, contents)
        document[WHITE] = _entries(addresses)
        return path, _written(document, path, contents, now_ms)

    return change


def _entries(text: str | None) -> list[str] | None:
    """The parts between commas, as Java splits them: without empty parts at the end."""
    if text is None:
        return None
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def _check(entry: str) -> None:
    parts = [part.strip() for part in entry.split("=") if part]
    if len(parts) != 2:
        raise PlainChangeError(
            f"Parse Resource format error for {entry}.\n"
            "The expected resource format is 'Res=Perm'. For example: topicA=SUB"
        )
    if parts[1] not in RIGHTS:
        raise PlainChangeError(
            f"Parse resource permission error for {entry}.\n"
            "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
        )


def _file_of(contents: Mapping[str, bytes], name: str) -> str | None:
    for path, data in contents.items():
        if any(account.access_key == name for account in read(path, data).accounts):
            return path
    return None


def _is(account: Mapping[str, Any], name: str) -> bool:
    return str(account[ACCESS_KEY]) == name


def _document(path: str, contents: Mapping[str, bytes]) -> dict[str, Any]:
    """The content of a file, once :func:`read` has accepted it."""
    import yaml

    data = contents.get(path, b"")
    read(path, data)
    loaded = yaml.load(decoded(path, data), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  # it is safe
    return dict(loaded or {})


def _written(document: dict[str, Any], path: str, contents: Mapping[str, bytes], now_ms: int) -> bytes:
    """The new content, with the next version."""
    import yaml

    before = read(path, contents.get(path, b"")).version or Version(0, 0)
    document[VERSION] = [{"counter": before.counter + 1, "timestamp": now_ms}]
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(
        document, Dumper=dumper, default_flow_style=False, sort_keys=False, allow_unicode=True
    )
    return text.encode()
