"""A disk that hangs: the responses to senders, from the fast path as from the handlers."""

from __future__ import annotations

import asyncio

import pytest
from tests.conversation.broker_peer import HANGS_S, hang
from tests.conversation.fast_path_streams import Frames, Wire, settings

from orbitmq.broker.broker import Broker
from orbitmq.testing.machine.simulated import run, simulated_runtime
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder


class Talk:
    """The responses on one connection, and their times."""

    def __init__(self) -> None:
        self.responses: list[Command] = []
        self.answered_at: list[float] = []
        self.fast = 0


def send_while_the_disk_hangs(*, fast: bool, timeout_ms: int, seed: int) -> Talk:
    async def main() -> Talk:
        runtime = simulated_runtime(seed=seed)
        talk = Talk()
        async with Broker(runtime, settings(sync_flush_timeout_ms=timeout_ms)) as broker:
            if not fast:
                broker.doors.fast_path = None
            frames = Frames(seed)
            wire = Wire(broker)
            wire.deliver(b"".join(frames.warm_up()))
            await asyncio.sleep(10)
            wire.raw.clear()
            fast_before = broker.doors.fast_path.messages_in if broker.doors.fast_path is not None else 0
            hang(runtime)
            start = asyncio.get_running_loop().time()
            for number in range(5):
                topic = "T" if number % 2 else "U"
                wire.deliver(b"".join(frames.send(topic, plain=True) for _ in range(number + 1)))
                await asyncio.sleep(0.3)
            decoder = FrameDecoder()
            while asyncio.get_running_loop().time() < start + 100:
                await asyncio.sleep(0.05)
                if wire.raw:
                    decoder.feed(bytes(wire.raw))
                    wire.raw.clear()
                    for command in decoder.commands():
                        # Each broker invents the id of a message that has none.
                        assert command.ext.pop("transactionId")
                        talk.responses.append(command)
                        talk.answered_at.append(asyncio.get_running_loop().time() - start)
            assert not wire.closed
            if broker.doors.fast_path is not None:
                talk.fast = broker.doors.fast_path.messages_in - fast_before
        return talk

    return run(main())


def by_opaque(response: Command) -> int:
    return response.opaque


@pytest.mark.parametrize("seed", range(3))
def test_a_hung_disk_shows_at_both_doors_alike(seed: int) -> None:
    fast = send_while_the_disk_hangs(fast=True, timeout_ms=5000, seed=seed)
    slow = send_while_the_disk_hangs(fast=False, timeout_ms=5000, seed=seed)
    assert fast.fast >= 12
    assert slow.fast == 0
    assert [response.code for response in fast.responses] == [10] * 15
    # The response to a frame that the fast path leaves to the handlers may come after later ones.
    assert sorted(fast.responses, key=by_opaque) == sorted(slow.responses, key=by_opaque)
    for talk in (fast, slow):
        assert 5.0 <= talk.answered_at[0] <= 5.2
        assert 6.2 <= talk.answered_at[-1] <= 6.5


def test_a_disk_that_comes_back_in_time_is_no_timeout() -> None:
    for fast in (True, False):
        talk = send_while_the_disk_hangs(fast=fast, timeout_ms=70_000, seed=1)
        assert [response.code for response in talk.responses] == [0] * 15
        assert HANGS_S <= talk.answered_at[0] <= HANGS_S + 0.1
