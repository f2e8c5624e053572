"""A broker that requires keys, and clients that have sent no keys yet, or wrong ones."""

from __future__ import annotations

import pytest
from tests.conversation.secured_broker import APP, WRONG, Keys, secured

from orbitmq import Credentials, Message
from orbitmq.testing.world import World
from orbitmq.transport.errors import TransportError
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.codes import ResponseCode

__all__ = ["secured"]
LONG = bytes(200_000)


@pytest.mark.behaviour("LM-08")
async def test_the_first_message_of_a_producer_may_be_long(secured: World) -> None:
    async with secured.producer(credentials=APP) as producer:
        assert (await producer.send(Message("orders", LONG))).status.name == "SEND_OK"


@pytest.mark.behaviour("LM-08")
@pytest.mark.parametrize("credentials", [None, Credentials("nobody", "app-secret-1")])
async def test_a_long_frame_of_a_stranger_ends_its_connection(
    secured: World, credentials: Credentials | None, caplog: pytest.LogCaptureFixture
) -> None:
    keys = Keys(secured, credentials)
    with pytest.raises(TransportError):
        await keys.ask(Code.SEND_MESSAGE, {"topic": "orders"}, LONG)
    assert "a client whose keys are not known yet; allowed: 65536" in caplog.text
    # A short request gets a response.
    assert (await keys.ask(Code.SEND_MESSAGE, {"topic": "orders"})).code == ResponseCode.NO_PERMISSION
    await keys.close()


@pytest.mark.behaviour("LM-08")
@pytest.mark.parametrize("secured", [{"authMode": "observe"}], indirect=True)
async def test_who_only_observes_takes_long_frames(secured: World) -> None:
    keys = Keys(secured, None)
    answer = await keys.ask(Code.SEND_MESSAGE, {"topic": "orders"}, LONG)
    assert "not known" not in str(answer.remark)
    await keys.close()


@pytest.mark.behaviour("LM-09")
async def test_wrong_signatures_slow_their_address(secured: World) -> None:
    clock = secured.runtime.clock
    keys = Keys(secured, WRONG)
    begin, times = clock.monotonic(), []
    for _ in range(12):
        assert (await keys.ask(Code.HEART_BEAT)).code == ResponseCode.NO_PERMISSION
        times.append(clock.monotonic() - begin)
    await keys.close()
    assert times[5] < 0.1
    assert 3 < times[-1] < 10
    # The broker also waits before it reads from a new connection of that address.
    begin = clock.monotonic()
    again = Keys(secured, APP)
    await again.ask(Code.HEART_BEAT)
    assert 1 < clock.monotonic() - begin < 3
    await clock.sleep(61)
    begin = clock.monotonic()
    await again.ask(Code.HEART_BEAT)
    assert clock.monotonic() - begin < 0.1
    await again.close()
