"""The files of ACL 1.0 as a source of users and rules: read at the start, and followed.

``plain_acl.yml`` and the folder ``acl`` lie in ``<rocketmqHome>/conf``, or beside the broker's configuration
file. A change counts when two checks in a row have found it: a file that is being written is no change yet.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from orbitmq.auth.plain_acl import MAX_BYTES, PlainAcl, PlainAclError, read_all
from orbitmq.auth.plain_changes import Change
from orbitmq.auth.rules import Acl, Rules
from orbitmq.auth.users import User, Users, UserType
from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import Events, RightsChanged
from orbitmq.errors import StartError
from orbitmq.runtime.paths import joined
from orbitmq.runtime.seam import Files, Runtime
from orbitmq.settings.access import ACL_1, MIGRATES
from orbitmq.wire.signing import Secret

log = logging.getLogger(__name__)

FILE: Final = "plain_acl.yml"
FOLDER: Final = "acl"
# How often the files are checked; RocketMQ: every 5 seconds.
LOOK_S: Final = 2.0
# How many files and folders there may be below conf/acl.
MAX_FILES: Final = 100
# How many accounts the log names because their white addresses have no effect.
MAX_WARNED: Final = 1_000
_KEYS_OF_TOOLS: Final = "tools.yml"


@dataclass(frozen=True, slots=True)
class Mapped:
    """The content of the files, as users and rules."""

    files: tuple[PlainAcl, ...]
    users: Mapping[str, User]
    acls: Mapping[str, Acl]


class PlainAclFiles(Component):
    """Users and rules of the accounts in the files.

    Attributes:
        users: the users of the accounts, and the super users that the settings name.
        files: the files as last read.
        taken_ms: when they were taken over, in milliseconds since the epoch.
    """

    name = "plain acl"

    def __init__(self, runtime: Runtime, config: BrokerConfig, events: Events) -> None:
        self._runtime = runtime
        self._config = config
        self.users = Users(lambda name, _user: events.publish(RightsChanged(name)))
        self.rules = Rules(lambda name, _acl: events.publish(RightsChanged(name)))
        self.files: tuple[PlainAcl, ...] = ()
        self.taken_ms = 0
        self._changing = asyncio.Lock()
        self._taken: Mapping[str, bytes] = {}
        self._seen: Mapping[str, bytes] = {}
        self._said = ""
        self._warned: set[str] = set()

    async def start(self) -> None:
        """Read the files, and begin to check them for changes.

        Raises:
            StartError: the files cannot be used; the text names file and line.
        """
        self._take(*await self.read())
        self._every(self._runtime.clock, LOOK_S, self.look)

    async def read(self) -> tuple[Mapping[str, bytes], Mapped]:
        """Read the files; returns their bytes by path, and their users and rules.

        Raises:
            StartError: the files cannot be used; the text names file and line.
        """
        try:
            found = await self._runtime.threads.run(self._contents)
            mapped = await self._runtime.threads.run(self._mapped, found)
        except PlainAclError as error:
            key = ACL_1 if self._config.acl_enable else MIGRATES
            raise StartError(f"{key}=true: {error}") from error
        self._warn(mapped.files)
        return found, mapped

    async def look(self) -> None:
        """Take over what has changed; files that cannot be used leave everything as it is."""
        try:
            async with self._changing:
                await self._look()
        except PlainAclError as error:
            if str(error) != self._said:
                self._said = str(error)
                log.warning("%s; the accounts of before stay", error)

    async def _look(self) -> None:
        found = await self._runtime.threads.run(self._contents)
        before, self._seen = self._seen, found
        if found == self._taken:
            self._said = ""
        elif found == before:
            self._take(found, await self._runtime.threads.run(self._mapped, found))

    @property
    def main(self) -> str:
        """The path of plain_acl.yml."""
        return joined(self._config.acl_folder, FILE)

    async def change(self, change: Change) -> None:
        """Change one of the files; the change counts at once.

        Raises:
            PlainChangeError, PlainAclError: the change cannot be made, or would leave unusable files.
            OSError: the file cannot be written.
        """
        async with self._changing:
            self._take(*await self._runtime.threads.run(self._changed, change))

    # -- in a thread -------------------------------------------------------------------------------------

    def _changed(self, change: Change) -> tuple[Mapping[str, bytes], Mapped]:
        before = self._contents()
        path, data = change(before)
        after = {**before, path: data}
        mapped = self._mapped(after)
        self._runtime.files.write_atomic(path, data, private=True)
        return after, mapped

    def _contents(self) -> dict[str, bytes]:
        """The files by their paths."""
        files = self._runtime.files
        folder = self._config.acl_folder
        main = self.main
        paths = [*_below(files, joined(folder, FOLDER)), *([main] if files.exists(main) else [])]
        if not paths:
            text = (
                "there is no such file; write the accounts into it, or let rocketmqHome name the folder "
                "above conf/plain_acl.yml"
            )
            raise PlainAclError(main, None, text)
        return {path: _read(files, path) for path in paths}

    def _mapped(self, contents: Mapping[str, bytes]) -> Mapped:
        files = read_all(contents)
        users = {}
        for credentials in self._config.first_super_users():
            assert isinstance(credentials.secret_key, Secret)
            name = credentials.access_key
            users[name] = User(name, credentials.secret_key, UserType.SUPER)
        accounts = [account for file in files for account in file.accounts]
        users |= {account.access_key: account.user() for account in accounts}
        acls = {account.access_key: account.acl() for account in accounts if not account.admin}
        return Mapped(tuple(files), users, acls)

    # -- on the event loop -------------------------------------------------------------------------------

    def _take(self, contents: Mapping[str, bytes], mapped: Mapped) -> None:
        self._taken = self._seen = contents
        self.files, self.taken_ms = mapped.files, self._runtime.clock.now_ms()
        self._said = ""
        for name, _ in self.rules.all():
            if name not in mapped.acls:
                self.rules.remove(name)
        for user in self.users.all():
            if user.name not in mapped.users:
                self.users.remove(user.name)
        for name, acl in mapped.acls.items():
            if self.rules.get(name) != acl:
                self.rules.put(name, acl)
        for name, user in mapped.users.items():
            if self.users.get(name) != user:
                self.users.put(user)
        self._warn(mapped.files)

    def _warn(self, files: Sequence[PlainAcl]) -> None:
        """Log once for each file and account that its white addresses have no effect."""
        for file in files:
            if file.white_addresses and file.path not in self._warned:
                self._warned.add(file.path)
                log.warning("%s: globalWhiteRemoteAddresses lets nobody in without a signature", file.path)
        white = (account for file in files for account in file.accounts if account.white_address)
        new = (account for account in white if account.access_key not in self._warned)
        for account in islice(new, max(0, MAX_WARNED - len(self._warned))):
            self._warned.add(account.access_key)
            log.warning(
                "account %r: whiteRemoteAddress lets nobody in without a signature", account.access_key
            )


def _below(files: Files, folder: str) -> Iterator[str]:
    """The YAML files in a folder and the folders in it."""
    left, seen = [folder], 0
    while left:
        at = left.pop(0)
        for name in _names(files, at):
            path = joined(at, name)
            seen += 1
            if seen > MAX_FILES:
                raise PlainAclError(
                    folder, None, f"it has more than {MAX_FILES} files and folders, the limit"
                )
            if files.is_dir(path):
                left.append(path)
            elif name.endswith((".yml", ".yaml")):
                yield path


def _names(files: Files, folder: str) -> list[str]:
    try:
        # Hidden files are those of editors, and the versions of a mounted ConfigMap.
        return [name for name in files.list_dir(folder) if name[0] != "." and name != _KEYS_OF_TOOLS]
    except OSError as error:
        raise PlainAclError(folder, None, f"cannot be read: {error.strerror or error}") from error


def _read(files: Files, path: str) -> bytes:
    try:
        size = files.size_bytes(path)
        if size > MAX_BYTES:
            raise PlainAclError(path, None, f"the file has {size} bytes, the limit is {MAX_BYTES}")
        return files.read_bytes(path)
    except OSError as error:
        raise PlainAclError(path, None, f"cannot be read: {error.strerror or error}") from error
