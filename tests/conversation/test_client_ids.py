"""The client id by which brokers know a client."""

from __future__ import annotations

import pytest

from orbitmq import Consumer, Message, Producer, SimpleConsumer
from orbitmq.client.core.instance import ClientInstance
from orbitmq.errors import ValidationError
from orbitmq.testing import World


@pytest.mark.behaviour("NF-08")
async def test_brokers_list_a_client_by_its_id(orbitmq_world: World) -> None:
    async with (
        orbitmq_world.consumer("cg", client_id="billing-7@eu") as consumer,
        orbitmq_world.producer("pg", client_id="shop-1") as producer,
    ):
        await producer.send(Message("T", b"x"))
        consumer.subscribe("T")
        assert (await anext(consumer.messages())).body == b"x"
        clients = orbitmq_world.brokers["broker-a"].services.clients
        group = clients.consumers("cg")
        assert group is not None
        assert group.client_ids == ["billing-7@eu"]
        assert [client.client_id for client in clients.producers("pg")] == ["shop-1"]


@pytest.mark.behaviour("NF-08")
@pytest.mark.parametrize("client_id", ["", " ", "a b", "a\x01b", "a\n", "x" * 256, 7])
@pytest.mark.parametrize("kind", [Producer, Consumer, SimpleConsumer])
def test_an_id_that_cannot_be_one_is_refused(
    orbitmq_world: World, kind: type[Producer], client_id: str
) -> None:
    with pytest.raises(ValidationError, match="client_id must be"):
        kind("g", name_servers="a:1", runtime=orbitmq_world.runtime, client_id=client_id)


def test_an_id_beside_a_shared_client_is_its_own(orbitmq_world: World) -> None:
    client = ClientInstance(orbitmq_world.runtime, "a:1", client_id="one")
    Producer("g", client=client, client_id="one")
    with pytest.raises(ValidationError, match="client_id is 'two'"):
        Producer("g", client=client, client_id="two")
