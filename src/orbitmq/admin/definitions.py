"""Topics and groups of a cluster as one text, and what is to be changed at another cluster to have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from orbitmq.admin.answers import LeftOut, Partial
from orbitmq.admin.arguments import checks_arguments
from orbitmq.admin.cluster_client import ClusterClient
from orbitmq.admin.group_settings import Backoff, GroupSettings, to_wire
from orbitmq.admin.groups import GroupAdmin
from orbitmq.admin.model import TopicSettings
from orbitmq.admin.topics import TopicAdmin
from orbitmq.errors import ValidationError
from orbitmq.wording import counted

FORMAT: Final = "orbitmq-definitions-1"
MAX_QUEUES: Final = 65536
S = TypeVar("S", TopicSettings, GroupSettings)
# Settings whose names for people are others.
_WORDS: Final = {"perm": "permission", "max_retries": "retries"}


@dataclass(frozen=True, slots=True)
class Definitions:
    """Topics and groups by their names.

    Attributes:
        differing: a sentence for each that brokers of the cluster have with different settings.
    """

    topics: Mapping[str, TopicSettings] = field(default_factory=dict)
    groups: Mapping[str, GroupSettings] = field(default_factory=dict)
    differing: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be done for one topic or group.

    Attributes:
        before: its settings by broker; empty: no broker has it.
        missing: brokers that do not have it.
        problem: why it cannot be done; empty: it can.
    """

    kind: Literal["topic", "group"]
    name: str
    to: TopicSettings | GroupSettings
    before: Mapping[str, TopicSettings | GroupSettings]
    missing: Sequence[str] = ()
    problem: str = ""

    @property
    def text(self) -> str:
        """In words, such as ``group billing: retries 16 -> 5``."""
        if not self.before:
            return f"create {self.kind} {self.name}{_described(self.to)}"
        parts = list(dict.fromkeys(part for one in self.before.values() for part in _unequal(one, self.to)))
        parts += [f"also on {', '.join(self.missing)}"] if self.missing else []
        return f"{self.kind} {self.name}: {', '.join(parts)}"


def _described(to: TopicSettings | GroupSettings) -> str:
    if isinstance(to, TopicSettings):
        return f" ({counted(to.queues, 'queue')})"
    others = [part.replace(" -> ", ", not ") for part in _unequal(to, GroupSettings())]
    return f" ({'; '.join(others)})" if others else ""


def _unequal(before: TopicSettings | GroupSettings, to: TopicSettings | GroupSettings) -> Iterator[str]:
    """The settings that differ. Attributes that only ``before`` has stay as they are."""
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
    if isinstance(value, tuple | list):
        return "/".join(f"{each:g}" for each in value) + " s"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "default" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def changes(
    kind: Literal["topic", "group"],
    wanted: Mapping[str, S],
    found: Mapping[str, Mapping[str, S]],
    brokers: Sequence[str],
) -> list[Change]:
    """What is to be done so that each of ``brokers`` has what is wanted. Nothing is deleted.

    Args:
        found: what is there, by name and broker.
    """
    plan = []
    for name, to in sorted(wanted.items()):
        before = found.get(name, {})
        missing = [broker for broker in brokers if broker not in before]
        if missing or any(any(_unequal(one, to)) for one in before.values()):
            plan.append(Change(kind, name, to, before, missing if before else ()))
    return plan


def merged(kind: str, found: Mapping[str, Mapping[str, S]]) -> tuple[dict[str, S], list[str]]:
    """One set of settings for each name: that of the first broker, of topics with the most queues; and a
    sentence for each name with different ones."""
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


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: str
    topics: list[_Topic]
    groups: list[_Group]
    left_out: list[dict[str, str]] = msgspec.field(default_factory=list)


def as_json(definitions: Definitions) -> dict[str, Any]:
    """The JSON object of the topics and groups."""
    return {
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


def from_json(text: str | bytes) -> Definitions:
    """Read what an export wrote.

    Raises:
        ValidationError: it is no such text, has keys that are not known, names something twice, has a setting
            out of its range, or the export was not whole.
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
    return Definitions(topics, groups)


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
    """Topics and groups of a cluster, out and in again, as ``Admin.definitions``."""

    def __init__(self, cluster: ClusterClient, topics: TopicAdmin, groups: GroupAdmin) -> None:
        self._cluster = cluster
        self._topics = topics
        self._groups = groups

    async def export(self, *, cluster: str | None = None) -> Partial[Definitions]:
        """The users' topics and groups of ``cluster`` (default: of all clusters), without retry topics and
        dead letters. Where brokers differ, the topic with the most queues counts, and a sentence says so.

        Raises:
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        topics = await self._topics.settings(cluster=cluster)
        groups = await self._groups.settings(cluster=cluster)
        chosen_topics, differing = merged("topic", topics.found)
        chosen_groups, others = merged("group", groups.found)
        left_out: dict[str, LeftOut] = {one.address: one for one in (*topics.left_out, *groups.left_out)}
        return Partial(
            Definitions(chosen_topics, chosen_groups, (*differing, *others)), tuple(left_out.values())
        )

    async def plan(self, definitions: Definitions, *, cluster: str | None = None) -> Sequence[Change]:
        """What is to be done so that every master of ``cluster`` has these topics and groups. Nothing is
        changed; :meth:`make` makes one change. What else is there stays.

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
        return [*plan, *changes("group", definitions.groups, groups, brokers)]

    async def make(self, change: Change, *, cluster: str | None = None) -> Sequence[str]:
        """Make one change of a plan; returns the names of the brokers.

        Raises:
            ValidationError: it cannot be made; the text is its ``problem``.
            IncompleteError, BrokerError, TransportError, NameServerError: as creating a topic or a group.
        """
        if change.problem:
            raise ValidationError(change.problem)
        to = change.to
        known = list(change.before.values())
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
