"""The tables of users and rules, in files that only the broker's own user may read, and the first users."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from orbitmq.auth.rules import Acl, Rules
from orbitmq.auth.users import User, Users
from orbitmq.broker.access.plain_files import Mapped, PlainAclFiles
from orbitmq.broker.change_feed import ACLS, USERS, ChangeFeed, FedTable
from orbitmq.broker.component import Component, Table
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.events import Events, RightsChanged
from orbitmq.broker.metadata.pretty import file_text, pretty_value, quoted
from orbitmq.errors import StartError
from orbitmq.runtime.kept_secrets import KeptSecrets
from orbitmq.wire.errors import RemotingError


class BrokerAccess(Component):
    """Users and rules, kept in ``config/users.json`` and ``config/acls.json``.

    They are read even without authentication, so that they exist when it is switched on again.

    Args:
        written: returns when the changes of the tables are on the device.
        kept: how secrets stand in files.
        rewrite: has the file of a table written soon, though nothing changed.
        accounts: files of ACL 1.0 whose accounts become users and rules; None: there are none to take over.
    """

    name = "access"

    def __init__(
        self,
        config: BrokerConfig,
        feed: ChangeFeed,
        events: Events,
        written: Callable[..., Awaitable[object]],
        kept: KeptSecrets,
        rewrite: Callable[[str], object],
        accounts: PlainAclFiles | None = None,
    ) -> None:
        self._config = config
        self._kept = kept
        self._rewrite = rewrite
        self._accounts = accounts
        self.written = written

        def changed(table: str, name: str, value: object) -> None:
            feed.changed(table, name, value)
            events.publish(RightsChanged(name))

        self.users = Users(partial(changed, USERS))
        self.rules = Rules(partial(changed, ACLS))
        feed.register(
            USERS,
            FedTable(
                User.plain,
                self._apply_user,
                items=lambda: [(user.name, user) for user in self.users.all()],
                restore=self._restore_user,
                kept=kept.out,
            ),
        )
        # A broker that knows a user knows all rules of that user.
        feed.register(
            ACLS,
            FedTable(Acl.plain, self._apply_acl, items=self.rules.all, whole=lambda name: (USERS, name)),
        )

    async def start(self) -> None:
        """Create the super users that the settings name, and users of accounts, unless they exist.

        Raises:
            StartError: authentication is on, and there is no super user who could create users; or the files
                of accounts cannot be used.
        """
        if self._kept.encrypts:
            self._rewrite(USERS)  # with the newest key, also what stands there in clear
        if not self._config.authentication_enabled:
            return
        try:
            if self._accounts is not None:
                _, mapped = await self._accounts.read()
                self._take_over(mapped)
            self.users.begin(self._config.first_super_users())
            await self.written(USERS, ACLS)
        except RemotingError as error:
            raise StartError(error.remark) from error

    def _take_over(self, mapped: Mapped) -> None:
        """Create the users of accounts that do not exist, with their rules."""
        for name, user in mapped.users.items():
            if self.users.get(name) is None:
                self.users.put(user)
                if name in mapped.acls:
                    self.rules.put(name, mapped.acls[name])

    def _apply_user(self, name: str, value: Mapping[str, Any] | None) -> None:
        if value is None:
            self.users.remove(name)
        elif (user := User.from_plain(name, value)) != self.users.get(name):
            # A master tells all users whenever a link begins: requests of unchanged ones wait on.
            self.users.put(user)

    def _restore_user(self, name: str, value: Mapping[str, Any] | None) -> None:
        self._apply_user(name, None if value is None else self._kept.into(value))

    def _apply_acl(self, name: str, value: Mapping[str, Any] | None) -> None:
        if value is None:
            self.rules.remove(name)
        elif (acl := Acl.from_plain(value)) != self.rules.get(name):
            self.rules.put(name, acl)

    def tables(self) -> Sequence[Table]:
        return (
            Table(USERS, _UsersFile(self.users, self._kept), private=True),
            Table(ACLS, _AclsFile(self.rules), private=True),
        )


class _UsersFile:
    def __init__(self, users: Users, kept: KeptSecrets) -> None:
        self._users = users
        self._kept = kept

    def file_text(self) -> Iterator[str]:
        """``users.json``, piece by piece."""
        entries = [
            (quoted(user.name), pretty_value(self._kept.out(user.plain()), "\n\t\t"))
            for user in self._users.all()
        ]
        return file_text([("users", entries)])

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``users.json``."""
        self._users.load(
            User.from_plain(name, self._kept.into(plain))
            for name, plain in (content.get("users") or {}).items()
        )


class _AclsFile:
    def __init__(self, rules: Rules) -> None:
        self._rules = rules

    def file_text(self) -> Iterator[str]:
        """``acls.json``, piece by piece."""
        entries = [(quoted(name), pretty_value(acl.plain(), "\n\t\t")) for name, acl in self._rules.all()]
        return file_text([("acls", entries)])

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``acls.json``."""
        self._rules.load((name, Acl.from_plain(plain)) for name, plain in (content.get("acls") or {}).items())
