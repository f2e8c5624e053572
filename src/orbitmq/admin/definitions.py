"""Export of a cluster's topics, groups, users and rules as one text, and the import of such a text into
another cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec

from orbitmq.admin.access import AccessAdmin
from orbitmq.admin.answers import LeftOut, Partial
from orbitmq.admin.arguments import checks_arguments
from orbitmq.admin.cluster_client import ClusterClient
from orbitmq.admin.group_settings import Backoff, GroupSettings, to_wire
from orbitmq.admin.groups import GroupAdmin
from orbitmq.admin.model import TopicSettings
from orbitmq.admin.topics import TopicAdmin
from orbitmq.admin.verdicts import check_rule
from orbitmq.errors import BrokerError, ValidationError
from orbitmq.wire.refusals import is_not_offered
from orbitmq.wording import counted

FORMAT: Final = "orbitmq-definitions-1"
MAX_QUEUES: Final = 65536


@dataclass(frozen=True, slots=True)
class UserSettings:
    """A user in an export, without the secret."""

    is_super: bool
    is_enabled: bool


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """A user's rule for one resource; its name combines both, as in ``app Topic:orders``."""

    actions: Sequence[str]
    sources: Sequence[str]
    allows: bool


_Setting: TypeAlias = TopicSettings | GroupSettings | UserSettings | RuleSettings
S = TypeVar("S", TopicSettings, GroupSettings, UserSettings, RuleSettings)
# Settings that are called otherwise in texts for people.
_WORDS: Final = {"perm": "permission", "max_retries": "retries"}


@dataclass(frozen=True, slots=True)
class Definitions:
    """Topics, groups, users and rules by their names; a rule's name is ``user resource``.

    Attributes:
        differing: a sentence for each item whose settings differ between brokers of the cluster.
    """

    topics: Mapping[str, TopicSettings] = field(default_factory=dict)
    groups: Mapping[str, GroupSettings] = field(default_factory=dict)
    differing: Sequence[str] = ()
    users: Mapping[str, UserSettings] = field(default_factory=dict)
    rules: Mapping[str, RuleSettings] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """A step of an import: the change of one topic, group, user or rule.

    Attributes:
        before: the present settings by broker; empty if no broker has the item.
        missing: brokers that lack the item.
        problem: the reason why the change cannot be made; empty if it can.
    """

    kind: Literal["topic", "group", "user", "rule"]
    name: str
    to: TopicSettings | GroupSettings | UserSettings | RuleSettings
    before: Mapping[str, TopicSettings | GroupSettings | UserSettings | RuleSettings]
    missing: Sequence[str] = ()
    problem: str = ""

    @property
    def text(self) -> str:
        """The change in words, such as ``group billing: retries 16 -> 5``."""
        if not self.before:
            return f"create {self.kind} {self.name}{_described(self.to)}"
        parts = list(dict.fromkeys(part for one in self.before.values() for part in _unequal(one, self.to)))
        parts += [f"also on {', '.join(self.missing)}"] if self.missing else []
        return f"{self.kind} {self.name}: {', '.join(parts)}"


def _described(to: _Setting) -> str:
    if isinstance(to, TopicSettings):
        return f" ({counted(to.queues, 'queue')})"
    if isinstance(to, UserSettings):
        return ""
    if isinstance(to, RuleSettings):
        places = f" from {_word(to.sources)}" if to.sources else ""
        return f" ({'allow' if to.allows else 'deny'} {_word(to.actions)}{places})"
    others = [part.replace(" -> ", ", not ") for part in _unequal(to, GroupSettings())]
    return f" ({'; '.join(others)})" if others else ""


def _unequal(before: _Setting, to: _Setting) -> Iterator[str]:
    """The settings that differ. Attributes that only ``before`` has are kept, so they do not count."""
    for each in fields(to):
        old, new = getattr(before, each.name), getattr(to, each.name)
        if each.name == "attributes":
            for key in sorted(new):
                if old.get(key) != new[key]:
                    yield f"{key} {old.get(key, '(none)')} -> {new[key]}"
        elif old != new:
            yield f"{_WORDS.get(each.name, each.name.replace('_', ' '))} {_word(old)} -> {_word(new)}"


