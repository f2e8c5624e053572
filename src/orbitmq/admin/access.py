"""Operations on users and their rules (ACL 2.0). Each server has users and rules of its own; changes are made
at all servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from orbitmq.admin.access_model import RefusalCount, Rule, UserEntry, Verdict
from orbitmq.admin.answers import Answers, Partial
from orbitmq.admin.arguments import checks_arguments
from orbitmq.admin.cluster_client import NOT_DONE, ClusterClient
from orbitmq.admin.model import BrokerInfo
from orbitmq.errors import NameServerError, ValidationError
from orbitmq.message.numbers import whole_number
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from orbitmq.wire.bodies.topic import KVTable
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import BodyError
from orbitmq.wire.signing import Secret

T = TypeVar("T")
_SUBJECT = "User:"
_TYPES = {True: "Super", False: "Normal"}
_STATUSES = {True: "enable", False: "disable"}


@checks_arguments
class AccessAdmin:
    """Operations on users and rules, as ``Admin.access``.

    Every change is made at all brokers, slaves too, and at all name servers that require keys. A slave's name
    carries its id: ``broker-a (id 1)``.
    """

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def users(self) -> Partial[Sequence[UserEntry]]:
        """The users of every broker and name server, sorted by name. The answers never contain secrets.

        Raises:
            BrokerError, TransportError: no broker answers; the error of the first one.
            NameServerError: no name server answers, or it knows no broker.
        """
        answers: Answers[list[UserInfo]] = await self._ask(
            headers.AuthListUserRequest().command(),
            lambda _, answer: UserInfo.decode_list(answer.body) if answer.body else [],
        )
        found = [
            UserEntry(
                broker.name,
                info.username or "",
                info.user_type == _TYPES[True],
                info.user_status != _STATUSES[False],
            )
            for broker, users in answers.pairs
            for info in users
        ]
        return answers.partial(sorted(found, key=lambda entry: (entry.user, entry.broker_name)))

    async def create_user(self, user: str, secret: str | Secret, *, is_super: bool = False) -> Sequence[str]:
        """Create a user at every broker.

        Returns:
            Names of the brokers at which the user was created.

        Raises:
            ValidationError: a broker already has a user of this name; nothing is done.
            IncompleteError: some brokers have created the user, another one refuses or does not answer. Set
                the secret with :meth:`change_user` there, or delete the user and create it again.
            BrokerError, TransportError: no broker has it; the error of the first one.
            NameServerError: no name server answers, or it knows no broker.
        """
        known = sorted({entry.broker_name for entry in (await self.users()).whole() if entry.user == user})
        if known:
            raise ValidationError(f"there is a user {user} at {', '.join(known)}")
        info = UserInfo(user, _plain(secret), _TYPES[is_super], _STATUSES[True])
        return await self._tell(headers.AuthCreateUserRequest(username=user).command(info.encode()))

    async def change_user(
        self,
        user: str,
        *,
        secret: str | Secret | None = None,
        is_super: bool | None = None,
        is_enabled: bool | None = None,
    ) -> Sequence[str]:
        """Change the given properties of a user at every broker; returns the brokers' names.

        Raises:
            ValidationError: no property is given.
            IncompleteError, BrokerError, TransportError, NameServerError: as :meth:`create_user`.
        """
        if secret is None and is_super is None and is_enabled is None:
            raise ValidationError("change_user needs secret, is_super or is_enabled")
        info = UserInfo(
            user,
            None if secret is None else _plain(secret),
            None if is_super is None else _TYPES[is_super],
            None if is_enabled is None else _STATUSES[is_enabled],
        )
        return await self._tell(headers.AuthUpdateUserRequest(username=user).command(info.encode()))

    async def delete_user(self, user: str) -> Sequence[str]:
        """Remove a user and its rules at every broker that has it; returns the brokers' names.

        Raises:
            IncompleteError, BrokerError, TransportError, NameServerError: as :meth:`create_user`.
        """
        return await self._tell(headers.AuthDeleteUserRequest(username=user).command())

    async def rules(self, user: str | None = None) -> Partial[Sequence[Rule]]:
        """The rules of every broker and name server, or those of one user, sorted by user and resource.

        Raises:
            BrokerError, TransportError: no broker answers; the error of the first one.
            NameServerError: no name server answers, or it knows no broker.
        """
        answers: Answers[list[AclInfo]] = await self._ask(
            # The servers return every rule whose subject contains the filter, so further users may be among
            # the answers.
            headers.AuthListAclRequest(subject_filter="" if user is None else _SUBJECT + user).command(),
            lambda _, answer: AclInfo.decode_list(answer.body) if answer.body else [],
        )
        found = [
            rule
            for broker, infos in answers.pairs
            for info in infos
            for rule in _rules(broker.name, info)
            if user in (None, rule.user)
        ]
        return answers.partial(sorted(found, key=lambda rule: (rule.user, rule.resource, rule.broker_name)))

    async def set_rule(
        self,
        user: str,
        resource: str,
        actions: Sequence[str],
        *,
        sources: Sequence[str] = (),
        allows: bool = True,
    ) -> Sequence[str]:
        """Give a user a rule at every broker; it replaces the user's rule for the same resource.

        Args:
            resource: ``Topic:orders``, ``Topic:orders*``, ``Group:billing``, ``Cluster:name`` or ``*``.
            actions: any of All, Pub, Sub, Create, Update, Delete, Get, List.
            sources: addresses and networks from which the rule applies; empty: from all.
            allows: whether the rule allows the actions, else it denies them.

        Returns:
            Names of the brokers at which the rule is set.

        Raises:
            IncompleteError, BrokerError, TransportError, NameServerError: as :meth:`create_user`.
        """
        entry = PolicyEntryInfo(resource, list(actions), list(sources) or None, "Allow" if allows else "Deny")
        info = AclInfo(_SUBJECT + user, [PolicyInfo("Custom", [entry])])
        return await self._tell(headers.AuthCreateAclRequest(subject=_SUBJECT + user).command(info.encode()))

    async def delete_rules(self, user: str, resource: str | None = None) -> Sequence[str]:
        """Remove a user's rule for a resource, or all rules of the user, at every broker.

        Raises:
            IncompleteError, BrokerError, TransportError, NameServerError: as :meth:`create_user`.
        """
        header = headers.AuthDeleteAclRequest(subject=_SUBJECT + user, resource=resource or "")
        return await self._tell(header.command())

    async def test(
        self, user: str, action: str, resource: str, *, source: str = "127.0.0.1"
    ) -> Partial[Sequence[Verdict]]:
        """Whether each server would permit an action of a user, and which rule decides; nothing is done.

        Args:
            action: one of ``Pub``, ``Sub``, ``Create``, ``Update``, ``Delete``, ``Get``, ``List``.
            resource: ``Topic:name``, ``Group:name`` or ``Cluster:name``.
            source: the IP address of the client.

        Raises:
            ValidationError: the action or the form of the resource is unknown, or the source is no IP
                address.
            BrokerError, TransportError, NameServerError: as for :meth:`users`.
        """
        from orbitmq.admin.verdicts import asked_of, judged, source_of

        asked, address = asked_of(action, resource), source_of(source)
        users, rules = await asyncio.gather(self.users(), self.rules(user))
        known = {one.broker_name: one for one in users.found if one.user == user}
        servers = {one.broker_name for one in users.found} | {one.broker_name for one in rules.found}
        verdicts = [
            judged(
                name,
                user,
                known.get(name),
                [rule for rule in rules.found if rule.broker_name == name],
                asked,
                address,
            )
            for name in sorted(servers)
        ]
        left_out = {one.address: one for one in (*users.left_out, *rules.left_out)}
        return Partial(verdicts, tuple(left_out.values()))

    async def refusals(self) -> Partial[Sequence[RefusalCount]]:
        """The requests that OrbitMQ's servers have refused since their start, the most frequent first.

        Raises:
            BrokerError, TransportError: no broker answers; the error of the first one.
            NameServerError: no name server answers, or it knows no broker.
        """
        answers: Answers[list[RefusalCount]] = await self._ask(
            Command(RequestCode.GET_BROKER_RUNTIME_INFO),
            lambda broker, answer: _refusals(broker.name, KVTable.decode(answer.body).table),
        )
        found = [one for _, refusals in answers.pairs for one in refusals]
        return answers.partial(sorted(found, key=lambda one: (-one.count, one.user, one.resource)))

    async def _ask(self, command: Command, read: Callable[[BrokerInfo, Command], T]) -> Answers[T]:
        """The answers of all brokers, and of the name servers that require keys; other name servers have no
        users.
        """
        brokers = [_labelled(broker) for broker in await self._cluster.brokers()]
        if not brokers:
            raise NameServerError("the name server knows no broker")
        of_brokers, of_servers = await asyncio.gather(
            self._cluster.ask_all(brokers, command, read),
            self._cluster.ask_all(
                await self._cluster.named_servers(),
                command,
                read,
                without=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            ),
        )
        asked = of_brokers.asked + len(of_servers.pairs) + len(of_servers.left_out)
        return Answers(
            asked,
            [*of_brokers.pairs, *of_servers.pairs],
            [*of_brokers.left_out, *of_servers.left_out],
        )

    async def _tell(self, command: Command) -> Sequence[str]:
        answers = await self._ask(command, lambda server, _: server.name)
        return answers.partial(answers.names, NOT_DONE).whole()


def _labelled(broker: BrokerInfo) -> BrokerInfo:
    """The broker; for a slave with its id in the name, since a slave shares its master's name and may have
    other users.
    """
    return broker if broker.is_master else replace(broker, name=f"{broker.name} (id {broker.broker_id})")


def _rules(broker_name: str, info: AclInfo) -> list[Rule]:
    return [
        Rule(
            broker_name,
            (info.subject or "").removeprefix(_SUBJECT),
            entry.resource or "",
            tuple(entry.actions or ()),
            tuple(entry.source_ips or ()),
            allows=entry.decision == "Allow",
            is_default=policy.policy_type == "Default",
        )
        for policy in info.policies or ()
        for entry in policy.entries or ()
    ]


def _refusals(broker_name: str, status: Mapping[str, str]) -> list[RefusalCount]:
    """The refusals in a broker's state; empty for a broker that requires no keys, and for Apache's.

    Raises:
        BodyError: the list of refusals in the state is invalid.
    """
    if "refusals" not in status:
        return []
    try:
        told: Any = msgspec.json.decode(status["refusals"])
        found = [
            RefusalCount(
                broker_name,
                str(one["user"]),
                str(one["why"]),
                str(one["action"]),
                str(one["resource"]),
                str(one["from"]),
                int(one["count"]),
            )
            for one in told
        ]
    except (msgspec.DecodeError, LookupError, TypeError, ValueError) as error:
        raise BodyError(f"refusals of {broker_name}: {error}") from None
    others = whole_number(status.get("otherRefusals", "0")) or 0
    return [*found, RefusalCount(broker_name, "", "other kinds", "", "", "", others)] if others else found


def _plain(secret: str | Secret) -> str:
    return secret if isinstance(secret, str) else secret.reveal()
