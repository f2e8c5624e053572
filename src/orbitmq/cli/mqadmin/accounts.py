"""Commands of mqadmin 4.x for the accounts of ACL 1.0. The output contains no secret."""

from __future__ import annotations

from collections.abc import AsyncIterator

from orbitmq.cli.mqadmin.offers import Flag, Offers, Options, Tool, boolean
from orbitmq.cli.mqadmin.text import laid, seconds_of, table, word
from orbitmq.errors import BrokerError
from orbitmq.wire import all_headers as headers
from orbitmq.wire import fastjson
from orbitmq.wire.bodies.auth import PlainAccount, PlainAccounts
from orbitmq.wire.bodies.topic import DataVersion
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

ACCOUNTS = Offers()
ACCESS_KEY = Flag("a", "accessKey", "name of the account", required=True)
VERSIONS_ROW = "%-16s  %-22s  %-22s  %-20s  %-22s  %-22s"
ACCOUNT_ROW = "%-1s %-18s: %s"


@ACCOUNTS(
    "updateAclConfig",
    "make an account of ACL 1.0, or change it",
    ACCESS_KEY,
    Flag("s", "secretKey", "the secret", required=True),
    Flag("w", "whiteRemoteAddress", "white address of the account; OrbitMQ admits nobody by it"),
    Flag("i", "defaultTopicPerm", "right on other topics: DENY, PUB, SUB or PUB|SUB"),
    Flag("u", "defaultGroupPerm", "right on other groups"),
    Flag("t", "topicPerms", "such as orders=PUB|SUB,invoices=SUB"),
    Flag("g", "groupPerms", "such as billing=SUB"),
    Flag("m", "admin", "true: the account may do everything"),
    places=True,
)
async def update_account(tool: Tool, options: Options) -> AsyncIterator[str]:
    request = headers.UpdateAndCreateAclConfigRequest(
        access_key=options.a,
        secret_key=options.s,
        white_remote_address=options.w,
        admin=boolean(options.m, False),
        default_topic_perm=options.i,
        default_group_perm=options.u,
        topic_perms=options.t,
        group_perms=options.g,
    )
    for address in await tool.addresses(options, slaves=True):
        await _ask(tool, address, request.command())
        yield f"create or update plain access config to {address} success."
    # Java's tool prints an object's address in memory instead.
    yield "PlainAccessConfig" + table({**request.to_ext(), "secretKey": "***"})


@ACCOUNTS(
    "deleteAclConfig", "delete an account of ACL 1.0", ACCESS_KEY, places=True, alias="deleteAccessConfig"
)
async def delete_account(tool: Tool, options: Options) -> AsyncIterator[str]:
    request = headers.DeleteAclConfigRequest(access_key=options.a)
    for address in await tool.addresses(options, slaves=True):
        await _ask(tool, address, request.command())
        yield f"delete plain access config account from {address} success."
    yield f"account's accesskey is:{options.a}"


@ACCOUNTS("clusterAclConfigVersion", "show the versions of the files of ACL 1.0", places=True)
async def versions(tool: Tool, options: Options) -> AsyncIterator[str]:
    if options.c is not None:
        yield laid(
            VERSIONS_ROW,
            "#Cluster Name",
            "#Broker Name",
            "#Broker Addr",
            "#AclFilePath",
            "#AclConfigVersionNum",
            "#AclLastUpdateTime",
        )
    for address in await tool.addresses(options):
        answer = await _ask(tool, address, Command(RequestCode.GET_BROKER_CLUSTER_ACL_INFO))
        found = headers.GetBrokerAclConfigResponse.from_ext(answer.ext)
        known = fastjson.loads(found.all_acl_file_version or "{}")
        for path, value in known.items() if isinstance(known, dict) else ():
            version = DataVersion.from_json(value)
            yield laid(
                VERSIONS_ROW,
                found.cluster_name,
                found.broker_name,
                found.broker_addr,
                path,
                version.counter,
                seconds_of(version.timestamp),
            )
    owner = "broker" if options.c is None else "cluster"
    yield f"get {owner}'s plain access config version success."


@ACCOUNTS(
    "getAclConfig",
    "show the accounts of ACL 1.0 without secrets",
    places=True,
    alias="getAccessConfigSubCommand",
)
async def accounts(tool: Tool, options: Options) -> AsyncIterator[str]:
    for address in await tool.addresses(options):
        answer = await _ask(tool, address, Command(RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG))
        found = PlainAccounts.decode(answer.body) if answer.body else PlainAccounts()
        yield ""
        yield laid("%-20s: %s", "globalWhiteRemoteAddresses", f"[{', '.join(found.global_white_addrs)}]")
        yield ""
        yield "accounts:"
        for account in found.plain_access_configs:
            for name, value in _fields(account).items():
                yield laid(ACCOUNT_ROW, "", name, "" if value is None else word(value))
            yield ""


def _fields(account: PlainAccount) -> dict[str, object]:
    """The fields of an account, in the order of Java's output, without the secret."""
    return {
        "accessKey": account.access_key,
        "secretKey": None,
        "whiteRemoteAddress": account.white_remote_address,
        "admin": account.admin,
        "defaultTopicPerm": account.default_topic_perm,
        "defaultGroupPerm": account.default_group_perm,
        "topicPerms": _list(account.topic_perms),
        "groupPerms": _list(account.group_perms),
    }


def _list(values: list[str] | None) -> str | None:
    return None if values is None else f"[{', '.join(values)}]"


@ACCOUNTS(
    "updateGlobalWhiteAddr",
    "set the white addresses of a file of ACL 1.0",
    Flag("g", "globalWhiteRemoteAddresses", "addresses, separated by commas", required=True),
    Flag("p", "aclFileFullPath", "path of the file at the broker; without it plain_acl.yml"),
    places=True,
)
async def update_white_addresses(tool: Tool, options: Options) -> AsyncIterator[str]:
    request = headers.UpdateGlobalWhiteAddrsConfigRequest(
        global_white_addrs=options.g, acl_file_full_path=options.p
    )
    for address in await tool.addresses(options, slaves=True):
        await _ask(tool, address, request.command())
        yield f"update global white remote addresses to {address} success."


async def _ask(tool: Tool, address: str, request: Command) -> Command:
    """Send a broker a request about its accounts.

    Raises:
        BrokerError: the broker refuses, or has no accounts of ACL 1.0: aclEnable is off, or it is RocketMQ
            5.3.3 or later.
    """
    try:
        return await tool.cluster.ask(address, request)
    except BrokerError as error:
        if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise
        text = (
            f"the broker has no accounts of ACL 1.0 (code {request.code}); users of ACL 2.0: mqadmin listUser"
        )
        raise BrokerError(error.code, text, address) from error
