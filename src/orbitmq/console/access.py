"""The pages of users, their rules, and the refusals of brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from orbitmq.admin import Admin, RefusalCount, Rule, UserEntry
from orbitmq.console.asking import names
from orbitmq.console.model import Column, Field, Form, Page, Row, Said, Table, said
from orbitmq.console.rights import ADMIN
from orbitmq.console.risks import typing_field
from orbitmq.errors import BrokerError
from orbitmq.wire.refusals import is_not_offered

# The client address for which rights are tested unless the form names another one.
HERE: Final = "127.0.0.1"
ACTIONS: Final = ("Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
RULE: Final = (
    Column("resource", "code"),
    Column("actions"),
    Column("from", "code"),
    Column("decision"),
    Column("broker"),
)
USERS: Final = (
    Column("user", link="/access/{user}"),
    Column("kind"),
    Column("state", "state"),
    Column("brokers", "long"),
)
RIGHTS: Final = (
    Column("user"),
    Column("resource", "code"),
    Column("actions", "long"),
    Column("from", "code"),
    Column("decision"),
    Column("brokers", "long"),
)
REFUSALS: Final = (
    Column("user"),
    Column("why"),
    Column("action"),
    Column("resource", "code"),
    Column("address", "code"),
    Column("count", "number"),
    Column("broker"),
)


async def access(admin: Admin) -> Page:
    try:
        users, rules, refusals = await asyncio.gather(
            admin.access.users(), admin.access.rules(), admin.access.refusals()
        )
    except BrokerError as error:
        if not is_not_offered(error):
            raise
        return Page("access", "", said("no_users"))
    people = _people(users.found)
    blocks = (
        Table("users", USERS, people, "no_users", long=True),
        Table("rules", RIGHTS, _rights(rules.found), "no_rules"),
        Table("refusals", REFUSALS, [_refusal(one) for one in refusals.found], "no_refusals"),
    )
    left_out = names([*users.left_out, *rules.left_out, *refusals.left_out])
    forms = (_question({}), _new_user())
    return Page("access", "", said("count_users", n=len(people)), (*blocks, *forms), left_out=left_out)


def _people(users: Sequence[UserEntry]) -> list[Row]:
    """The rows of users: each user once, with the brokers that have it."""
    found: dict[str, Row] = {}
    for one in users:
        at = found[one.user]["brokers"] if one.user in found else ""
        found[one.user] = {
            "user": one.user,
            "kind": "super" if one.is_super else "normal",
            "state": "ok" if one.is_enabled else "off",
            "brokers": f"{at}, {one.broker_name}" if at else one.broker_name,
        }
    return list(found.values())


def _rights(rules: Sequence[Rule]) -> list[Row]:
    """The rows of rules: each rule once, with the brokers that have it."""
    found: dict[tuple[str, ...], Row] = {}
    for rule in rules:
        key = (rule.user, rule.resource, *rule.actions, str(rule.allows), *rule.sources)
        at = found[key]["brokers"] if key in found else ""
        found[key] = {
            "user": rule.user,
            **_rule(rule),
            "brokers": f"{at}, {rule.broker_name}" if at else rule.broker_name,
        }
    return list(found.values())


def _refusal(one: RefusalCount) -> Row:
    return {
        "user": one.user,
        "why": one.why,
        "action": one.action,
        "resource": one.resource,
        "address": one.address,
        "count": one.count,
        "broker": one.broker_name,
    }


async def one_user(admin: Admin, name: str) -> Page:
    """The page of one user with its rules, and the forms that change them."""
    users, rules = await asyncio.gather(admin.access.users(), admin.access.rules(name))
    own = [one for one in users.found if one.user == name]
    left_out = names([*users.left_out, *rules.left_out])
    if not own:
        return Page("access", name, said("no_such_user", "bad", name=name), left_out=left_out)
    rows: list[Row] = [{"broker": rule.broker_name, **_rule(rule)} for rule in rules.found]
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
        (Field("user", "hidden", name), typing_field(name)),
        post=True,
        title="delete_user",
        note=said("sure_user"),
        needs=ADMIN,
        danger=True,
    )
    blocks = (
        Table("rules", RULE, rows, "no_rules"),
        _question({"user": name}),
        _new_rule(name),
        _no_rule(name, rows),
        change,
        delete,
    )
    return Page("access", name, None, blocks, left_out=left_out)


async def tested(admin: Admin, query: Mapping[str, str]) -> Page:
    """Whether a user may do an action, by server, and the rules that decide."""
    form = _question(query)
    given = [query.get(name, "").strip() for name in ("user", "may", "resource", "from")]
    if not all(given[:3]):
        return Page("access", "", None, (form,))
    user, action, resource, source = given
    answer = await admin.access.test(user, action, resource, source=source or HERE)
    verdicts: list[Row] = [
        {"broker": one.broker_name, "state": "allowed" if one.allowed else "refused", "why": one.why}
        for one in answer.found
    ]
    rules: list[Row] = [
        {**_rule(rule), "broker": rule.broker_name} for one in answer.found for rule in one.rules
    ]
    sentence = _verdict({one.allowed for one in answer.found}, user, action, resource)
    blocks = (
        Table("verdicts", (Column("broker"), Column("state", "state"), Column("why", "long")), verdicts),
        Table("deciding_rules", RULE, rules, "no_deciding_rules"),
        form,
    )
    return Page("access", "", sentence, blocks, left_out=names(answer.left_out))


def _verdict(found: set[bool], user: str, action: str, resource: str) -> Said:
    """The sentence for the verdicts of all servers."""
    words = {"user": user, "action": action, "resource": resource}
    if not found:
        return said("no_users")
    if found == {True, False}:
        return said("may_mixed", "warn", **words)
    return said("may_yes", "good", **words) if True in found else said("may_no", "bad", **words)


def _question(given: Mapping[str, str]) -> Form:
    """The form that tests whether a user may do an action."""
    fields = (
        Field("user", value=given.get("user", ""), required=True),
        Field("may", "select", given.get("may", ""), ACTIONS),
        Field("resource", value=given.get("resource", ""), required=True, hint="hint_one_resource"),
        Field("from", value=given.get("from", ""), hint="hint_address"),
    )
    return Form("/access/~test", "ask", fields, title="may_do")


def _rule(rule: Rule) -> Row:
    return {
        "resource": rule.resource,
        "actions": ", ".join(rule.actions),
        "from": ", ".join(rule.sources) or "*",
        "decision": "allow" if rule.allows else "deny",
    }


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
    fields = (
        Field("user", "hidden", name),
        Field("resource", "select", options=resources),
        typing_field(name),
    )
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
