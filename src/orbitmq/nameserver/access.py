"""Users and rules of a name server, kept in two files that only its own system user may read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

from orbitmq.auth import rules, users
from orbitmq.auth.access_requests import AccessRequests
from orbitmq.auth.gate import AuthGate
from orbitmq.auth.name_server_requests import REQUESTS, NameServerFacts
from orbitmq.auth.needs import asked_of
from orbitmq.auth.rules import Acl, Rules
from orbitmq.auth.users import User, Users
from orbitmq.errors import StartError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.routes import RouteTable
from orbitmq.runtime import Runtime
from orbitmq.runtime.kept_secrets import KeptSecrets
from orbitmq.runtime.paths import joined
from orbitmq.settings.access import OBSERVE
from orbitmq.transport.private_answers import PrivateAnswers
from orbitmq.wire.bodies.topic import KVTable
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError

# Rules are written first: a user that was deleted never comes back with its rules.
_ORDER: Final = (rules.TABLE, users.TABLE)


class NameServerAccess:
    """The users and rules, the gate that checks requests by them, and the handlers of requests about them.

    Args:
        config: the settings of the start.
        mode: returns the present value of ``authMode``.

    Attributes:
        users, rules: the tables.
        answers: handles the requests about users, rules and refusals.
    """

    def __init__(
        self, runtime: Runtime, config: NameServerConfig, routes: RouteTable, mode: Callable[[], str]
    ) -> None:
        self._runtime = runtime
        self._config = config
        self._mode = mode
        self._unsaved: set[str] = set()
        self._saving = asyncio.Lock()
        self._unlock: Callable[[], None] | None = None
        self._kept = KeptSecrets()
        self.users = Users(lambda _name, _user: self._unsaved.add(users.TABLE))
        self.rules = Rules(lambda _name, _acl: self._unsaved.add(rules.TABLE))
        self.gate = AuthGate(
            asked_of(REQUESTS, NameServerFacts(routes.clusters, routes.cluster_of)),
            self.users,
            self.rules,
            authorizes=config.authorization_enabled,
            observes=lambda: mode() == OBSERVE,
        )
        requests = AccessRequests(self.users, self.rules, self.gate, self._written)
        self.answers: PrivateAnswers[Command | Awaitable[Command]] = PrivateAnswers(
            {**requests.by_code, RequestCode.GET_BROKER_RUNTIME_INFO: self._state},
            requests.revealing if config.auth_reveal_passwords else {},
            behind_proxies=bool(config.proxy_protocol_trusted),
        )

    def open(self) -> None:
        """Read the files, and make the super users that the settings name.

        Raises:
            StartError: a file cannot be read or written, another process has it, or there is no super user.
        """
        folder = self._config.auth_config_path
        if not folder:
            raise StartError("authenticationEnabled=true needs authConfigPath, a folder for users and rules")
        try:
            self._runtime.files.make_dirs(folder)
            self._unlock = self._runtime.files.lock(joined(folder, "lock"))
        except BlockingIOError as error:
            raise StartError(
                f"authConfigPath={folder} is used by another process, which would lose changes of its users: "
                "give each name server a folder of its own"
            ) from error
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            self._kept = KeptSecrets.of(self._runtime.files, self._config.auth_key_file)
            self._load()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the lock of the folder."""
        unlock, self._unlock = self._unlock, None
        if unlock is not None:
            unlock()

    def _unwritable(self, error: OSError) -> StartError:
        where = self._config.auth_config_path
        return StartError(f"cannot write to authConfigPath={where}: {error.strerror or error}")

    def _load(self) -> None:
        for table, take in ((users.TABLE, self._take_users), (rules.TABLE, self._take_rules)):
            path = self._path(table)
            try:
                if self._runtime.files.exists(path):
                    take(json.loads(self._runtime.files.read_bytes(path))[table])
            except OSError as error:
                raise StartError(f"cannot read {path}: {error.strerror or error}") from error
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                # The error's text is left out: it may show a secret.
                raise StartError(f"{path} is no table of {table}: {type(error).__name__}") from None
        self.users.begin(self._config.first_super_users())
        # The files are written anew at each start: a file copied here may be readable by other system users.
        self._unsaved.update(_ORDER)
        try:
            self._save(self._texts())
            self._unsaved.clear()
        except OSError as error:
            raise self._unwritable(error) from error

    def _take_users(self, plain: dict[str, Any]) -> None:
        self.users.load(User.from_plain(name, self._kept.into(each)) for name, each in plain.items())

    def _take_rules(self, plain: dict[str, Any]) -> None:
        self.rules.load((name, Acl.from_plain(each)) for name, each in plain.items())

    def _path(self, table: str) -> str:
        return joined(self._config.auth_config_path, f"{table}.json")

    def _texts(self) -> dict[str, bytes]:
        """The files that have to be written."""
        contents: dict[str, Callable[[], dict[str, Any]]] = {
            rules.TABLE: lambda: {name: acl.plain() for name, acl in self.rules.all()},
            users.TABLE: lambda: {user.name: self._kept.out(user.plain()) for user in self.users.all()},
        }
        return {
            table: json.dumps({table: contents[table]()}, indent="\t").encode()
            for table in _ORDER
            if table in self._unsaved
        }

    def _save(self, texts: dict[str, bytes]) -> None:
        files = self._runtime.files
        for table, text in texts.items():
            files.write_atomic(self._path(table), text, private=True)

    async def _written(self, *_tables: str) -> None:
        """Save the tables that have changed.

        Raises:
            RemotingError: a table cannot be saved; the next change tries again.
        """
        async with self._saving:
            texts = self._texts()
            self._unsaved.clear()
            try:
                await self._runtime.threads.run(self._save, texts)
            except OSError as error:
                self._unsaved.update(texts)
                remark = (
                    f"the change counts until this name server stops, as authConfigPath="
                    f"{self._config.auth_config_path} cannot be written: {error.strerror or error}"
                )
                raise RemotingError(ResponseCode.SYSTEM_ERROR, remark) from error

    def _state(self, command: Command) -> Command:
        lines = {"authMode": self._mode(), **self.gate.refusals.lines()}
        return command.reply(body=KVTable(table=lines).encode())