def _word(value: object) -> str:
    if isinstance(value, Backoff):
        return f"{value.first:g} s x {value.factor} up to {value.longest:g} s"
    if isinstance(value, tuple | list) and all(isinstance(each, str) for each in value):
        return ",".join(value) or "(none)"
    if isinstance(value, tuple | list):
        return "/".join(f"{each:g}" for each in value) + " s"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "default" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def changes(
    kind: Literal["topic", "group", "user", "rule"],
    wanted: Mapping[str, S],
    found: Mapping[str, Mapping[str, S]],
    brokers: Sequence[str],
) -> list[Change]:
    """The changes after which each of ``brokers`` has the wanted items. They delete nothing.

    Args:
        found: the existing items, by name and broker.
    """
    plan = []
    for name, to in sorted(wanted.items()):
        before = found.get(name, {})
        missing = [broker for broker in brokers if broker not in before]
        if missing or any(any(_unequal(one, to)) for one in before.values()):
            plan.append(Change(kind, name, to, before, missing if before else ()))
    return plan


def merged(kind: str, found: Mapping[str, Mapping[str, S]]) -> tuple[dict[str, S], list[str]]:
    """One set of settings for each name, the first broker's, for topics the one with the most queues; and a
    sentence for each name whose settings differ between brokers.
    """
    chosen: dict[str, S] = {}
    differing: list[str] = []
    for name, by_broker in sorted(found.items()):
        first = max(by_broker.values(), key=lambda one: getattr(one, "queues", 0))
        chosen[name] = first
        others = {broker: parts for broker, one in by_broker.items() if (parts := list(_unequal(one, first)))}
        differing += [
            f"{kind} {name} is different on {broker}: {', '.join(parts)} in the export"
            for broker, parts in others.items()
        ]
    return chosen, differing


# -- the text ------------------------------------------------------------------------------------------------


class _Topic(msgspec.Struct, forbid_unknown_fields=True):
    topic: Annotated[str, msgspec.Meta(min_length=1)]
    queues: Annotated[int, msgspec.Meta(ge=1, le=MAX_QUEUES)]
    permission: Literal[2, 4, 6] = 6
    order: bool = False
    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class _Backoff(msgspec.Struct, forbid_unknown_fields=True):
    first: float
    longest: float
    factor: int


class _Group(msgspec.Struct, forbid_unknown_fields=True):
    group: Annotated[str, msgspec.Meta(min_length=1)]
    consume: bool = True
    broadcast: bool = True
    orderly: bool = False
    max_retries: int = 16
    retry_queues: int = 1
    retry_delays: list[float] | _Backoff | None = None
    consume_timeout: float = 900
    attributes: dict[str, str] = msgspec.field(default_factory=dict)


class _User(msgspec.Struct, forbid_unknown_fields=True):
    user: Annotated[str, msgspec.Meta(min_length=1)]
    is_super: bool
    is_enabled: bool


class _Rule(msgspec.Struct, forbid_unknown_fields=True):
    user: Annotated[str, msgspec.Meta(min_length=1)]
    resource: Annotated[str, msgspec.Meta(min_length=1)]
    actions: Annotated[list[str], msgspec.Meta(min_length=1)]
    sources: list[str]
    allows: bool


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    topics: list[_Topic]
    groups: list[_Group]
    users: list[_User] = msgspec.field(default_factory=list)
    rules: list[_Rule] = msgspec.field(default_factory=list)
    left_out: list[dict[str, str]] = msgspec.field(default_factory=list)


def as_json(definitions: Definitions) -> dict[str, Any]:
    """The JSON object; users and rules are left out if the cluster has no users."""
    found: dict[str, Any] = {
        "format": FORMAT,
        "topics": [
            {
                "topic": name,
                "queues": one.queues,
                "permission": one.perm,
                "order": one.order,
                "attributes": dict(one.attributes),
            }
            for name, one in definitions.topics.items()
        ],
        "groups": [{"group": name, **msgspec.to_builtins(one)} for name, one in definitions.groups.items()],
    }
    if definitions.users:
        found["users"] = [
            {"user": name, **msgspec.to_builtins(one)} for name, one in definitions.users.items()
        ]
        rules = [(name.rpartition(" "), one) for name, one in definitions.rules.items()]
        found["rules"] = [
            {"user": user, "resource": resource, **msgspec.to_builtins(one)}
            for (user, _, resource), one in rules
        ]
    return found


