"""The changes of users and rules that forms make. Secrets are written to no log and no audit entry."""

from __future__ import annotations

import secrets
from typing import Final

from orbitmq.console.changing import Change, Cluster, Done, Fields, field_of
from orbitmq.console.model import path_of, said
from orbitmq.console.rights import ADMIN
from orbitmq.errors import ValidationError

SECRET_BYTES: Final = 24
ACTIONS: Final = ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")


async def create_user(cluster: Cluster, fields: Fields) -> Done:
    name, given = field_of(fields, "user"), fields.get("secret", "")
    secret = given or secrets.token_urlsafe(SECRET_BYTES)
    is_super = bool(fields.get("super"))
    brokers = ", ".join(await cluster.admin.access.create_user(name, secret, is_super=is_super))
    text = said("done_user", "good", name=name, brokers=brokers)
    if not given:
        text = said("done_secret", "good", name=name, brokers=brokers, secret=secret)
    return Done(text, path_of("access", name), name, "", "super" if is_super else "normal")


async def save_user(cluster: Cluster, fields: Fields) -> Done:
    name = field_of(fields, "user")
    is_super, is_enabled = bool(fields.get("super")), bool(fields.get("enabled"))
    known = [one for one in (await cluster.admin.access.users()).found if one.user == name]
    before = f"super {known[0].is_super}, enabled {known[0].is_enabled}" if known else ""
    brokers = await cluster.admin.access.change_user(
        name, secret=fields.get("secret") or None, is_super=is_super, is_enabled=is_enabled
    )
    after = f"super {is_super}, enabled {is_enabled}" + (", a new secret" if fields.get("secret") else "")
    text = said("done_user", "good", name=name, brokers=", ".join(brokers))
    return Done(text, path_of("access", name), name, before, after)


async def delete_user(cluster: Cluster, fields: Fields) -> Done:
    name = field_of(fields, "user")
    await cluster.admin.access.delete_user(name)
    return Done(said("done_deleted", "good", names=name), "/access", name)


async def save_rule(cluster: Cluster, fields: Fields) -> Done:
    name, resource = field_of(fields, "user"), field_of(fields, "resource")
    actions = [one.strip() for one in field_of(fields, "actions").split(",") if one.strip()]
    for action in actions:
        if action not in ACTIONS:
            raise ValidationError(f"actions: {action[:20]}: expected some of {', '.join(ACTIONS)}")
    kind, colon, rest = resource.partition(":")
    if resource != "*" and (kind not in ("Topic", "Group", "Cluster") or not colon or not rest):
        raise ValidationError(
            f"resource: {resource[:80]}: expected Topic:NAME, Group:NAME, Cluster:NAME, with * at the end of "
            "a prefix, or *"
        )
    sources = [one.strip() for one in fields.get("from", "").split(",") if one.strip()]
    allows = fields.get("decision") != "deny"
    await cluster.admin.access.set_rule(name, resource, actions, sources=sources, allows=allows)
    after = f"{'allow' if allows else 'deny'} {', '.join(actions)} from {', '.join(sources) or '*'}"
    text = said("done_rule", "good", name=name, resource=resource)
    return Done(text, path_of("access", name), f"{name} {resource}", "", after)


async def delete_rule(cluster: Cluster, fields: Fields) -> Done:
    name, resource = field_of(fields, "user"), field_of(fields, "resource")
    await cluster.admin.access.delete_rules(name, resource)
    text = said("done_no_rule", "good", name=name, resource=resource)
    return Done(text, path_of("access", name), f"{name} {resource}")


USER_CHANGES: Final = {
    "user-create": Change(ADMIN, "user", create_user),
    "user-save": Change(ADMIN, "user", save_user),
    "user-delete": Change(ADMIN, "user", delete_user),
    "rule-save": Change(ADMIN, "user", save_rule),
    "rule-delete": Change(ADMIN, "user", delete_rule),
}
