"""``orbitmq client`` against clients that run."""

from __future__ import annotations

import json

import pytest
from tests.sockets.conftest import Command, until

from orbitmq import ConsumeFrom, Message
from orbitmq.sync import Consumer, Producer
from orbitmq.testing import RunningCluster


@pytest.mark.behaviour("CS-14")
def test_connected_clients_and_what_one_works_on(
    orbitmq_cluster: RunningCluster, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = orbitmq_cluster.name_server
    monkeypatch.setenv("NAMESRV_ADDR", servers)
    command("topic", "create", "orders", "--queues", "1")
    assert command("client", "list") == "no client is connected\n"
    with (
        Producer("shop", name_servers=servers) as producer,
        Consumer("billing", name_servers=servers, consume_from=ConsumeFrom.FIRST) as consumer,
    ):
        producer.send(Message("orders", b"1"))
        consumer.subscribe("orders")
        next(iter(consumer)).ack()
        found = []

        def are_known() -> bool:
            found[:] = json.loads(command("client", "list", "--json"))["clients"]
            known = {(one["role"], one["group"]) for one in found}
            return known >= {("consumer", "billing"), ("producer", "shop")}

        until(are_known)  # a client tells a broker about itself in the background
        name = next(one["client_id"] for one in found if one["role"] == "consumer")
        assert [
            one["role"] for one in json.loads(command("client", "list", "-g", "billing", "--json"))["clients"]
        ] == ["consumer"]
        shown = command("client", "show", "billing", name)
        assert "orders" in shown
        assert "File " not in shown
        assert "File " in command("client", "show", "billing", name, "--stacks")
        error = command("client", "show", "billing", "nobody", code=2)
        assert f"group billing has no consumer nobody online; there are: {name}" in error
