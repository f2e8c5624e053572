"""The clients of a run: producers of each kind, and consumer groups of each kind that record their
deliveries.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from orbitmq.client.consumer.consumer import Consumer
from orbitmq.client.consumer.simple import SimpleConsumer
from orbitmq.client.model import ConsumeFrom, SendResult, SendStatus
from orbitmq.client.producer.producer import Producer
from orbitmq.client.producer.transactional import TransactionProducer, TransactionState
from orbitmq.durations import datetime, instant
from orbitmq.errors import OrbitError
from orbitmq.message import property_names
from orbitmq.message.ids import parse_offset_message_id
from orbitmq.message.model import Message, MessageQueue, ReceivedMessage
from orbitmq.message.settling import Settled
from orbitmq.runtime.seam import Runtime
from orbitmq.wire.pop_info import ExtraInfo
from tools.simulation.history import (
    PROPERTY,
    Dealt,
    Delivered,
    History,
    PlannedError,
    Sent,
    digest_of,
)
from tools.simulation.lives import CLOSE_LIMIT_S, Lives
from tools.simulation.plan import GROUPS, Mode, group_of
from tools.simulation.site import LEVELS, Site
from tools.simulation.traffic import (
    FIFO_GROUP,
    LATER,
    MOVED_GROUP,
    ORDERED,
    ORDERED_GROUP,
    PLAIN,
    POPPING_GROUPS,
    QUEUES,
    REMADE,
    TRADES,
    subscriptions,
)

if TYPE_CHECKING:
    from random import Random

PRODUCERS = "producers"
CONSUMERS = ("consumers-1", "consumers-2")
LEVEL_SECONDS = [float(text.removesuffix("s")) for text in LEVELS.split()]
LONGEST_TIMER_S = 9.0
# Longest delay of messages sent after all faults: nothing happens to them meanwhile.
LONGEST_CALM_S = 2.0
POP_INVISIBLE_S = 6.0
# The delay that a popping member sets for a failed message, unless it lets the invisible time run out.
RETRY_S = 1.0
TIMEOUT_S = 2
PAUSE_S = 0.2
# The byte in a body before its filler.
FILLED = b" "
# The number of messages in one request, and the number of timers for the same time.
BATCHES = (1, 1, 1, 3)
AT_ONCE = (1, 2, 4)
# The sizes of fillers: chosen so that records lie across the borders of log files and of replicated pieces.
FILLERS: Sequence[int] = (0, 0, 10, 100, 3000, 9000)
# Fillers that fill a log file within a second or two.
LARGE_FILLERS: Sequence[int] = (0, 1000, 9000, 20_000)
# Timers are recalled only if they wait at least this long.
RECALL_S = 1.5
# The share of timers whose delivery time is a whole second.
WHOLE_SECONDS = 0.4
# One message in this many fails at its first handling and is delivered again. One in ``DIES_ONE_IN`` fails
# every time in a push group and is rejected in a popping group: these become dead letters.
FAILS_ONE_IN = 17
DIES_ONE_IN = 37
MOST_REDELIVERIES = 1


def fails_first(body: bytes) -> bool:
    """Whether the first handling of a message fails."""
    return sum(body) % FAILS_ONE_IN == 0


def dies(body: bytes) -> bool:
    """Whether a message becomes a dead letter, in groups that have dead letters."""
    return sum(body) % DIES_ONE_IN == 0


class Load(Lives):
    """All clients of a run."""

    def __init__(self, site: Site, history: History, dice: Random, mode: Mode, *, moved_pops: bool) -> None:
        super().__init__(site, history)
        self._absent = mode.absent
        self._subscriptions = subscriptions(mode.absent)
        self._dice = dice
        self._moved_pops = moved_pops
        self._number = 0
        self._stopped = False
        # The sending tasks of the present life of the producers.
        self._sending: list[asyncio.Task[None]] = []
        self._longest_s = LONGEST_TIMER_S
        self._fillers = FILLERS
        # Waiting timers, by their recall handles.
        self._handles: dict[str, Sent] = {}
        # The deliveries of ordered groups that are being handled, by queue.
        self._busy: dict[MessageQueue, Delivered] = {}
        # For each member of an ordered group, whether it relies on its lock of a queue.
        self._holds: dict[str, Callable[[MessageQueue], bool]] = {}

    def _work_of(self, machine: str, life: str) -> Coroutine[Any, Any, None]:
        return self._producers() if machine == PRODUCERS else self._consumers(machine, life)

    def calm(self) -> None:
        """After the last fault: messages sent from here on are not delayed for long."""
        self._longest_s = LONGEST_CALM_S

    def fill(self) -> None:
        """Messages have to expire: many of them become large, and none is delayed for long."""
        self._fillers, self._longest_s = LARGE_FILLERS, LONGEST_CALM_S

    async def stop(self) -> None:
        """Stop all sends; returns when the sends in flight are answered."""
        self._stopped = True
        await asyncio.wait(self._sending, timeout=CLOSE_LIMIT_S)

    # -- producers -------------------------------------------------------------------------------------

    async def _producers(self) -> None:
        runtime, servers = self._site.machines[PRODUCERS].runtime, self._site.name_servers
        plain = Producer("producers", name_servers=servers, runtime=runtime, retries=0, timeout=TIMEOUT_S)
        trades = TransactionProducer(
            "trades",
            check=self._check,
            name_servers=servers,
            runtime=runtime,
            retries=0,
            timeout=TIMEOUT_S,
        )
        async with plain, trades, asyncio.TaskGroup() as group:
            sends: list[tuple[str, float, Callable[[], Awaitable[None]]]] = [
                (PLAIN, 0.1, partial(self._plain, plain)),
                *((ORDERED, 0.25, partial(self._ordered, plain, key)) for key in range(3)),
                (LATER, 0.5, partial(self._delayed, plain)),
                (LATER, 0.5, partial(self._timer, plain)),
                (LATER, 1.0, partial(self._recall, plain)),
                (TRADES, 0.6, partial(self._trade, trades)),
                (REMADE, 0.3, partial(self._remade, plain)),
            ]
            self._sending = [
                group.create_task(self._keep(runtime, pause_s, send))
                for topic, pause_s, send in sends
                if topic not in self._absent
            ]
            group.create_task(self._stay())

    async def _stay(self) -> None:
        """Keep the producers of transactions running: they have to answer checks."""
        await asyncio.get_running_loop().create_future()

    async def _keep(self, runtime: Runtime, pause_s: float, send: Callable[[], Awaitable[None]]) -> None:
        while True:
            await runtime.clock.sleep(pause_s * self._dice.uniform(0.5, 1.5))
            if self._stopped:
                return
            try:
                await send()
            except OrbitError as error:
                self._history.note("producer", str(error).splitlines()[0][:160])
                await runtime.clock.sleep(PAUSE_S)

    def _sent(self, kind: str, topic: str, *, key: str = "", delay_s: float = 0.0) -> Sent:
        assert not self._stopped, "what is sent behind the end of all load is judged half done"
        self._number += 1
        body = f"{kind}-{self._number}".encode()
        return self._history.send(Sent(body, topic, kind, self._history.now_s(), key=key, delay_s=delay_s))

    def _acknowledged(self, sent: Sent, result: SendResult, number: int = 0) -> None:
        """Record an answer; ``number``: the message's index in its batch."""
        sent.queue, sent.offset = result.queue, result.queue_offset + number
        sent.place = parse_offset_message_id(result.offset_message_id.split(",")[number])[2]
        if result.status is SendStatus.SEND_OK:
            sent.acked_s = self._history.now_s()

    def _message(
        self,
        sent: Sent,
        filler: bytes = b"",
        *,
        delay_level: int | None = None,
        delay_s: float | None = None,
        deliver_at: datetime | None = None,
    ) -> Message:
        """The message to send; some messages have a tag."""
        name = sent.body.decode()
        message = Message(
            sent.topic,
            sent.body + filler,
            tags=None if fails_first(sent.body) else sent.kind,
            keys=(name, sent.kind),
            delay_level=delay_level,
            delay=delay_s,
            deliver_at=deliver_at,
            properties={PROPERTY: f"of {name}"},
        )
        sent.digest = digest_of(message.body, message.properties)
        return message

    async def _plain(self, producer: Producer) -> None:
        """Send one message, or a batch."""
        several = [self._sent("plain", PLAIN) for _ in range(self._dice.choice(BATCHES))]
        messages = [self._message(sent, self._filler()) for sent in several]
        if len(messages) == 1:
            result = await producer.send(messages[0])
        else:
            result = await producer.send_batch(messages)
        for number, sent in enumerate(several):
            self._acknowledged(sent, result, number)

    def _filler(self) -> bytes:
        return FILLED + self._dice.randbytes(self._dice.choice(self._fillers))

    async def _remade(self, producer: Producer) -> None:
        if not self._history.remaking:
            sent = self._sent("remade", REMADE)
            self._acknowledged(sent, await producer.send(self._message(sent)))

    async def _ordered(self, producer: Producer, key: int) -> None:
        queue = MessageQueue(ORDERED, GROUPS[key % len(GROUPS)], key % QUEUES)
        sent = self._sent("ordered", ORDERED, key=str(key))
        self._acknowledged(sent, await producer.send(self._message(sent), queue=queue))

    async def _delayed(self, producer: Producer) -> None:
        level = self._dice.randint(1, bisect_right(LEVEL_SECONDS, self._longest_s))
        sent = self._sent("delayed", LATER, delay_s=LEVEL_SECONDS[level - 1])
        self._acknowledged(sent, await producer.send(self._message(sent, delay_level=level)))

    async def _timer(self, producer: Producer) -> None:
        delay_s = round(self._dice.uniform(0.1, self._longest_s), 3)
        if self._dice.random() < WHOLE_SECONDS:
            await self._at_a_whole_second(producer, delay_s)
            return
        sent = self._sent("timer", LATER, delay_s=delay_s)
        self._waits(sent, await producer.send(self._message(sent, delay_s=delay_s)))

    async def _at_a_whole_second(self, producer: Producer, most_s: float) -> None:
        """Send some timers for the same whole second, as people often choose it."""
        clock = self._site.machines[PRODUCERS].runtime.clock
        due_ms = clock.now_ms() + round(most_s * 1000)
        due_ms -= due_ms % 1000
        for _ in range(self._dice.choice(AT_ONCE)):
            if self._stopped:
                return
            # a timer for a past time is delivered at once
            delay_s = max(0.0, (due_ms - clock.now_ms()) / 1000)
            sent = self._sent("timer", LATER, delay_s=delay_s)
            self._waits(sent, await producer.send(self._message(sent, deliver_at=instant(due_ms))))

    def _waits(self, sent: Sent, result: SendResult) -> None:
        self._acknowledged(sent, result)
        if sent.acked_s is not None:
            self._handles[result.recall_handle] = sent

    async def _recall(self, producer: Producer) -> None:
        """Recall one of the waiting timers."""
        now_s = self._history.now_s()
        self._handles = {
            handle: sent
            for handle, sent in self._handles.items()
            if sent.at_s + sent.delay_s > now_s + RECALL_S
        }
        if self._handles:
            handle = self._dice.choice(list(self._handles))
            sent = self._handles.pop(handle)
            sent.recall_s = now_s
            await producer.recall(LATER, handle)
            sent.recalled_s = self._history.now_s()

    async def _trade(self, producer: TransactionProducer) -> None:
        sent = self._sent("trade", TRADES)
        sent.commits = self._dice.random() < 0.7
        told = self._dice.random() < 0.6
        async with producer.transaction(self._message(sent)) as transaction:
            self._acknowledged(sent, transaction.sent)
            if told:
                sent.told_s = sent.acked_s
            if not told:
                transaction.leave_open()
            elif not sent.commits:
                transaction.roll_back()

    async def _check(self, message: ReceivedMessage) -> TransactionState:
        sent = self._history.sent[message.body]
        sent.asked.append((self._history.now_s(), self._group_at(message)))
        return TransactionState.COMMIT if sent.commits else TransactionState.ROLLBACK

    def _group_at(self, message: ReceivedMessage) -> str:
        """The broker group that stores a half message."""
        return group_of(self._site.names[message.store_host.partition(":")[0]])

    # -- consumers -------------------------------------------------------------------------------------

    async def _consumers(self, machine: str, life: str) -> None:
        self._history.popping = set(filter(self._pops, self._subscriptions))
        async with asyncio.TaskGroup() as tasks:
            for group in self._subscriptions:
                consume = partial(self._pop if self._pops(group) else self._push, machine, group, life)
                tasks.create_task(self._until_started(life, consume))

    def _pops(self, group: str) -> bool:
        return group in POPPING_GROUPS or (group == MOVED_GROUP and self._moved_pops)

    async def _until_started(self, life: str, consume: Callable[[], Awaitable[None]]) -> None:
        """Start a consumer again if its start failed because no server answered."""
        while True:
            try:
                await consume()
            except OrbitError as error:
                self._history.note(life, f"begins again: {error}")
                await self._site.clock.sleep(1)

    async def _push(self, machine: str, group: str, life: str) -> None:
        ordered = group == ORDERED_GROUP
        consumer = Consumer(
            group,
            name_servers=self._site.name_servers,
            runtime=self._site.machines[machine].runtime,
            consume_from=ConsumeFrom.FIRST,
            ordered=ordered,
            failure_pause=0.1,
            max_reconsume_times=-1 if ordered else MOST_REDELIVERIES,
        )
        member = f"{life}/{group}"
        if consumer._locks is not None:
            self._holds[member] = consumer._locks.holds
        async with consumer:
            for topic in self._subscriptions[group]:
                consumer.subscribe(topic)
            await consumer.run(partial(self._handle, group, member, ordered))

    async def _handle(self, group: str, member: str, ordered: bool, message: ReceivedMessage) -> None:
        one = self._delivered(group, member, message)
        if ordered:
            self._take(one)
        try:
            await self._site.clock.sleep(self._dice.choice((0.0, 0.001, 0.02)))
        finally:
            if ordered:
                self._busy.pop(one.queue, None)
        if not ordered and (dies(one.body) or (not one.again and fails_first(one.body))):
            raise PlannedError
        self._history.done(one)

    def _delivered(self, group: str, member: str, message: ReceivedMessage) -> Delivered:
        queue, again = _queue_of(message), message.reconsume_times > 0
        body = _body_of(message)
        self._history.compare(body, message.body, message.properties, f"as {member} gets it")
        return self._history.deliver(group, member, body, queue, message.queue_offset, again=again)

    def _take(self, one: Delivered) -> None:
        queue, member = one.queue, one.member
        busy = self._busy.get(queue)
        others = [other for other, holds in self._holds.items() if other != member and holds(queue)]
        if busy is not None and busy.member != member:
            others.append(busy.member)
        for other in filter(self._alive, others):
            self._history.violate(
                "one holder of a queue lock",
                f"{member} handles a message of {queue.broker_name}:{queue.queue_id}, which {other} has",
                one.body,
            )
        self._busy[queue] = one

    def _alive(self, member: str) -> bool:
        machine, life, _ = member.split("/")
        return self._current.get(machine) == life

    async def _pop(self, machine: str, group: str, life: str) -> None:
        consumer = SimpleConsumer(
            group,
            name_servers=self._site.name_servers,
            consume_from=ConsumeFrom.FIRST,
            runtime=self._site.machines[machine].runtime,
            invisible_for=POP_INVISIBLE_S,
            ordered=group == FIFO_GROUP,
        )
        member = f"{life}/{group}"
        async with consumer:
            for topic in self._subscriptions[group]:
                consumer.subscribe(topic)
            while True:
                try:
                    messages = await consumer.receive(8, wait=5)
                    self._dealt(group, member, messages)
                    for message in messages:
                        await self._pop_one(consumer, group, member, message)
                except OrbitError as error:
                    self._history.note(life, str(error).splitlines()[0][:160])
                    await self._site.clock.sleep(PAUSE_S)

    def _dealt(self, group: str, member: str, messages: list[ReceivedMessage]) -> None:
        by_queue: dict[MessageQueue, list[ReceivedMessage]] = {}
        for message in messages:
            by_queue.setdefault(_queue_of(message), []).append(message)
        for queue, several in by_queue.items():
            bodies = {message.queue_offset: _body_of(message) for message in several}
            again = frozenset(message.queue_offset for message in several if message.reconsume_times)
            now_s, popped_s = self._history.now_s(), self._popped_s(several[0])
            self._history.dealt.append(Dealt(now_s, group, member, queue, bodies, again, popped_s))

    def _popped_s(self, message: ReceivedMessage) -> float:
        """The time at which a broker gave a popped message out, by the broker's clock."""
        clock = self._site.machines[message.broker_name].runtime.clock
        receipt = ExtraInfo.decode(message.properties[property_names.POP_CK])
        return self._history.now_s() - (clock.now_ms() - receipt.pop_time) / 1000

    async def _pop_one(
        self, consumer: SimpleConsumer, group: str, member: str, message: ReceivedMessage
    ) -> None:
        one = self._delivered(group, member, message)
        one.settling_s = self._history.now_s()
        if dies(one.body):
            done = await consumer.reject(message)
        elif not one.again and fails_first(one.body):
            # In an ordered group the whole queue waits until the invisible time has run out, which is longer
            # than messages may be kept.
            if sum(one.body) % 2 or group == FIFO_GROUP:
                one.settling_s += RETRY_S  # until then no later message of the queue may be given out
                await consumer.retry(message, delay=RETRY_S)
            else:
                one.settling_s = None
            return
        else:
            # Handled: an acknowledgement counts even if this process ends before the answer.
            self._history.done(one)
            done = await consumer.ack(message)
        if done is Settled.DONE:
            one.done_s = self._history.now_s()


def _body_of(message: ReceivedMessage) -> bytes:
    return bytes(message.body).partition(FILLED)[0]


def _queue_of(message: ReceivedMessage) -> MessageQueue:
    return MessageQueue(message.topic, message.broker_name, message.queue_id)
