"""Operations on quotas: the limits of bytes and messages per second for users, addresses and topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orbitmq.admin.answers import Partial
from orbitmq.admin.arguments import checks_arguments
from orbitmq.admin.cluster_client import ClusterClient
from orbitmq.errors import NameServerError, ValidationError
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.quota import MAX_RATE, Quota


@dataclass(frozen=True, slots=True)
class QuotaEntry:
    """A quota at one broker. A limit of 0 means no limit.

    Attributes:
        kind: ``user``, ``address`` or ``topic``.
        bytes_in, messages_in: limits per second for data from clients.
        bytes_out, messages_out: limits per second for data to clients.
        pauses_in, pauses_out: how often, since the quota was set, a client's connection was not read for a
            while because of a limit of that direction.
    """

    broker_name: str
    kind: str
    name: str
    bytes_in: int
    messages_in: int
    bytes_out: int
    messages_out: int
    pauses_in: int
    pauses_out: int


@checks_arguments
class QuotaAdmin:
    """Operations on quotas, as ``Admin.quotas``. Each broker counts on its own.

    RocketMQ's brokers have no quotas: they answer with code 3.
    """

    def __init__(self, cluster: ClusterClient) -> None:
        self._cluster = cluster

    async def list(self) -> Partial[Sequence[QuotaEntry]]:
        """The quotas of every master, sorted by kind and name.

        Raises:
            BrokerError, TransportError: no broker answers; the error of the first one.
            NameServerError: no name server answers, or it knows no master.
        """
        masters = await self._cluster.masters()
        if not masters:
            raise NameServerError("the name server knows no master")
        answers = await self._cluster.ask_all(
            masters,
            headers.ListQuotasRequest().command(),
            lambda _, answer: Quota.decode_list(answer.body),
        )
        found = [
            QuotaEntry(broker.name, one.kind, one.name, *one.limits, one.pauses_in, one.pauses_out)
            for broker, quotas in answers.pairs
            for one in quotas
        ]
        return answers.partial(sorted(found, key=lambda one: (one.kind, one.name, one.broker_name)))

    async def set(
        self,
        kind: str,
        name: str,
        *,
        bytes_in: int = 0,
        messages_in: int = 0,
        bytes_out: int = 0,
        messages_out: int = 0,
    ) -> Sequence[str]:
        """Give a user, an address or a topic a quota at every master; it replaces an earlier quota.

        Args:
            kind: ``user``, ``address`` or ``topic``.
            bytes_in, messages_in: most bytes and messages a second from clients; 0: no limit.
            bytes_out, messages_out: most bytes and messages a second to clients; 0: no limit.

        Returns:
            Names of the brokers at which the quota is set.

        Raises:
            ValidationError: no limit is given, or one is out of its range.
            IncompleteError: some brokers have set the quota, another one refuses or does not answer.
            BrokerError, TransportError: no broker has set the quota; the error of the first one.
            NameServerError: no name server answers, or it knows no master.
        """
        limits = {
            "bytes_in": bytes_in,
            "messages_in": messages_in,
            "bytes_out": bytes_out,
            "messages_out": messages_out,
        }
        for limit, rate in limits.items():
            if not 0 <= rate <= MAX_RATE:
                raise ValidationError(f"{limit} must be 0 (no limit) to {MAX_RATE:,} a second, got {rate:,}")
        if not any(limits.values()):
            raise ValidationError("a quota needs a limit above 0: bytes or messages, in or out")
        return await self._tell(Quota(kind, name, **limits))

    async def delete(self, kind: str, name: str) -> Sequence[str]:
        """Remove a quota at every master that has it; returns the brokers' names.

        Raises:
            IncompleteError, BrokerError, TransportError, NameServerError: as :meth:`set`.
        """
        return await self._tell(Quota(kind, name))

    async def _tell(self, quota: Quota) -> Sequence[str]:
        request = headers.SetQuotaRequest().command(quota.encode())
        return await self._cluster.tell_all(await self._cluster.masters(), request)
