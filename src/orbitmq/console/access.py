"""Users, their rules, and what brokers refused."""

from __future__ import annotations

import asyncio

from orbitmq.admin import Admin
from orbitmq.console.asking import names
from orbitmq.console.model import Column, Field, Form, Page, Row, Table, said
from orbitmq.console.rights import ADMIN
from orbitmq.errors import BrokerError
from orbitmq.wire.codes import ResponseCode


async def access(admin: Admin) -> Page:
    try:
        users, rules, refusals = await asyncio.gather(
            admin.access.users(), admin.access.rules(), admin.access.refusals()
        )
    except BrokerError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return Page("access", "", said("no_users"))
        raise
    people: dict[str, Row] = {}
    for one in users.found:
        at = people[one.user]["brokers"] if one.user in people else ""
        people[one.user] = {
            "user": one.user,
            "kind": "super" if one.is_super else "normal",
            "state": "ok" if one.is_enabled else "off",
            "brokers": f"{at}, {one.broker_name}" if at else one.broker_name,
        }
    rights: dict[tuple[str, ...], Row] = {}
    for rule in rules.found:
        key = (rule.user, rule.resource, *rule.actions, str(rule.allows), *rule.sources)
        at = rights[key]["brokers"] if key in rights else ""
        rights[key] = {
            "user": rule.user,
            "resource": rule.resource,
            "actions": ", ".join(rule.actions),
            "from": ", ".join(rule.sources) or "*",
            "decision": "allow" if rule.allows else "deny",
            "brokers": f"{at}, {rule.broker_name}" if at else rule.broker_name,
        }
    refused = [
        {
            "user": one.user,
            "why": one.why,
            "action": one.action,
            "resource": one.resource,
            "address": one.address,
            "count": one.count,
            "broker": one.broker_name,
        }
        for one in refusals.found
    ]
    blocks = (
        Table(
            "users",
            (
                Column("user", link="/access/{user}"),
                Column("kind"),
                Column("state", "state"),
                Column("brokers", "long"),
            ),
            list(people.values()),
            "no_users",
            long=True,
        ),
        Table(
            "rules",
            (
                Column("user"),
                Column("resource", "code"),
                Column("actions", "long"),
                Column("from", "code"),
                Column("decision"),
                Column("brokers", "long"),
            ),
            list(rights.values()),
            "no_rules",
        ),
        Table(
            "refusals",
            (
                Column("user"),
                Column("why"),
                Column("action"),
                Column("resource", "code"),
                Column("address", "code"),
                Column("count", "number"),
                Column("broker"),
            ),
            refused,
            "no_refusals",
        ),
    )
    left_out = names([*users.left_out, *rules.left_out, *refusals.left_out])
    return Page("access", "", said("count_users", n=len(people)), (*blocks, _new_user()), left_out=left_out)


async def one_user(admin: Admin, name: str) -> Page:
    """One user with its rules, and the forms that change them."""
    users, rules = await asyncio.gather(admin.access.users(), admin.access.rules(name))
    own = [one for one in users.found if one.user == name]
    left_out = names([*users.left_out, *rules.left_out])
    if not own:
        return Page("access", name, said("no_such_user", "bad", name=name), left_out=left_out)
    rows: list[Row] = [
        {
            "broker": rule.broker_name,
            "resource": rule.resource,
            "actions": ", ".join(rule.actions),
            "from": ", ".join(rule.sources) or "*",
            "decision": "allow" if rule.allows else "deny",
        }
        for rule in rules.found
    ]
    columns = (
        Column("resource", "code"),
        Column("actions"),
        Column("from", "code"),
        Column("decision"),
        Column("broker"),
    )
    change = Form(
        "/do/user-save",
        "save",
        (
            Field("user", "hidden", name),
            Field("secret", "password", hint="hint_new_secret"),
            Field("super", "check", "yes" if own[0].is_super else ""),
            Field("enabled", "check", "yes" if own[0].is_enabled else ""),
        ),
        post=True,
        title="edit_user",
        needs=ADMIN,
    )
    delete = Form(
        "/do/user-delete",
        "delete",
        (Field("user", "hidden", name), Field("typed", wanted=name, required=True)),
        post=True,
        title="delete_user",
        note=said("sure_user"),
        needs=ADMIN,
        danger=True,
    )
    blocks = (
        Table("rules", columns, rows, "no_rules"),
        _new_rule(name),
        _no_rule(name, rows),
        change,
        delete,
    )
    return Page("access", name, None, blocks, left_out=left_out)


def _new_user() -> Form:
    fields = (
        Field("user", required=True),
        Field("secret", "password", hint="hint_secret"),
        Field("super", "check"),
    )
    return Form("/do/user-create", "create", fields, post=True, title="new_user", needs=ADMIN)


def _new_rule(name: str) -> Form:
    fields = (
        Field("user", "hidden", name),
        Field("resource", required=True, hint="hint_resource"),
        Field("actions", required=True, hint="hint_actions"),
        Field("from", hint="hint_from"),
        Field("decision", "select", "allow", ("allow", "deny")),
    )
    return Form("/do/rule-save", "save", fields, post=True, title="new_rule", needs=ADMIN)


def _no_rule(name: str, rows: list[Row]) -> Form:
    resources = tuple(dict.fromkeys(str(row["resource"]) for row in rows))
    fields = (Field("user", "hidden", name), Field("resource", "select", options=resources))
    return Form(
        "/do/rule-delete",
        "delete",
        fields,
        post=True,
        title="delete_rule",
        needs=ADMIN,
        danger=True,
        folded=True,
    )
