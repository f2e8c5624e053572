"""Lists of online clients for administrators and clients (AdminBrokerProcessor, ConsumerManageProcessor)."""

from __future__ import annotations

from dataclasses import astuple

from orbitmq.broker.clients.registry import Client, ClientManager
from orbitmq.wire.bodies.client import (
    ConsumerConnection,
    ListedConnection,
    ProducerConnection,
    ProducerInfo,
    SubscriptionConflict,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Language
from orbitmq.wire.errors import RemotingError


class ClientListing:
    """Lists the clients of groups."""

    def __init__(self, clients: ClientManager) -> None:
        self._clients = clients

    def consumer_ids(self, group: str) -> list[str]:
        """The client ids of a consumer group, for rebalancing.

        Raises:
            RemotingError: SYSTEM_ERROR, none is online.
        """
        state = self._clients.consumers(group)
        if state is None:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {group}")
        return state.client_ids

    def consumers(self, group: str) -> ConsumerConnection:
        """The consumers of a group and their subscriptions.

        Raises:
            RemotingError: CONSUMER_NOT_ONLINE.
        """
        state = self._clients.consumers(group)
        if state is None:
            raise RemotingError(ResponseCode.CONSUMER_NOT_ONLINE, f"the consumer group[{group}] not online")
        return ConsumerConnection(
            connection_set=[_shown(client) for client in state.members.values()],
            subscription_table=dict(state.subscriptions),
            consume_type=state.consume_type,
            message_model=state.message_model,
            consume_from_where=state.consume_from_where,
            conflicts=[SubscriptionConflict(*astuple(found)) for found in self._clients.conflicts(group)]
            or None,
            conflict_count=self._clients.conflict_count(group) or None,
        )

    def producers(self, group: str) -> ProducerConnection:
        """The producers of a group.

        Raises:
            RemotingError: SYSTEM_ERROR, none is online.
        """
        clients = self._clients.producers(group)
        if not clients:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
        return ProducerConnection(connection_set=[_shown(client) for client in clients])

    def all_producers(self) -> dict[str, list[ProducerInfo]]:
        """Every producer by group."""
        return {
            group: [
                ProducerInfo(
                    client_id=client.client_id,
                    remote_ip=client.peer.remote_address,
                    language=_language(client.language),
                    version=client.version,
                    last_update_timestamp=client.seen_ms,
                )
                for client in clients
            ]
            for group, clients in self._clients.producer_groups().items()
        }

    def all_consumers(self) -> dict[str, list[ListedConnection]]:
        """Every consumer by group."""
        return {
            group: [_shown(client) for client in clients]
            for group, clients in self._clients.consumer_groups().items()
        }


def _shown(client: Client) -> ListedConnection:
    return ListedConnection(
        client_id=client.client_id,
        client_addr=client.peer.remote_address,
        language=_language(client.language),
        version=client.version,
    )


def _language(number: int) -> str:
    return Language(number).name if number in Language.__members__.values() else Language.OTHER.name
