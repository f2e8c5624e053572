"""Timer messages on a machine that loses power and whose clock is set, again and again.

``ORBITMQ_TIMERS=100000`` runs a whole virtual day with so many messages instead of an hour with some hundred.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter

import pytest
from tests.seeds import seeds

from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.message.properties import decode_properties, properties_text
from orbitmq.message.record import Record, iter_records
from orbitmq.testing.machine.memory_files import Keep
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.testing.machine.virtual_loop import VirtualClock
from orbitmq.testing.machines import PowerMachine
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers.send import RecallMessageRequest, SendMessageResponse, SendMessageV2Request

KIB = 1024
TIMERS = int(os.environ.get("ORBITMQ_TIMERS", "600"))
SPAN_S = 86_400 if TIMERS >= 100_000 else 1800
CRASHES = 20
JUMPS = 4
DAY_S = 86_400
# What was delivered so long before a crash does not come again.
UNSETTLED_S = 2.0
PRECISIONS_MS = (100, 200, 500, 1000)
WINDOW_SLOTS = (60, 60, 90, 500)


def settings(flush: str, precision_ms: int = 1000, window_slots: int = 2 * DAY_S) -> BrokerConfig:
    return BrokerConfig(
        listen_port=10911,
        broker_ip1="10.0.0.1",
        store_path_root_dir="/store",
        mapped_file_size_commit_log=64 * KIB if TIMERS < 100_000 else 4096 * KIB,
        mapped_file_size_consume_queue=2000 if TIMERS < 100_000 else 200_000,
        mapped_file_size_timer_log=8192 if TIMERS < 100_000 else 1024 * KIB,
        flush_disk_type=flush,
        recall_message_enable=True,
        file_reserved_time_hours=72,
        delete_when="23",
        timer_precision_ms=precision_ms,
        timer_roll_window_slots=window_slots,
    )


class Senders:
    """Sends timers at random times; keeps what was acknowledged, recalled, and when each is due."""

    def __init__(self, runtime: SimulatedRuntime, dice: random.Random) -> None:
        self.runtime = runtime
        self.dice = dice
        self.due: dict[bytes, int] = {}
        self.acknowledged: set[bytes] = set()
        self.recalled: set[bytes] = set()
        self.unsure: set[bytes] = set()
        self.handles: dict[bytes, str] = {}


async def with_client(senders: Senders, address: str, per_second: float) -> None:
    client = RemotingClient(senders.runtime)
    dice = senders.dice
    try:
        while len(senders.due) < TIMERS:
            await asyncio.sleep(dice.expovariate(per_second))
            await send(senders, client, address)
            if dice.random() < 0.1 and senders.handles:
                await recall(senders, client, address)
    except TransportError:
        return
    finally:
        await client.close()


async def send(senders: Senders, client: RemotingClient, address: str) -> None:
    dice, now = senders.dice, senders.runtime.clock.now_ms()
    body = b"%d" % len(senders.due)
    delay_ms = int(SPAN_S * 500 * dice.random() ** 3) + dice.choice([1, 1, 100, 5000])
    if dice.random() < 0.2:
        delay_ms = delay_ms // 60_000 * 60_000 + 60_000 - now % 60_000  # many at the full minute
    name, value = dice.choice([("TIMER_DELAY_MS", delay_ms), ("TIMER_DELIVER_MS", now + delay_ms)])
    header = SendMessageV2Request(
        producer_group="pg",
        topic="orders",
        default_topic="TBW102",
        default_topic_queue_nums=2,
        queue_id=dice.randrange(2),
        sys_flag=0,
        born_timestamp=now,
        flag=0,
        properties=properties_text({name: str(value), "UNIQ_KEY": body.decode()}),
    )
    senders.due[body] = now + delay_ms if name == "TIMER_DELIVER_MS" else 0
    answer = await client.request(address, header.command(body), 10_000)
    if name == "TIMER_DELAY_MS":
        # The clock may have been set while the message was on its way.
        senders.due[body] = min(now, senders.runtime.clock.now_ms()) + delay_ms
    if answer.code == ResponseCode.SUCCESS:
        senders.acknowledged.add(body)
        handle = SendMessageResponse.from_ext(answer.ext).recall_handle
        if handle:
            senders.handles[body] = handle


async def recall(senders: Senders, client: RemotingClient, address: str) -> None:
    body = senders.dice.choice(list(senders.handles))
    header = RecallMessageRequest(topic="orders", recall_handle=senders.handles.pop(body))
    senders.unsure.add(body)
    answer = await client.request(address, header.command(), 10_000)
    if answer.code == ResponseCode.SUCCESS:
        senders.recalled.add(body)


def stored(broker: Broker, topic: str, queue_id: int) -> list[Record]:
    store, found = broker.services.store, []
    at = store.min_offset(topic, queue_id)
    while at < store.max_offset(topic, queue_id):
        page = store.get(topic, queue_id, at, 1000)
        found += iter_records(page.body)
        at = page.next_offset
    return found


def delivered(broker: Broker) -> list[Record]:
    return stored(broker, "orders", 0) + stored(broker, "orders", 1)


def recalls(broker: Broker) -> dict[bytes, int]:
    """Which messages were taken back, and where in the log that stands."""
    found = {}
    for record in stored(broker, "rmq_sys_wheel_timer", 0):
        named = decode_properties(record.properties).get("TIMER_DEL_UNIQKEY")
        if named is not None:
            found[named.encode()] = record.physical_offset
    return found


@pytest.mark.behaviour("TW-08")
@pytest.mark.behaviour("TW-13")
@pytest.mark.orbitmq(limit_s=10 * DAY_S)
@pytest.mark.parametrize("orbitmq_seed", seeds(3))
async def test_crashes_and_clocks(runtime: SimulatedRuntime, orbitmq_seed: int) -> None:
    """With an odd seed each run has other settings, by which long waits are cut into several."""
    dice = random.Random(orbitmq_seed)
    flush = dice.choice(["SYNC_FLUSH", "SYNC_FLUSH", "ASYNC_FLUSH"])
    clock = runtime.clock
    assert isinstance(clock, VirtualClock)
    senders = Senders(runtime, dice)
    jumps = dice.sample(range(CRASHES), JUMPS)
    set_by = 0
    settled: Counter[bytes] = Counter()
    machine = PowerMachine(runtime.machine("10.0.0.1"))
    for run in range(CRASHES):
        changed = (dice.choice(PRECISIONS_MS), dice.choice(WINDOW_SLOTS)) if orbitmq_seed % 2 else ()
        broker = Broker(machine.runtime, settings(flush, *changed))
        await broker.start()
        found = Counter(record.body for record in delivered(broker))
        assert settled <= found, settled - found
        work = asyncio.ensure_future(with_client(senders, broker.address, 1.1 * TIMERS / SPAN_S))
        await asyncio.sleep(SPAN_S / CRASHES * dice.random())
        if run in jumps:
            by = dice.choice([DAY_S, 3600, 7, -7, -3600, -DAY_S])
            set_by += by
            clock.set_wall(by)
        await asyncio.sleep(SPAN_S / CRASHES * dice.random())
        settled = Counter(record.body for record in delivered(broker))
        await asyncio.sleep(UNSETTLED_S)
        last = Counter(record.body for record in delivered(broker))
        assert all(last[body] == count for body, count in settled.items()), last - settled
        if dice.random() < 0.2:
            await broker.stop()
        else:
            machine.crash(dice.choice(list(Keep)))
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    clock.set_wall(-set_by)
    async with Broker(machine.runtime, settings(flush)) as broker:
        latest = max([*senders.due.values(), clock.now_ms()])
        if latest > clock.now_ms() + SPAN_S * 1000:
            clock.set_wall((latest - clock.now_ms()) / 1000 - SPAN_S)
        await asyncio.sleep((latest - clock.now_ms()) / 1000 + 3)
        check(senders, delivered(broker), recalls(broker), settled, flush)


def check(
    senders: Senders,
    records: list[Record],
    taken_back: dict[bytes, int],
    settled: Counter[bytes],
    flush: str,
) -> None:
    found = Counter(record.body for record in records)
    for record in records:
        dequeued = int(decode_properties(record.properties).get("TIMER_DEQUEUE_MS", "0"))
        assert not dequeued or dequeued >= senders.due[record.body], (
            senders.due[record.body],
            record.store_timestamp,
            decode_properties(record.properties),
        )
    assert all(found[body] == count for body, count in settled.items()), found - settled
    assert len(found) > TIMERS // 3
    if flush == "SYNC_FLUSH":
        lost = senders.acknowledged - senders.unsure - set(found)
        assert not lost, sorted(lost)[:10]
        # A clock that was set back lets a recall in of what was delivered before.
        after = [
            record.body for record in records if record.physical_offset > taken_back.get(record.body, 1 << 62)
        ]
        assert not after, "recalled messages were delivered"
        assert senders.recalled <= taken_back.keys()
