"""Responses that wait until their messages are safe: order, several gates, deadlines."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from orbitmq.broker.durability import RESPONSE_CODES, TICK_SECONDS, Durability, with_code
from orbitmq.store import PutStatus, StoreClosedError
from orbitmq.testing.machine.simulated import VirtualClock, VirtualLoop
from orbitmq.wire.command import Command, Serialization
from orbitmq.wire.frame import FrameDecoder, encode_frame

pytestmark = pytest.mark.usefixtures("orbitmq_loop")

WRITTEN = 1000


@dataclass
class FakeGate:
    late: PutStatus = PutStatus.FLUSH_DISK_TIMEOUT
    safe: int = 0
    timeout_ms: int = 5000
    holds: bool = True
    refusal: str | None = None
    safe_status: PutStatus = PutStatus.OK
    error: BaseException | None = None
    wanted: list[int] = field(default_factory=list)
    ticks: int = 0

    def request_safe(self, offset: int) -> None:
        self.wanted.append(offset)

    def tick(self, now: float) -> None:
        self.ticks += 1


class Heard:
    """Records responses as they leave, with their status."""

    def __init__(self, durability: Durability) -> None:
        self.said: list[str] = []
        self._durability = durability

    def wait(self, name: str, offset: int) -> None:
        self._durability.when_safe(
            offset,
            self.said.append,
            name,
            lambda name, status: f"{name} {status.name}",
            lambda: self.said.append(f"{name} given up"),
        )


def waiting(*gates: FakeGate) -> tuple[Durability, Heard]:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    durability = Durability(loop.clock, gates, lambda: WRITTEN)
    return durability, Heard(durability)


async def test_answers_leave_in_order_when_their_offset_is_safe() -> None:
    disk = FakeGate()
    durability, heard = waiting(disk)
    for number in range(1, 5):
        heard.wait(f"a{number}", number * 10)
    assert durability.waits
    disk.safe = 25
    durability.advance()
    assert heard.said == ["a1", "a2"]
    disk.safe = 40
    durability.advance()
    assert heard.said == ["a1", "a2", "a3", "a4"]
    assert len(durability) == 0


async def test_safe_is_what_every_gate_has() -> None:
    disk, replicas = FakeGate(safe=100), FakeGate(PutStatus.FLUSH_SLAVE_TIMEOUT, safe=50)
    durability, heard = waiting(disk, replicas)
    assert durability.safe == 50
    heard.wait("a", 60)
    durability.advance()
    assert heard.said == []
    replicas.safe = 60
    durability.advance()
    assert heard.said == ["a"]


@pytest.mark.parametrize(("disk_has", "said"), [(0, "FLUSH_DISK_TIMEOUT"), (99, "FLUSH_SLAVE_TIMEOUT")])
async def test_a_late_answer_names_the_gate_that_is_behind(disk_has: int, said: str) -> None:
    disk, replicas = FakeGate(safe=disk_has), FakeGate(PutStatus.FLUSH_SLAVE_TIMEOUT)
    _, heard = waiting(disk, replicas)
    heard.wait("a", 10)
    await asyncio.sleep(4.99)
    assert heard.said == []
    await asyncio.sleep(0.02)
    assert heard.said == [f"a {said}"]


async def test_every_answer_has_its_own_deadline_and_is_late_by_one_tick_at_most() -> None:
    durability, heard = waiting(FakeGate())
    asked: dict[str, float] = {}
    left: dict[str, float] = {}
    loop = asyncio.get_running_loop()
    for number in range(200):
        name = f"a{number}"
        asked[name] = loop.time()
        durability.when_safe(
            number + 1,
            lambda name: left.setdefault(name, loop.time()),
            name,
            lambda name, _status: name,
            heard.said.clear,
        )
        await asyncio.sleep(0.037)
    await asyncio.sleep(6)
    assert list(left) == list(asked)
    waits = [left[name] - asked[name] for name in asked]
    assert min(waits) >= 5.0 - 1e-6
    assert max(waits) <= 5.0 + TICK_SECONDS + 1e-6


async def test_what_became_safe_in_time_is_not_late() -> None:
    disk = FakeGate(timeout_ms=1000)
    durability, heard = waiting(disk)
    heard.wait("a", 10)
    await asyncio.sleep(0.9)
    disk.safe = 10
    durability.advance()
    heard.wait("b", 20)
    await asyncio.sleep(0.5)
    assert heard.said == ["a"]
    await asyncio.sleep(0.7)
    assert heard.said == ["a", "b FLUSH_DISK_TIMEOUT"]


@pytest.mark.behaviour("QW-15")
@pytest.mark.parametrize("leaves", [False, True], ids=["its time is over", "the gate goes"])
async def test_what_is_not_written_is_not_late(leaves: bool) -> None:
    """The disk refused the second message; "late" would mean that the message is stored."""
    replicas = FakeGate(PutStatus.FLUSH_SLAVE_TIMEOUT, 0, 1000)
    durability, heard = waiting(replicas, FakeGate(PutStatus.FLUSH_DISK_TIMEOUT))
    heard.wait("there", WRITTEN)
    heard.wait("refused", WRITTEN + 1)
    if leaves:
        durability.remove(replicas)
    await asyncio.sleep(2)
    assert heard.said == ["there FLUSH_SLAVE_TIMEOUT", "refused SERVICE_NOT_AVAILABLE"]


def test_nothing_ticks_while_nothing_waits() -> None:
    clock = VirtualClock()
    disk = FakeGate()
    durability = Durability(clock, [disk], lambda: WRITTEN)
    assert durability.tick(0.0) is None


REPLICAS, DISK = PutStatus.FLUSH_SLAVE_TIMEOUT, PutStatus.FLUSH_DISK_TIMEOUT


@pytest.mark.parametrize(
    ("disk_ms", "replicas_ms", "disk_has", "replicas_have", "after_s", "said"),
    [
        (5000, 3000, 0, 0, 3.0, "FLUSH_SLAVE_TIMEOUT"),  # the replicas' status wins
        (5000, 3000, 10, 0, 3.0, "FLUSH_SLAVE_TIMEOUT"),
        (5000, 3000, 0, 10, 5.0, "FLUSH_DISK_TIMEOUT"),
        (1000, 3000, 0, 0, 1.0, "FLUSH_SLAVE_TIMEOUT"),
        (1000, 3000, 10, 0, 3.0, "FLUSH_SLAVE_TIMEOUT"),
        (1000, 3000, 0, 10, 1.0, "FLUSH_DISK_TIMEOUT"),
    ],
)
@pytest.mark.behaviour("QW-10")
async def test_each_gate_has_its_own_timeout(
    disk_ms: int, replicas_ms: int, disk_has: int, replicas_have: int, after_s: float, said: str
) -> None:
    disk = FakeGate(DISK, disk_has, disk_ms)
    _, heard = waiting(FakeGate(REPLICAS, replicas_have, replicas_ms), disk)
    heard.wait("a", 10)
    await asyncio.sleep(after_s - 0.01)
    assert heard.said == []
    await asyncio.sleep(TICK_SECONDS + 0.02)
    assert heard.said == [f"a {said}"]


async def test_an_answer_with_time_left_keeps_those_behind_it() -> None:
    replicas, disk = FakeGate(REPLICAS, 10, 3000), FakeGate(DISK)
    durability, heard = waiting(replicas, disk)
    heard.wait("a", 10)
    heard.wait("b", 20)
    await asyncio.sleep(4)
    assert heard.said == []
    await asyncio.sleep(1.1)
    assert heard.said == ["a FLUSH_DISK_TIMEOUT", "b FLUSH_SLAVE_TIMEOUT"]
    assert durability.tick(100.0) is None


async def test_a_gate_may_come_while_answers_wait() -> None:
    disk, replicas = FakeGate(), FakeGate(REPLICAS, timeout_ms=3000)
    durability, heard = waiting(disk)
    heard.wait("a", 10)
    durability.add(replicas)
    disk.safe = 30
    durability.advance()
    assert heard.said == []
    replicas.safe = 10
    durability.advance()
    assert heard.said == ["a"]
    heard.wait("b", 20)
    assert replicas.wanted == [20]
    await asyncio.sleep(3.1)
    assert heard.said == ["a", "b FLUSH_SLAVE_TIMEOUT"]


async def test_who_waits_for_a_gate_that_goes_is_told_that_it_was_late() -> None:
    disk, replicas = FakeGate(), FakeGate(REPLICAS, safe=15)
    durability, heard = waiting(replicas, disk)
    for number in (1, 2, 3):
        heard.wait(f"a{number}", number * 10)
    durability.remove(replicas)
    durability.remove(replicas)
    assert heard.said == ["a2 FLUSH_SLAVE_TIMEOUT", "a3 FLUSH_SLAVE_TIMEOUT"]
    disk.safe = 40
    durability.advance()
    assert heard.said[2:] == ["a1"]
    heard.wait("b", 50)
    await asyncio.sleep(4.8)
    assert heard.said[3:] == []
    await asyncio.sleep(0.4)
    assert heard.said[3:] == ["b FLUSH_DISK_TIMEOUT"]


async def test_a_gate_that_asks_for_less_lets_out_who_waits() -> None:
    disk, replicas = FakeGate(safe=99), FakeGate(REPLICAS)
    durability, heard = waiting(replicas, disk)
    heard.wait("a", 10)
    replicas.refusal = "too few"
    durability.changed()
    assert (durability.refusal, heard.said) == ("too few", [])
    replicas.safe, replicas.refusal = 1 << 62, None
    durability.changed()
    assert (durability.refusal, heard.said) == (None, ["a"])
    assert durability.holds
    disk.holds = replicas.holds = False
    durability.changed()
    assert not durability.holds


@pytest.mark.behaviour("QW-09")
async def test_a_gate_may_let_go_with_less_than_success() -> None:
    disk, replicas = FakeGate(safe=10), FakeGate(REPLICAS, 1 << 62, safe_status=PutStatus.SLAVE_NOT_AVAILABLE)
    durability, heard = waiting(replicas, disk)
    heard.wait("a", 10)
    durability.advance()
    assert heard.said == ["a SLAVE_NOT_AVAILABLE"]
    assert await durability.stored(5) is PutStatus.SLAVE_NOT_AVAILABLE


async def test_gates_are_looked_at_while_answers_wait_and_only_then() -> None:
    disk = FakeGate()
    durability, heard = waiting(disk)
    await asyncio.sleep(5)
    assert disk.ticks == 0
    heard.wait("a", 10)
    assert disk.ticks == 1
    await asyncio.sleep(1.05)
    assert disk.ticks >= 11
    disk.safe = 10
    durability.advance()
    await asyncio.sleep(0.2)
    ticks = disk.ticks
    await asyncio.sleep(5)
    assert disk.ticks == ticks


async def test_given_up_answers_say_nothing() -> None:
    disk = FakeGate()
    durability, heard = waiting(disk)
    heard.wait("a", 10)
    await durability.stop()
    assert heard.said == ["a given up"]
    await asyncio.sleep(10)
    assert heard.said == ["a given up"]


async def test_one_waiter() -> None:
    disk = FakeGate()
    durability, _ = waiting(disk)
    first = asyncio.ensure_future(durability.stored(10))
    await asyncio.sleep(1)
    assert disk.wanted == [10]
    disk.safe = 10
    durability.advance()
    assert await first is PutStatus.OK
    assert await durability.stored(5) is PutStatus.OK
    assert await durability.stored(20) is PutStatus.FLUSH_DISK_TIMEOUT
    failing = asyncio.ensure_future(durability.stored(30))
    await asyncio.sleep(0)
    disk.error = OSError("the disk is gone")
    durability.abandon()
    with pytest.raises(StoreClosedError, match="the disk is gone"):
        await failing
    with pytest.raises(StoreClosedError, match="the disk is gone"):
        await durability.stored(30)


async def test_a_waiter_that_leaves_disturbs_nobody() -> None:
    disk = FakeGate()
    durability, heard = waiting(disk)
    leaving = asyncio.ensure_future(durability.stored(10))
    await asyncio.sleep(0)
    heard.wait("a", 20)
    leaving.cancel()
    await asyncio.sleep(0)
    disk.safe = 20
    durability.advance()
    assert leaving.cancelled()
    assert heard.said == ["a"]


def test_every_status_has_its_code() -> None:
    assert {status: int(code) for status, code in RESPONSE_CODES.items()} == {
        PutStatus.OK: 0,
        PutStatus.FLUSH_DISK_TIMEOUT: 10,
        PutStatus.SLAVE_NOT_AVAILABLE: 11,
        PutStatus.FLUSH_SLAVE_TIMEOUT: 12,
        PutStatus.SERVICE_NOT_AVAILABLE: 14,
    }
    assert set(RESPONSE_CODES) == set(PutStatus)


def test_encoded_responses_take_another_code() -> None:
    made = [
        Command(0, {"msgId": "7F" * number, "queueId": "1"}, b"", number, 1, serialization=kind)
        for number, kind in enumerate([*Serialization, *Serialization], 1)
    ]
    decoder = FrameDecoder()
    decoder.feed(with_code(b"".join(map(encode_frame, made)), PutStatus.FLUSH_DISK_TIMEOUT))
    found = list(decoder.commands())
    assert decoder.buffered_bytes == 0
    assert [command.code for command in found] == [10] * len(made)
    for before, after in zip(made, found, strict=True):
        before.code = 10
        assert after == before
