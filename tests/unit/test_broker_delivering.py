"""Shared parts of services that deliver by themselves: messages not stored yet, pauses, a slow disk."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.messaging.delivering import (
    RETRY_AFTER_MS,
    SETTLE_MS,
    Pauses,
    Unsettled,
    take_stored,
    woken,
)
from orbitmq.broker.messaging.delivery_sink import PendingDelivery
from orbitmq.broker.role import Role
from orbitmq.store import PutStatus
from orbitmq.testing import SimulatedLoop, SimulatedRuntime
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.errors import RemotingError

NO_WAY = RemotingError(ResponseCode.SERVICE_NOT_AVAILABLE, "no message can leave")
CROWD = RemotingError(ResponseCode.SYSTEM_BUSY, "too many are on the way")


@dataclass
class Message:
    """A message under way; ``end`` is 0 when it went to another master."""

    stored: bool = False
    end: int = 0
    refusal: RemotingError | None = None

    async def settled(self) -> PutStatus:
        if self.refusal is not None:
            raise self.refusal
        return PutStatus.OK


@pytest.fixture
def broker(orbitmq_loop: SimulatedLoop, orbitmq_runtime: SimulatedRuntime) -> Broker:
    config = BrokerConfig(
        listen_port=10911, store_path_root_dir="/store", mapped_file_size_commit_log=1024 * 1024
    )
    return orbitmq_loop.enter(Broker(orbitmq_runtime, config))


def test_the_first_that_is_not_stored_holds_the_place_and_later_ones_are_known() -> None:
    unsettled = Unsettled()
    messages = [Message() for _ in range(4)]
    for number, message in enumerate(messages):
        unsettled.add(number, message)
    unsettled.add(4, None)
    messages[2].stored = messages[3].stored = True
    assert unsettled.settle() == []
    assert (unsettled.lowest, unsettled.settled, list(unsettled.out_of_order())) == (0, 0, [2, 3])
    messages[0].stored = True
    assert unsettled.settle() == [(0, messages[0])]
    assert (unsettled.lowest, unsettled.settled, len(unsettled)) == (1, 1, 4)
    messages[1].stored = True
    assert [number for number, _ in unsettled.settle()] == [1, 2, 3, 4]
    assert (unsettled.lowest, unsettled.settled, unsettled.handed) == (None, 5, 5)
    unsettled.add(9, Message())
    unsettled.clear()
    assert (unsettled.lowest, unsettled.handed, len(unsettled)) == (None, 0, 0)


@pytest.mark.behaviour("ES-14")
def test_a_thousand_that_wait_hide_none_that_is_stored_behind_them() -> None:
    unsettled = Unsettled()
    for number in range(2000):
        unsettled.add(number, Message(stored=number >= 1500))
    assert list(unsettled.out_of_order()) == list(range(1500, 2000))


def test_the_own_log_keeps_the_order_so_no_more_than_its_first_message_is_looked_at() -> None:
    unsettled = Unsettled()
    unsettled.add(0, Message(end=10))
    unsettled.add(1, Message(stored=True, end=20))
    assert list(unsettled.out_of_order()) == []


def test_messages_without_an_order_are_taken_when_they_are_stored() -> None:
    waiting: dict[str, PendingDelivery] = {"a": Message(), "b": Message(stored=True), "c": Message()}
    assert take_stored(waiting) == ["b"]
    assert list(waiting) == ["a", "c"]


@pytest.mark.behaviour("ES-16")
async def test_a_refusal_for_the_moment_is_logged_once_a_minute_and_a_crowd_never(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    clock = broker.runtime.clock
    pauses = Pauses(clock, broker.services.sink, "parcels")
    assert pauses.after_ms(CROWD) == SETTLE_MS
    assert "parcels" not in caplog.text
    for _ in range(62):
        assert pauses.after_ms(NO_WAY) == RETRY_AFTER_MS
        await clock.sleep(1)
    assert caplog.text.count("parcels wait: ") == 2
    await broker.change_role(Role.SLAVE)
    await clock.sleep(60)
    pauses.after_ms(NO_WAY)
    assert caplog.text.count("parcels wait: ") == 2, "another broker delivers"


async def test_a_disk_that_refuses_is_logged_and_ends_no_service(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """The service must not stand still for ten seconds with a traceback in the log."""
    assert broker.services.sink.waits
    pauses = Pauses(broker.runtime.clock, broker.services.sink, "parcels")
    await pauses.for_disk(Message(refusal=NO_WAY))
    assert "parcels that were delivered may not be on the disk" in caplog.text


async def test_a_wait_ends_at_the_event_or_at_its_time(broker: Broker) -> None:
    wake, clock = asyncio.Event(), broker.runtime.clock
    begin = clock.monotonic()
    await woken(wake, 0)
    assert clock.monotonic() == begin
    await woken(wake, 500)
    assert clock.monotonic() - begin == pytest.approx(0.5)
    wake.set()
    await woken(wake, None)
