"""A broker that starts without its table of topics, or with a changed one, reports that."""

from __future__ import annotations

import pytest
from tests.conversation.broker_peer import BrokerPeer, broker_config

from orbitmq.broker.broker import Broker
from orbitmq.testing.machine.simulated import SimulatedRuntime, simulated_runtime

pytestmark = pytest.mark.usefixtures("orbitmq_loop")
TABLE = "/store/config/topics.json"


async def stopped(*topics: str) -> SimulatedRuntime:
    runtime = simulated_runtime(1)
    async with Broker(runtime, broker_config()), BrokerPeer(runtime) as peer:
        for topic in topics:
            await peer.sent(topic=topic)
    return runtime


@pytest.mark.behaviour("ST-24")
@pytest.mark.parametrize("how", ["removed", "renamed"])
async def test_topics_that_the_table_lacks_are_named(how: str, caplog: pytest.LogCaptureFixture) -> None:
    runtime = await stopped("orders", "bills")
    if how == "removed":
        runtime.files.remove(TABLE)
        runtime.files.remove(TABLE + ".bak")
    else:
        runtime.files.write_atomic(TABLE, runtime.files.read_bytes(TABLE).replace(b"orders", b"ordesr"))
    async with Broker(runtime, broker_config()):
        pass
    expected = "2 topics with messages in the store: bills, orders" if how == "removed" else "1 topic with"
    assert f"config/topics.json does not name {expected}" in caplog.text


@pytest.mark.behaviour("ST-24")
async def test_nothing_is_said_of_whole_tables(caplog: pytest.LogCaptureFixture) -> None:
    runtime = await stopped("orders", "bills")
    async with Broker(runtime, broker_config()) as broker:
        broker.services.topics.delete("bills")
    async with Broker(runtime, broker_config()):
        pass
    assert "does not name" not in caplog.text
