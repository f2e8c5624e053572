"""Commands of mqadmin for users and rules (ACL 2.0). No answer has a password: the column shows null."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from orbitmq.cli.failures import UsageError
from orbitmq.cli.mqadmin.offers import Flag, Offers, Options, Tool
from orbitmq.cli.mqadmin.text import laid, word
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo

ACCESS = Offers()
USER = Flag("u", "username", "name of the user", required=True)
SUBJECT = Flag("s", "subject", "User:name", required=True)
PASSWORD = Flag("p", "password", "the secret")
KIND = Flag("t", "userType", "Super or Normal")
RULE = (
    Flag("r", "resources", "such as Topic:orders,Group:billing*", required=True),
    Flag("a", "actions", "such as Pub,Sub", required=True),
    Flag("i", "sourceIp", "addresses and networks, separated by commas"),
    Flag("d", "decision", "Allow or Deny", required=True),
)
FROM = Flag("f", "fromBroker", "address of the broker that has them", required=True)
TO = Flag("t", "toBroker", "address of the broker that gets them", required=True)
USERS_ROW = "%-16s  %-22s  %-22s  %-22s"
RULES_ROW = "%-16s  %-10s  %-22s  %-20s  %-24s  %-10s"


# -- users -----------------------------------------------------------------------------------------------


@ACCESS(
    "createUser",
    "create a user",
    USER,
    Flag("p", "password", "the secret", required=True),
    KIND,
    places=True,
)
async def create_user(tool: Tool, options: Options) -> AsyncIterator[str]:
    body = UserInfo(options.u, options.p, options.t).encode()
    for address in await tool.addresses(options, slaves=True):
        await tool.cluster.ask(address, headers.AuthCreateUserRequest(username=options.u).command(body))
        yield f"create user to {address} success."


@ACCESS(
    "updateUser",
    "change the secret, the type or the status of a user",
    USER,
    PASSWORD,
    KIND,
    Flag("s", "userStatus", "enable or disable"),
    places=True,
)
async def update_user(tool: Tool, options: Options) -> AsyncIterator[str]:
    if [options.p, options.t, options.s].count(None) != 2:
        raise UsageError("give one of -p, -t and -s: what is to be changed")
    body = UserInfo(options.u, options.p, options.t, options.s).encode()
    for address in await tool.addresses(options, slaves=True):
        await tool.cluster.ask(address, headers.AuthUpdateUserRequest(username=options.u).command(body))
        yield f"update user to {address} success."


@ACCESS("deleteUser", "delete a user", USER, places=True)
async def delete_user(tool: Tool, options: Options) -> AsyncIterator[str]:
    for address in await tool.addresses(options, slaves=True):
        await tool.cluster.ask(address, headers.AuthDeleteUserRequest(username=options.u).command())
        yield f"delete user to {address} success."


@ACCESS("getUser", "show a user", USER, places=True)
async def get_user(tool: Tool, options: Options) -> AsyncIterator[str]:
    for address in await tool.addresses(options):
        found = await _user(tool, address, options.u)
        if found is not None:
            for line in _users([found]):
                yield line
            return


@ACCESS("listUser", "show users", Flag("f", "filter", "only names that contain this"), places=True)
async def list_user(tool: Tool, options: Options) -> AsyncIterator[str]:
    request = headers.AuthListUserRequest(filter=options.f or "")
    for address in await tool.addresses(options):
        answer = await tool.cluster.ask(address, request.command())
        found = UserInfo.decode_list(answer.body) if answer.body else []
        if found:
            for line in _users(found):
                yield line
            if options.c:
                yield f"get user from {address} success."
            return


@ACCESS(
    "copyUser",
    "copy users to another broker",
    FROM,
    TO,
    Flag("u", "usernames", "names, separated by commas"),
)
async def copy_user(tool: Tool, options: Options) -> AsyncIterator[str]:
    if options.u:
        each = [await _user(tool, options.f, name) for name in _words(options.u)]
        found = [one for one in each if one is not None]
    else:
        answer = await tool.cluster.ask(options.f, headers.AuthListUserRequest().command())
        found = UserInfo.decode_list(answer.body) if answer.body else []
    for one in found:
        name = one.username or ""
        known = await _user(tool, options.t, name)
        make = headers.AuthCreateUserRequest if known is None else headers.AuthUpdateUserRequest
        await tool.cluster.ask(options.t, make(username=name).command(one.encode()))
        yield f"copy user of {name} from {options.f} to {options.t} success."


async def _user(tool: Tool, address: str, name: str) -> UserInfo | None:
    answer = await tool.cluster.ask(address, headers.AuthGetUserRequest(username=name).command())
    return UserInfo.decode(answer.body) if answer.body else None


def _users(found: Sequence[UserInfo]) -> list[str]:
    title = laid(USERS_ROW, "#UserName", "#Password", "#UserType", "#UserStatus")
    rows = [(one.username, one.password, one.user_type, one.user_status) for one in found]
    return [title, *(laid(USERS_ROW, *map(word, row)) for row in rows)]


# -- rules -----------------------------------------------------------------------------------------------


@ACCESS("createAcl", "allow or deny something to a user", SUBJECT, *RULE, places=True)
async def create_acl(tool: Tool, options: Options) -> AsyncIterator[str]:
    for address in await tool.addresses(options, slaves=True):
        request = headers.AuthCreateAclRequest(subject=options.s)
        await tool.cluster.ask(address, request.command(_rule(options).encode()))
        yield f"create acl to {address} success."


@ACCESS("updateAcl", "change what is allowed or denied to a user", SUBJECT, *RULE, places=True)
async def update_acl(tool: Tool, options: Options) -> AsyncIterator[str]:
    for address in await tool.addresses(options, slaves=True):
        request = headers.AuthUpdateAclRequest(subject=options.s)
        await tool.cluster.ask(address, request.command(_rule(options).encode()))
        yield f"update acl to {address} success."


@ACCESS(
    "deleteAcl", "delete rules of a user", SUBJECT, Flag("r", "resources", "only of this one"), places=True
)
async def delete_acl(tool: Tool, options: Options) -> AsyncIterator[str]:
    for address in await tool.addresses(options, slaves=True):
        request = headers.AuthDeleteAclRequest(subject=options.s, resource=options.r or "")
        await tool.cluster.ask(address, request.command())
        yield f"delete acl to {address} success."


@ACCESS("getAcl", "show the rules of a user", SUBJECT, places=True)
async def get_acl(tool: Tool, options: Options) -> AsyncIterator[str]:
    for address in await tool.addresses(options):
        found = await _rules_of(tool, address, options.s)
        if found is not None:
            for line in _rules([found]):
                yield line
            return


@ACCESS(
    "listAcl",
    "show rules",
    Flag("s", "subject", "only of subjects that contain this"),
    Flag("r", "resource", "only of resources that contain this"),
    places=True,
)
async def list_acl(tool: Tool, options: Options) -> AsyncIterator[str]:
    request = headers.AuthListAclRequest(subject_filter=options.s or "", resource_filter=options.r or "")
    for address in await tool.addresses(options):
        answer = await tool.cluster.ask(address, request.command())
        found = AclInfo.decode_list(answer.body) if answer.body else []
        if found:
            for line in _rules(found):
                yield line
            return


@ACCESS(
    "copyAcl",
    "copy rules to another broker",
    FROM,
    TO,
    Flag("s", "subjects", "subjects, separated by commas"),
)
async def copy_acl(tool: Tool, options: Options) -> AsyncIterator[str]:
    if options.s:
        each = [await _rules_of(tool, options.f, subject) for subject in _words(options.s)]
        found = [one for one in each if one is not None]
    else:
        answer = await tool.cluster.ask(options.f, headers.AuthListAclRequest().command())
        found = AclInfo.decode_list(answer.body) if answer.body else []
    for one in found:
        subject = one.subject or ""
        known = await _rules_of(tool, options.t, subject)
        make = headers.AuthCreateAclRequest if known is None else headers.AuthUpdateAclRequest
        await tool.cluster.ask(options.t, make(subject=subject).command(one.encode()))
        yield f"copy acl of {subject} from {options.f} to {options.t} success."


async def _rules_of(tool: Tool, address: str, subject: str) -> AclInfo | None:
    answer = await tool.cluster.ask(address, headers.AuthGetAclRequest(subject=subject).command())
    return AclInfo.decode(answer.body) if answer.body else None


def _rule(options: Options) -> AclInfo:
    sources = _words(options.i) if options.i else None
    entries = [
        PolicyEntryInfo(resource, _words(options.a), sources, options.d) for resource in _words(options.r)
    ]
    return AclInfo(options.s, [PolicyInfo(None, entries)])


def _rules(found: Sequence[AclInfo]) -> list[str]:
    lines = [
        laid(RULES_ROW, "#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision"),
    ]
    for one in found:
        if not one.policies:
            lines.append(laid(RULES_ROW, one.subject, "", "", "", "", ""))
        lines += [
            laid(
                RULES_ROW,
                one.subject,
                policy.policy_type,
                entry.resource,
                _list(entry.actions),
                _list(entry.source_ips),
                entry.decision,
            )
            for policy in one.policies or ()
            for entry in policy.entries or ()
        ]
    return lines


def _list(values: Sequence[str] | None) -> str:
    return "null" if values is None else f"[{', '.join(values)}]"


def _words(text: str) -> list[str]:
    return [one.strip() for one in text.split(",") if one.strip()]
