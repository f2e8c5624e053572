"""Users, their rules, and what brokers refused."""

from __future__ import annotations

import asyncio

from orbitmq.admin import Admin
from orbitmq.console.asking import names
from orbitmq.console.model import Column, Page, Row, Table, said
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
            (Column("user"), Column("kind"), Column("state", "state"), Column("brokers", "long")),
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
    return Page("access", "", said("count_users", n=len(people)), blocks, left_out=left_out)
