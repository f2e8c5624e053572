"""Log lines about slow requests."""

from __future__ import annotations

import asyncio

import pytest
from tests.conversation.broker_peer import hang
from tests.conversation.test_broker_retry import Peer

from orbitmq.broker.broker import Broker
from orbitmq.testing import SimulatedLoop, SimulatedRuntime
from orbitmq.wire.codes import RequestCode, ResponseCode

NAME = "orbitmq.broker.slow_requests"


@pytest.fixture
def peer(broker: Broker, orbitmq_loop: SimulatedLoop) -> Peer:
    return orbitmq_loop.enter(Peer(broker.runtime, broker.address))


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == NAME]


@pytest.mark.behaviour("MX-16")
@pytest.mark.broker(flush_disk_type="SYNC_FLUSH", sync_flush_timeout_ms=1000)
async def test_a_slow_request_is_named_when_the_operator_asks_for_it(
    broker: Broker, peer: Peer, orbitmq_runtime: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    record = await peer.delivered()
    hang(orbitmq_runtime)
    assert (await peer.back(record)).code == ResponseCode.SYSTEM_ERROR
    assert lines(caplog) == []
    await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"slowRequestMillis=900")
    answers = await asyncio.gather(*(peer.back(record) for _ in range(3)))
    assert {answer.code for answer in answers} == {ResponseCode.SYSTEM_ERROR}
    await orbitmq_runtime.clock.sleep(2)
    first, rest = lines(caplog)
    assert first.startswith("request CONSUMER_SEND_MSG_BACK of 127.0.0.1:")
    assert first.endswith(" took 1000 ms")
    assert "2 more within a second" in rest
    await peer.ok(RequestCode.UPDATE_BROKER_CONFIG, b"slowRequestMillis=0")
    await peer.back(record)
    await orbitmq_runtime.clock.sleep(2)
    assert len(lines(caplog)) == 2


@pytest.mark.behaviour("MX-16")
@pytest.mark.broker(slow_request_ms=500)
async def test_waiting_for_messages_is_not_slow(peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    await peer.create("T")
    assert await peer.read("T", wait_ms=15_000) == []
    # An unknown code is answered at once.
    assert (await peer.call(29_999)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert lines(caplog) == []
