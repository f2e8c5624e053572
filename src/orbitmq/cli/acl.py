"""``orbitmq acl``: what users of brokers that require keys may do."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from orbitmq.cli.app import Yes, confirm, make_app
from orbitmq.cli.command import command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.partial import done
from orbitmq.cli.user import User, check_known
from orbitmq.cli.values import named
from orbitmq.cli.view import Table, View, same
from orbitmq.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.admin import Admin

app = make_app(
    "acl",
    "What users of brokers that require keys may do (ACL 2.0): rules.",
    """
orbitmq acl allow app --topic 'orders*' Pub,Sub --from 10.0.0.0/8
orbitmq acl deny app --topic orders-secret All
orbitmq acl list app
orbitmq acl test app Pub Topic:orders --from 10.0.0.9
orbitmq acl delete app Topic:orders*
orbitmq acl refusals
""",
)

NONE_COUNTED = "no refusal is reported; only OrbitMQ's servers with authenticationEnabled=true count them"
Pairs = Annotated[list[tuple[str, str]] | None, Parameter(negative=())]
From = Annotated[list[str] | None, Parameter(name="--from", negative=())]


@app.command
@command
async def allow(
    admin: Admin,
    user: User,
    /,
    *,
    topic: Pairs = None,
    group: Pairs = None,
    resource: Pairs = None,
    sources: From = None,
) -> View:
    """Allow a user actions on topics and groups, at all brokers. A rule replaces an earlier one for the same
    name.

    Args:
        topic: A topic, prefix* or *, and the actions, separated by commas: Pub, Sub, Create, Update, Delete,
            Get, List, or All. May be given more than once.
        group: The same for a group.
        resource: The same for Cluster:name, or * for everything.
        sources: The rule counts for this address or network only. May be given more than once.
    """
    return await _set(admin, user, topic, group, resource, sources, allows=True)


@app.command
@command
async def deny(
    admin: Admin,
    user: User,
    /,
    *,
    topic: Pairs = None,
    group: Pairs = None,
    resource: Pairs = None,
    sources: From = None,
) -> View:
    """Deny a user actions on topics and groups, at all brokers. The rule with the most exact name decides.

    Args:
        topic: A topic, prefix* or *, and the actions, separated by commas. May be given more than once.
        group: The same for a group.
        resource: The same for Cluster:name, or * for everything.
        sources: The rule counts for this address or network only. May be given more than once.
    """
    return await _set(admin, user, topic, group, resource, sources, allows=False)


async def _set(
    admin: Admin,
    user: str,
    topic: Sequence[tuple[str, str]] | None,
    group: Sequence[tuple[str, str]] | None,
    resource: Sequence[tuple[str, str]] | None,
    sources: Sequence[str] | None,
    *,
    allows: bool,
) -> View:
    wanted = [(f"Topic:{name}", named(actions)) for name, actions in topic or ()]
    wanted += [(f"Group:{name}", named(actions)) for name, actions in group or ()]
    wanted += [(name, named(actions)) for name, actions in resource or ()]
    if not wanted:
        raise UsageError("which resource? Give --topic, --group or --resource with actions")
    _check_rules(wanted, sources or ())
    await check_known(admin, user)
    verb = "allowed" if allows else "denied"
    brokers: Sequence[str] = ()
    lines = []
    for name, actions in wanted:
        brokers, left_out = await done(
            admin.access.set_rule(user, name, actions, sources=sources or (), allows=allows)
        )
        at = f" from {', '.join(sources)}" if sources else ""
        lines.append(f"{verb} {user} {', '.join(actions)} of {name}{at} at {', '.join(brokers)}")
        if left_out:
            return View({"user": user, "brokers": brokers}, lines=lines, left_out=left_out)
    return View({"user": user, "brokers": brokers, "rules": len(wanted)}, lines=lines)


def _check_rules(wanted: Sequence[tuple[str, Sequence[str]]], sources: Sequence[str]) -> None:
    """Before the first change, refuse values that every broker would refuse.

    Raises:
        UsageError, ValidationError: a value is wrong; the text names it and what was expected.
    """
    from orbitmq.admin.verdicts import check_rule
    from orbitmq.auth.rules import network_of

    for source in sources:
        if network_of(source) is None:
            raise UsageError(f"--from {source}: expected an IP address, or a network as 10.0.0.0/8")
    for resource, actions in wanted:
        check_rule(resource, actions, sources)


@app.command(name="list")
@command
async def list_rules(admin: Admin, user: str | None = None, /) -> View:
    """Show the rules of each broker.

    Args:
        user: Show only the rules of this user.
    """
    answer = await admin.access.rules(user)
    rows = [
        {
            "user": rule.user,
            "resource": rule.resource,
            "actions": list(rule.actions),
            "sources": list(rule.sources),
            "decision": "allow" if rule.allows else "deny",
            "policy": "default" if rule.is_default else "custom",
            "broker": rule.broker_name,
        }
        for rule in answer.found
    ]
    columns = same("user", "resource", "actions", "sources", "decision", "policy", "broker")
    table = Table("rules", rows, columns, spared=("policy", "sources"))
    return View({}, [table], left_out=answer.left_out, missing="its rules are")


@app.command
@command
async def delete(admin: Admin, user: User, resource: str | None = None, /, *, yes: Yes = False) -> View:
    """Remove rules of a user at all brokers. Asks first.

    Args:
        resource: The resource of the rule, as 'orbitmq acl list' shows it. Default: all rules of the user.
    """
    rules = [rule for rule in (await admin.access.rules(user)).whole() if resource in (None, rule.resource)]
    if not rules:
        raise UsageError(f"{user} has no rule" + ("" if resource is None else f" about {resource}"))
    count = counted(len({rule.resource for rule in rules}), "rule")
    await confirm("Delete", f"{count} of {user}", yes=yes)
    brokers, left_out = await done(admin.access.delete_rules(user, resource))
    line = f"deleted {count} of {user} at {', '.join(brokers)}"
    return View({"user": user, "brokers": brokers}, lines=[line], left_out=left_out)


@app.command(name="test")
@command
async def right(
    admin: Admin,
    user: User,
    action: str,
    resource: str,
    /,
    *,
    source: Annotated[str, Parameter(name="--from")] = "127.0.0.1",
) -> View:
    """Say whether a user may do something, and why. The exit code is 1 when a broker would refuse it.

    Args:
        action: One of Pub, Sub, Create, Update, Delete, Get, List.
        resource: Topic:name, Group:name or Cluster:name.
        source: The address of the client.
    """
    from orbitmq.auth.rules import address_of

    if address_of(source) is None:
        raise UsageError(f"--from {source}: expected an IP address")
    answer = await admin.access.test(user, action, resource, source=source)
    rows = [{"broker": one.broker_name, "allowed": one.allowed, "why": one.why} for one in answer.found]
    return View(
        {"user": user, "action": action, "resource": resource, "from": source},
        [Table("brokers", rows, {**same("broker"), "verdict": _word, **same("why")})],
        left_out=answer.left_out,
        missing="its verdict is",
        failed=not rows or not all(row["allowed"] for row in rows),
    )


@app.command
@command
async def refusals(admin: Admin, /) -> View:
    """Show what brokers refused since they started, or would refuse with authMode=observe."""
    answer = await admin.access.refusals()
    rows = [
        {
            "user": one.user,
            "why": one.why,
            "action": one.action,
            "resource": one.resource,
            "from": one.address,
            "count": one.count,
            "broker": one.broker_name,
        }
        for one in answer.found
    ]
    columns = same("user", "why", "action", "resource", "from", "count", "broker")
    missing = dict.fromkeys((one.user, one.resource, one.action) for one in answer.found if one.action)
    return View(
        {},
        [Table("refusals", rows, columns, spared=("broker",))],
        lines=[f"allow it: {_allowing(*rule)}" for rule in missing] if rows else [NONE_COUNTED],
        left_out=answer.left_out,
        missing="what it refused is",
    )


def _allowing(user: str, resource: str, action: str) -> str:
    kind, _, name = resource.partition(":")
    options = {"Topic": ["--topic", name], "Group": ["--group", name]}.get(kind, ["--resource", resource])
    return shlex.join(["orbitmq", "acl", "allow", user, *options, action])


def _word(row: Any) -> str:
    return "allowed" if row["allowed"] else "refused"
