"""Handles super users' requests about the accounts of ACL 1.0 (50 to 54). No answer has a secret."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from orbitmq.auth.plain_acl import PlainAcl, PlainAclError, Version
from orbitmq.auth.plain_changes import (
    Change,
    PlainChangeError,
    delete_account,
    put_account,
    set_white_addresses,
)
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.auth import PlainAccount, PlainAccounts
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError


@dataclass(frozen=True, slots=True)
class Place:
    """The broker that has the accounts."""

    cluster: str
    broker_name: str
    address: str


class Source(Protocol):
    """The files with the accounts of a broker."""

    @property
    def main(self) -> str:
        """The path of plain_acl.yml, the file that gets new accounts."""
        ...

    @property
    def files(self) -> Sequence[PlainAcl]:
        """The contents of the files."""
        ...

    @property
    def taken_ms(self) -> int:
        """When the files were read, in milliseconds since the epoch."""
        ...

    async def change(self, change: Change) -> None:
        """Write a change, and apply it.

        Raises:
            PlainChangeError, PlainAclError: the change cannot be made.
            OSError: the file cannot be written.
        """
        ...


_UPDATE_FAILED: Final = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
_DELETE_FAILED: Final = ResponseCode.DELETE_ACL_CONFIG_FAILED
_WHITE_FAILED: Final = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED


class PlainAclRequests:
    """Changes and shows accounts.

    Attributes:
        by_code: the handler of each request code.
    """

    def __init__(self, source: Source, place: Place, now_ms: Callable[[], int]) -> None:
        self._source = source
        self._place = place
        self._now_ms = now_ms
        self.by_code: dict[int, Callable[[Command], Command | Awaitable[Command]]] = {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self._put,
            RequestCode.DELETE_ACL_CONFIG: self._delete,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self._versions,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self._set_white,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self._accounts,
        }

    async def _put(self, command: Command) -> Command:
        asked = headers.UpdateAndCreateAclConfigRequest.from_ext(command.ext)
        return await self._make(
            command, _UPDATE_FAILED, lambda: put_account(asked, self._source.main, self._now_ms())
        )

    async def _delete(self, command: Command) -> Command:
        name = headers.DeleteAclConfigRequest.from_ext(command.ext).access_key
        return await self._make(command, _DELETE_FAILED, lambda: delete_account(name, self._now_ms()))

    async def _set_white(self, command: Command) -> Command:
        asked = headers.UpdateGlobalWhiteAddrsConfigRequest.from_ext(command.ext)
        path = asked.acl_file_full_path or self._source.main
        return await self._make(
            command,
            _WHITE_FAILED,
            lambda: set_white_addresses(asked.global_white_addrs, path, self._now_ms()),
        )

    async def _make(self, command: Command, failed: ResponseCode, change: Callable[[], Change]) -> Command:
        try:
            await self._source.change(change())
        except (PlainChangeError, PlainAclError) as error:
            raise RemotingError(failed, str(error)) from error
        except OSError as error:
            raise RemotingError(failed, f"the file cannot be written: {error.strerror or error}") from error
        return command.reply()

    def _versions(self, command: Command) -> Command:
        """The versions of the files; a file that no request has changed has the time of its reading."""
        versions = {file.path: self._plain(file.version) for file in self._source.files if not file.is_empty}
        answer = headers.GetBrokerAclConfigResponse(
            version=json.dumps(versions.get(self._source.main) or self._plain(None)),
            all_acl_file_version=json.dumps(versions),
            broker_name=self._place.broker_name,
            broker_addr=self._place.address,
            cluster_name=self._place.cluster,
        )
        return answer.reply_to(command)

    def _plain(self, version: Version | None) -> dict[str, int]:
        found = version or Version(0, self._source.taken_ms)
        return {"counter": found.counter, "timestamp": found.timestamp}

    def _accounts(self, command: Command) -> Command:
        """The accounts, without their secrets."""
        files = self._source.files
        accounts = [
            PlainAccount(
                account.access_key,
                account.white_address or None,
                account.admin,
                account.default_topic or None,
                account.default_group or None,
                [f"{name}={right}" for name, right in account.topics] or None,
                [f"{name}={right}" for name, right in account.groups] or None,
            )
            for file in files
            for account in file.accounts
        ]
        white = [address for file in files for address in file.white_addresses]
        return command.reply(body=PlainAccounts(white, accounts).encode())