def from_json(text: str | bytes) -> Definitions:
    """Read the JSON text of an export.

    Raises:
        ValidationError: the text is no export, has unknown keys, names an item twice, has a setting out of
            its range, or the export was incomplete.
    """
    try:
        found = msgspec.json.decode(text, type=_File)
    except msgspec.DecodeError as error:
        raise ValidationError(f"no export of topics and groups: {error}") from error
    if found.format != FORMAT:
        raise ValidationError(f"the format is {found.format[:80]!r}; this program reads {FORMAT!r}")
    if found.left_out:
        missing = ", ".join(one.get("broker", "?") for one in found.left_out)
        raise ValidationError(f"the export is not whole, {missing} did not answer: export again")
    topics, groups = {}, {}
    for topic in found.topics:
        if topic.topic in topics:
            raise ValidationError(f"topic {topic.topic} is there twice")
        topics[topic.topic] = TopicSettings(topic.queues, topic.permission, topic.order, topic.attributes)
    for group in found.groups:
        if group.group in groups:
            raise ValidationError(f"group {group.group} is there twice")
        groups[group.group] = _settings(group)
    users, rules = {}, {}
    for user in found.users:
        if user.user in users:
            raise ValidationError(f"user {user.user} is there twice")
        users[user.user] = UserSettings(user.is_super, user.is_enabled)
    for rule in found.rules:
        name = f"{rule.user} {rule.resource}"
        if name in rules:
            raise ValidationError(f"the rule of {rule.user} about {rule.resource} is there twice")
        if rule.user not in users:
            raise ValidationError(
                f"the rule about {rule.resource} is of {rule.user}, a user that is not there"
            )
        try:
            check_rule(rule.resource, rule.actions, rule.sources)
        except ValidationError as error:
            raise ValidationError(f"the rule of {rule.user} about {rule.resource}: {error}") from error
        rules[name] = RuleSettings(tuple(rule.actions), tuple(rule.sources), rule.allows)
    return Definitions(topics, groups, users=users, rules=rules)


def _settings(group: _Group) -> GroupSettings:
    given = group.retry_delays
    delays: Any = given
    if isinstance(given, _Backoff):
        delays = Backoff(given.first, given.longest, given.factor)
    elif given is not None:
        delays = tuple(given)
    settings = GroupSettings(
        group.consume,
        group.broadcast,
        group.orderly,
        group.max_retries,
        group.retry_queues,
        delays,
        group.consume_timeout,
        group.attributes,
    )
    try:
        to_wire(group.group, settings)
    except ValidationError as error:
        raise ValidationError(f"group {group.group}: {error}") from error
    return settings


# -- at a cluster --------------------------------------------------------------------------------------------


