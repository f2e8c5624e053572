"""The table of dangerous changes, whose target has to be typed before they are made.

A change is dangerous if it loses messages or rights, or keeps clients from sending or receiving. That may
depend on the change's fields, and on the present state of the cluster.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orbitmq.admin import Admin, BrokerInfo
from orbitmq.console.changing import Fields, field_of, names_of, permission_of
from orbitmq.console.model import Field, Form, Link, Page, Said, said
from orbitmq.errors import BrokerError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wording import masked

# The settings by which a broker may delete messages, keep fewer copies, refuse clients or leave its name
# servers.
RISKY_SETTINGS: Final = frozenset(
    {
        "allAckInSyncStateSet",
        "autoCreateSubscriptionGroup",
        "autoCreateTopicEnable",
        "brokerPermission",
        "compatibleWithOldNameSrv",
        "deleteWhen",
        "diskMaxUsedSpaceRatio",
        "enableAutoInSyncReplicas",
        "enablePropertyFilter",
        "fileReservedTime",
        "inSyncReplicas",
        "litePullMessageEnable",
        "maxMessageSize",
        "minInSyncReplicas",
        "namesrvAddr",
        "recallMessageEnable",
        "rejectPullConsumerEnable",
        "rejectTransactionMessage",
        "slaveReadEnable",
        "storeReplyMessageEnable",
        "strictSubscription",
        "timerMaxDelaySec",
        "transactionCheckMax",
        "transactionTimeOut",
    }
)
# The menu page of a change, by the first word of the change's name.
_PAGES: Final = {
    "broker": "brokers",
    "group": "groups",
    "redrive": "dead-letters",
    "rule": "access",
    "topic": "topics",
    "user": "access",
}


@dataclass(frozen=True, slots=True)
class Risk:
    """The danger of a change: the text that has to be typed, and the effect on the cluster."""

    wanted: str
    why: Said


Judge = Callable[[Admin, Fields], Awaitable[Risk | None]]


def _always(field: str, why: str) -> Judge:
    """The judge of a change that is always dangerous; its target is the value of ``field``."""

    async def judge(_: Admin, fields: Fields) -> Risk | None:
        return Risk(field_of(fields, field), said(why, "warn"))

    return judge


async def _topic_save(admin: Admin, fields: Fields) -> Risk | None:
    """Dangerous if the topic loses a permission."""
    name, permission = field_of(fields, "topic"), permission_of(fields)
    known = (await admin.topics.settings()).found.get(name, {})
    if not any(one.perm & ~permission for one in known.values()):
        return None
    return Risk(name, said("risk_permission", "warn", name=name))


async def _topic_delete(_: Admin, fields: Fields) -> Risk | None:
    names = names_of(fields, "topics")
    return Risk(names[0] if len(names) == 1 else f"{len(names)} topics", said("sure_topics", "warn"))


async def _group_save(admin: Admin, fields: Fields) -> Risk | None:
    """Dangerous if a group that may consume is disabled."""
    name = field_of(fields, "group")
    if fields.get("consume"):
        return None
    try:
        known = (await admin.groups.show(name)).found.settings
    except BrokerError as error:
        if error.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            return None
        raise
    return Risk(name, said("risk_off", "warn", name=name)) if any(o.consume for o in known.values()) else None


async def _redrive(_: Admin, fields: Fields) -> Risk | None:
    """Dangerous if all dead letters of the group are sent again, not only chosen ones."""
    name = field_of(fields, "group")
    return None if fields.get("chosen", "").strip() else Risk(name, said("risk_redrive", "warn", name=name))


async def _broker_setting(admin: Admin, fields: Fields) -> Risk | None:
    """Dangerous for a setting in ``RISKY_SETTINGS``, or one that the broker does not call changeable."""
    address, key = field_of(fields, "address"), field_of(fields, "key")
    if key in RISKY_SETTINGS:
        return setting_risk(address, key)
    known = {one.address for one in await admin.brokers.list()}
    if address not in known:
        return None  # an unknown address, which the change refuses
    one = (await admin.brokers.setting_details(address)).get(key)
    return setting_risk(address, key) if one is not None and one.live is None else None


def setting_risk(address: str, key: str) -> Risk:
    """The risk of a setting at a broker."""
    return Risk(address, said("risk_setting" if key in RISKY_SETTINGS else "risk_unknown", "warn", key=key))


async def _broker_drain(admin: Admin, fields: Fields) -> Risk | None:
    """Always dangerous, as clients stop sending to the broker; an unknown broker is refused by the change."""
    name, every = field_of(fields, "broker"), await admin.brokers.list()
    return drain_risk(every, name) if any(one.name == name for one in every) else None


def drain_risk(every: Sequence[BrokerInfo], name: str) -> Risk:
    """The risk of draining a broker.

    Args:
        every: all registered brokers, to find out whether clients could send to another one of the cluster.
    """
    clusters = {one.cluster for one in every if one.name == name}
    others = any(one.name != name and one.cluster in clusters for one in every)
    return Risk(name, said("risk_drain" if others else "risk_drain_only", "warn", name=name))


async def _user_create(_: Admin, fields: Fields) -> Risk | None:
    name = field_of(fields, "user")
    return Risk(name, said("risk_super", "warn", name=name)) if fields.get("super") else None


async def _user_save(admin: Admin, fields: Fields) -> Risk | None:
    """Dangerous if a user is disabled, gets a new secret, or becomes or ceases to be a super user."""
    name = field_of(fields, "user")
    if fields.get("secret"):
        return Risk(name, said("risk_secret", "warn", name=name))
    known = [one for one in (await admin.access.users()).found if one.user == name]
    if any(one.is_enabled for one in known) and not fields.get("enabled"):
        return Risk(name, said("risk_disabled", "warn", name=name))
    wanted = bool(fields.get("super"))
    if any(one.is_super != wanted for one in known):
        return Risk(name, said("risk_super" if wanted else "risk_normal", "warn", name=name))
    return None


async def _rule_save(_: Admin, fields: Fields) -> Risk | None:
    """Dangerous for a rule that denies, or that is about every resource."""
    name, resource = field_of(fields, "user"), field_of(fields, "resource")
    if fields.get("decision") == "deny":
        return Risk(name, said("risk_deny", "warn", name=name, resource=resource))
    return Risk(name, said("risk_everything", "warn", name=name)) if resource == "*" else None


# The changes that may be dangerous. All other changes only add, or concern one chosen message.
RISKS: Final[Mapping[str, Judge]] = {
    "topic-save": _topic_save,
    "topic-delete": _topic_delete,
    "group-save": _group_save,
    "group-delete": _always("group", "sure_group"),
    "group-reset": _always("group", "risk_reset"),
    "group-clone": _always("target", "risk_clone"),
    "redrive": _redrive,
    "broker-setting": _broker_setting,
    "broker-drain": _broker_drain,
    "user-create": _user_create,
    "user-save": _user_save,
    "user-delete": _always("user", "sure_user"),
    "rule-save": _rule_save,
    "rule-delete": _always("user", "risk_no_rule"),
}


def typing_field(wanted: str) -> Field:
    """The field into which the target is typed."""
    return Field("typed", wanted=wanted, required=True)


def asking(name: str, fields: Fields, risk: Risk, back: str) -> Page:
    """The page that asks for the target of a dangerous change. It has the fields of the sent form, except
    secrets, which have to be typed again.

    Args:
        back: the address of the form's page; empty if unknown.
    """
    kept = [
        Field(key, "password", required=True, hint="hint_secret_again")
        if value and (key == "secret" or (key == "value" and masked(fields.get("key", ""), value) != value))
        else Field(key, "hidden", value)
        for key, value in fields.items()
        if key not in ("form_token", "typed")
    ]
    form = Form(f"/do/{name}", "make_it", (*kept, typing_field(risk.wanted)), post=True, danger=True)
    links = [Link("back", back)] if back else []
    return Page(_PAGES[name.partition("-")[0]], "", risk.why, (form,), links)
