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
from orbitmq.broker.last_changes import LastChanges
from orbitmq.broker.metadata.pretty import file_text, pretty_value, quoted
from orbitmq.broker.role import TAKES_MESSAGES, Role, RoleState
from orbitmq.errors import StartError
from orbitmq.message.reserved import MASTER_ID
from orbitmq.runtime.kept_secrets import KeptSecrets
from orbitmq.runtime.seam import Clock
from orbitmq.wire.errors import RemotingError

# The roles in which requests change users and rules. A slave takes them from its master.
_CHANGES = frozenset({*TAKES_MESSAGES, Role.ACTING_MASTER})


class BrokerAccess(Component):
    """Users and rules, kept in ``config/users.json`` and ``config/acls.json``.

    They are read even without authentication, so that they exist when it is switched on again. Each user and
    rule has the number of its last change, each deleted one that of its deletion (:class:`LastChanges`).

    Args:
        written: returns when the changes of the tables are on the device.
        kept: how secrets are written in files.
        rewrite: writes the file of a table soon, although none of its values has changed.
        accounts: files of ACL 1.0 whose accounts become users and rules; None: there are none to take over.
    """

    name = "access"

    def __init__(
        self,
        clock: Clock,
        config: BrokerConfig,
        role: RoleState,
        feed: ChangeFeed,
        events: Events,
        written: Callable[..., Awaitable[object]],
        kept: KeptSecrets,
        rewrite: Callable[[str], object],
        accounts: PlainAclFiles | None = None,
    ) -> None:
        self._config = config
        self._role = role
        self._feed = feed
        self._kept = kept
        self._rewrite = rewrite
        self._accounts = accounts
        self._started = False
        self.written = written
        last = self._last = LastChanges(clock.now_ms, self._counts)

        def changed(table: str, name: str, value: object) -> None:
            last.changed(table, name, deleted=value is None)
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
                last=last,
            ),
        )
        # A broker that has a user has all rules of that user.
        feed.register(
            ACLS,
            FedTable(
                Acl.plain,
                self._apply_acl,
                items=self.rules.all,
                whole=lambda name: (USERS, name),
                last=last,
            ),
        )

    def _counts(self, deleted: bool) -> bool:
        """Whether a change made here gets a number, so that it is later than all known changes.

        A start creates the users of the settings that are missing. They get no number, so they undo no change
        of another broker; only at a master does the start bring a deleted user back.
        """
        if not self._started:
            return deleted and self._config.broker_id == MASTER_ID
        return self._role.role in _CHANGES

    async def start(self) -> None:
        """Create the super users that the settings name, and users of accounts, unless they exist.

        Raises:
            StartError: authentication is on, and there is no super user who could create users; or the files
                of accounts cannot be used.
        """
        if self._kept.encrypts:
            self._rewrite(USERS)  # to encrypt all secrets with the newest key, also those in clear text
        if self._config.authentication_enabled:
            await self._begin()
        self._started = True

    async def _begin(self) -> None:
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
        user = None if value is None else User.from_plain(name, value)
        if user == self.users.get(name):
            # A master sends all users whenever a link begins: waiting requests of unchanged users go on.
            self._same(USERS, name, user)
        elif user is None:
            self.users.remove(name)
        else:
            self.users.put(user)

    def _same(self, table: str, name: str, value: object) -> None:
        """Note the number of a received change that leaves the value as it is."""
        if self._last.is_news(table, name, deleted=value is None):
            self._last.changed(table, name, deleted=value is None)
            self._feed.changed(table, name, value)

    def _restore_user(self, name: str, value: Mapping[str, Any] | None) -> None:
        self._apply_user(name, None if value is None else self._kept.into(value))

    def _apply_acl(self, name: str, value: Mapping[str, Any] | None) -> None:
        acl = None if value is None else Acl.from_plain(value)
        if acl == self.rules.get(name):
            self._same(ACLS, name, acl)
        elif acl is None:
            self.rules.remove(name)
        else:
            self.rules.put(name, acl)

    def tables(self) -> Sequence[Table]:
        return (
            Table(USERS, _UsersFile(self.users, self._kept, self._last), private=True),
            Table(ACLS, _AclsFile(self.rules, self._last), private=True),
        )


class _UsersFile:
    def __init__(self, users: Users, kept: KeptSecrets, last: LastChanges) -> None:
        self._users = users
        self._kept = kept
        self._last = last

    def file_text(self) -> Iterator[str]:
        """``users.json``, piece by piece."""
        entries = [
            (quoted(user.name), pretty_value(self._kept.out(user.plain()), "\n\t\t"))
            for user in self._users.all()
        ]
        return file_text([("users", entries), *_beside(self._last, USERS)])

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``users.json``."""
        found = content.get("users") or {}
        self._users.load(User.from_plain(name, self._kept.into(plain)) for name, plain in found.items())
        self._last.restore(USERS, found, content)


class _AclsFile:
    def __init__(self, rules: Rules, last: LastChanges) -> None:
        self._rules = rules
        self._last = last

    def file_text(self) -> Iterator[str]:
        """``acls.json``, piece by piece."""
        entries = [(quoted(name), pretty_value(acl.plain(), "\n\t\t")) for name, acl in self._rules.all()]
        return file_text([("acls", entries), *_beside(self._last, ACLS)])

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of ``acls.json``."""
        found = content.get("acls") or {}
        self._rules.load((name, Acl.from_plain(plain)) for name, plain in found.items())
        self._last.restore(ACLS, found, content)


def _beside(last: LastChanges, table: str) -> list[tuple[str, str]]:
    """The numbers of changes and deletions, as members of a table's file."""
    return [(name, pretty_value(value, "\n\t")) for name, value in last.plain(table).items()]