@checks_arguments
class DefinitionAdmin:
    """Export and import of topics, groups, users and rules, as ``Admin.definitions``."""

    def __init__(
        self, cluster: ClusterClient, topics: TopicAdmin, groups: GroupAdmin, access: AccessAdmin
    ) -> None:
        self._cluster = cluster
        self._access = access
        self._topics = topics
        self._groups = groups

    async def export(self, *, cluster: str | None = None) -> Partial[Definitions]:
        """The users' topics and groups of ``cluster`` (default: of all clusters), without retry topics and
        dead letters. Without ``cluster``, also the users of ACL 2.0, without secrets, and their rules. If
        brokers differ, the topic with the most queues counts, and ``differing`` has a sentence about it.

        Raises:
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        topics = await self._topics.settings(cluster=cluster)
        groups = await self._groups.settings(cluster=cluster)
        chosen_topics, differing = merged("topic", topics.found)
        chosen_groups, others = merged("group", groups.found)
        left_out: dict[str, LeftOut] = {one.address: one for one in (*topics.left_out, *groups.left_out)}
        users: dict[str, UserSettings] = {}
        rules: dict[str, RuleSettings] = {}
        if cluster is None:
            users_found, rules_found, notes, has_none = await self._access_found()
            users, other_users = merged("user", users_found)
            rules, other_rules = merged("rule", rules_found)
            others = [*others, *other_users, *other_rules, *([] if has_none else notes)]
        found = Definitions(chosen_topics, chosen_groups, (*differing, *others), users, rules)
        return Partial(found, tuple(left_out.values()))

    async def _access_found(
        self,
    ) -> tuple[dict[str, dict[str, UserSettings]], dict[str, dict[str, RuleSettings]], list[str], bool]:
        """Users and custom rules by name and broker, a sentence for each part that could not be read, and
        whether the brokers have no users at all.
        """
        users: dict[str, dict[str, UserSettings]] = {}
        rules: dict[str, dict[str, RuleSettings]] = {}
        notes: list[str] = []
        try:
            of_users, of_rules = await self._access.users(), await self._access.rules()
        except BrokerError as error:
            return users, rules, [f"users and rules are left out: {error}"], is_not_offered(error)
        for user in of_users.found:
            users.setdefault(user.user, {})[user.broker_name] = UserSettings(user.is_super, user.is_enabled)
        for rule in of_rules.found:
            if rule.is_default:
                notes.append(f"the default rule of {rule.user} about {rule.resource} is left out")
                continue
            settings = RuleSettings(tuple(rule.actions), tuple(rule.sources), rule.allows)
            rules.setdefault(f"{rule.user} {rule.resource}", {})[rule.broker_name] = settings
        silent = dict.fromkeys(one.address for one in (*of_users.left_out, *of_rules.left_out))
        notes += [f"users and rules of {address} are left out" for address in silent]
        return users, rules, list(dict.fromkeys(notes)), False

    async def plan(self, definitions: Definitions, *, cluster: str | None = None) -> Sequence[Change]:
        """The changes after which every master of ``cluster`` has these definitions. Nothing is changed yet;
        :meth:`make` makes one change. Other topics and groups of the cluster stay.

        Raises:
            IncompleteError: a broker does not answer.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        brokers = [broker.name for broker in await self._cluster.masters(cluster)]
        topics = (await self._topics.settings(cluster=cluster)).whole()
        groups = (await self._groups.settings(cluster=cluster)).whole()
        found = changes("topic", definitions.topics, topics, brokers)
        plan: list[Change] = []
        for change in found:
            assert isinstance(change.to, TopicSettings)
            hidden = await self._topics.would_hide(change.name, change.to.queues, cluster=cluster)
            plan.append(replace(change, problem=hidden))
        plan += changes("group", definitions.groups, groups, brokers)
        if not definitions.users:
            return plan
        users, rules, notes, _ = await self._access_found()
        reason = notes[0] if notes else ""
        if cluster is not None:
            reason = "users and rules are changed at all clusters: do without a cluster"
        for change in changes("user", definitions.users, users, brokers):
            no_secret = (
                "" if change.before and not change.missing else "an export has no secrets: make the user"
            )
            plan.append(replace(change, problem=reason or no_secret))
        of_rules = changes("rule", definitions.rules, rules, brokers)
        return [*plan, *(replace(change, problem=reason) for change in of_rules)]

    async def make(self, change: Change, *, cluster: str | None = None) -> Sequence[str]:
        """Make one change of a plan; returns the names of the brokers.

        Raises:
            ValidationError: the change cannot be made; the text is its ``problem``.
            IncompleteError, BrokerError, TransportError, NameServerError: as for creating a topic or a group.
        """
        if change.problem:
            raise ValidationError(change.problem)
        to = change.to
        if isinstance(to, UserSettings):
            return await self._access.change_user(change.name, is_super=to.is_super, is_enabled=to.is_enabled)
        if isinstance(to, RuleSettings):
            user, _, resource = change.name.rpartition(" ")
            return await self._access.set_rule(
                user, resource, to.actions, sources=to.sources, allows=to.allows
            )
        known = [one for one in change.before.values() if isinstance(one, TopicSettings | GroupSettings)]
        new = {
            key: value
            for key, value in to.attributes.items()
            if change.missing or not known or any(one.attributes.get(key) != value for one in known)
        }
        if isinstance(to, TopicSettings):
            return await self._topics.create(
                change.name, queues=to.queues, perm=to.perm, order=to.order, attributes=new, cluster=cluster
            )
        signed = {f"+{key}": value for key, value in new.items()}
        return await self._groups.create(change.name, replace(to, attributes=signed), cluster=cluster)
