"""The load of a run: about 100 messages a second in eight roles, all recorded in the history."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from benchmarks.faults.history import AUDIT, BACKLOG_ROLES, Event, History, Pull, Receipt, Send
from benchmarks.faults.place import MASTER, Place
from benchmarks.servers import ROOT, child_settings

from orbitmq import (
    ConsumeFrom,
    Consumer,
    Message,
    MessageQueue,
    Producer,
    ReceivedMessage,
    SendStatus,
    SimpleConsumer,
    TransactionProducer,
    TransactionState,
)
from orbitmq.admin import Admin
from orbitmq.client.consumer.puller import FlowLimits
from orbitmq.client.model import SendResult
from orbitmq.errors import OrbitError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers.offset import QueryConsumerOffsetRequest, QueryConsumerOffsetResponse

TOPICS = ("default", "once", "ordered", "transaction", "delayed", "timer", "pop", "backlog")
QUEUES = 4
KEYS = 8
# Delay levels 2 and 3, with their seconds.
DELAY_LEVELS = {2: 5.0, 3: 10.0}
LONGEST_DELAY_S = 12.0
BACKLOG_PAUSE_S = 0.02
SMALL_STEPS = FlowLimits(messages=8)
INVISIBLE_S = 15.0
NEW_MESSAGES = 20
NEW_TOPIC_S = 0.5
ASKED_MS = 1000
READ_FIELDS = 4
STATE_S = 0.3
BEGUN_S = 90.0
"""Longer than the time for which a broker that does not know all queue locks grants none."""
QUIET_S = 2.0
"""How long no message may be repeated after everything was delivered."""


class Load:
    """Producers and consumers of all roles in this process.

    Args:
        seed: the seed of delays and of transactions' outcomes.
        backlog: number of messages stored at group a before the run, for consumers that are always behind.
    """

    def __init__(self, place: Place, history: History, seed: int, *, backlog: int) -> None:
        self._place = place
        self._seed = seed
        self._random = random.Random(seed)
        self._history = history
        self._backlog = backlog
        self._began = time.monotonic()
        self._numbers = {topic: itertools.count() for topic in TOPICS}
        self._stack = AsyncExitStack()
        self._senders: list[asyncio.Task[None]] = []
        self._consumers: list[asyncio.Task[None]] = []
        self._reader: asyncio.subprocess.Process | None = None
        self._sending = True

    # -- the clock of the run --------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds since the start of the run."""
        return time.monotonic() - self._began

    def tell(self, kind: str, text: str) -> None:
        """Record an event."""
        self._history.events.append(Event(self.now(), kind, text))

    # -- life ------------------------------------------------------------------------------------------

    async def start(self, *, topics_known_s: float) -> None:
        """Create the topics, fill the backlog, begin to send and to consume.

        Args:
            topics_known_s: how long slaves need to learn of new topics.
        """
        servers = self._place.name_server
        async with Admin(servers) as admin:
            for topic in TOPICS:
                await admin.topics.create(topic, queues=QUEUES)
        await asyncio.sleep(topics_known_s)
        async with Producer("filling", name_servers=servers) as producer:
            await self._fill(producer)
        self._began = time.monotonic()
        await self._start_roles()
        await self.start_reader()

    async def _start_roles(self) -> None:
        servers = self._place.name_server
        enter = self._stack.enter_async_context
        plain = await enter(Producer("plain", name_servers=servers))
        once = await enter(Producer("once", name_servers=servers, retries=0))
        later = await enter(Producer("later", name_servers=servers, retries=0))
        deciding = await enter(
            TransactionProducer("deciding", check=self._check, name_servers=servers, retries=0)
        )
        slowly: dict[str, Any] = {"concurrency": 1, "limits": SMALL_STEPS, "pull_batch_size": 8}
        for role in ("default", "once", "transaction", "delayed", "timer"):
            self._consume(role, role)
        self._consume("ordered", "ordered", ordered=True)
        self._consume("backlog", "backlog", **slowly)
        self._consume("backlog-ordered", "backlog", **slowly, ordered=True)
        self._consumers.append(asyncio.create_task(self._pop("pop", "pop", 16)))
        self._consumers.append(asyncio.create_task(self._pop("backlog-pop", "backlog", 8, BACKLOG_PAUSE_S)))
        self._spawn("default", 30, lambda m: plain.send(m))
        self._spawn("once", 15, lambda m: once.send(m))
        self._spawn("ordered", 15, lambda m: plain.send(m, ordering_key=int(m.body) % KEYS))
        self._spawn("pop", 10, lambda m: plain.send(m))
        self._senders.append(asyncio.create_task(self._delayed(later)))
        self._senders.append(asyncio.create_task(self._timers(later)))
        self._senders.append(asyncio.create_task(self._transactions(deciding)))

    async def until_consuming(self) -> None:
        """Wait until each consumer of the backlog has its first message, since only then a standstill is the
        fault's.

        Raises:
            TimeoutError: a consumer got no message.
        """
        roles = {*BACKLOG_ROLES, "backlog-pop"}
        deadline = self.now() + BEGUN_S
        while waiting := roles - {receipt.role for receipt in self._history.receipts}:
            if self.now() > deadline:
                raise TimeoutError(f"{', '.join(sorted(waiting))}: no message within {BEGUN_S:.0f} s")
            await asyncio.sleep(0.2)

    async def make_new_topic(self) -> None:
        """Create a topic, with messages at group a, too late for slaves to know it."""
        async with Admin(self._place.name_server) as admin:
            await admin.topics.create("late", queues=1)
        async with Producer("new", name_servers=self._place.name_server) as producer:
            for number in range(NEW_MESSAGES):
                sending = producer.send(
                    Message("late", str(number)), queue=MessageQueue("late", "broker-a", 0)
                )
                await self._note("late", number, sending)
        await asyncio.sleep(NEW_TOPIC_S)

    def read_new_topic(self) -> None:
        """Begin to consume the new topic."""
        self._consume("late", "late")

    async def note_committed(self) -> None:
        """Record the committed offsets of group a's backlog: earlier messages must not be repeated. Then wait
        until the state, which is sent to slaves every 0.2 s, has reached them.
        """
        address = str(self._place.seats[MASTER].bound)
        for role in BACKLOG_ROLES:
            request = QueryConsumerOffsetRequest(consumer_group=f"{role}_group", topic="backlog", queue_id=0)
            answer = await self._place.client.request(address, request.command(), ASKED_MS)
            if answer.code == ResponseCode.SUCCESS:
                found = QueryConsumerOffsetResponse.from_ext(answer.ext)
                self._history.committed[role] = found.offset
        await asyncio.sleep(STATE_S)

    def note_pull(self, topic: str, group: str, queue_id: int) -> None:
        """Record a pull that reached the slave."""
        self._history.pulls.append(Pull(self.now(), topic, group, queue_id))

    async def stop_sending(self) -> None:
        """Stop all producers."""
        self._sending = False
        await asyncio.gather(*self._senders)

    async def settle(self, timeout_s: float) -> None:
        """Read the whole backlog again: wait for all expected messages, and a little longer for unexpected
        ones.
        """
        self._consume(AUDIT, "backlog")
        deadline = self.now() + timeout_s
        while self.now() < deadline and self._history.lost():  # noqa: ASYNC110 - of plain lists
            await asyncio.sleep(0.2)
        await asyncio.sleep(QUIET_S)

    async def close(self) -> None:
        """Close all clients."""
        self._sending = False
        for task in (*self._senders, *self._consumers):
            task.cancel()
        await asyncio.gather(*self._senders, *self._consumers, return_exceptions=True)
        if self._reader is not None and self._reader.returncode is None:
            self._reader.kill()
            await self._reader.wait()
        with contextlib.suppress(OrbitError):
            await self._stack.aclose()

    async def _fill(self, producer: Producer) -> None:
        queue = MessageQueue("backlog", "broker-a", 0)
        size = 100
        for begin in range(0, self._backlog, size):
            numbers = range(begin, min(begin + size, self._backlog))
            sent = await producer.send_batch([Message("backlog", str(n)) for n in numbers], queue=queue)
            # For the consumer that reads the whole backlog at the end.
            self._history.sends += [
                Send(
                    AUDIT,
                    n,
                    0,
                    0,
                    sent.status is SendStatus.SEND_OK,
                    broker=queue.broker_name,
                    queue_id=0,
                    offset=n,
                )
                for n in numbers
            ]

    # -- sending ---------------------------------------------------------------------------------------

    def _spawn(self, role: str, rate: float, send: Callable[[Message], Awaitable[SendResult]]) -> None:
        async def run() -> None:
            async for number in self._paced(role, rate):
                await self._note(role, number, send(Message(role, str(number))))

        self._senders.append(asyncio.create_task(run()))

    async def _paced(self, role: str, rate: float) -> AsyncIterator[int]:
        """Message numbers at the given rate; a sender that is delayed sends fewer."""
        due = time.monotonic()
        while self._sending:
            yield next(self._numbers[role])
            due = max(due + 1 / rate, time.monotonic())
            await asyncio.sleep(due - time.monotonic())

    async def _note(
        self, role: str, number: int, sending: Awaitable[Any], *, wanted: bool = True, delay_s: float = 0.0
    ) -> None:
        begun = self.now()
        error = broker = ""
        queue_id = offset = -1
        stored = False
        try:
            result = await sending
            broker, queue_id, offset = result.queue.broker_name, result.queue.queue_id, result.queue_offset
            stored = result.status is SendStatus.SEND_OK
            error = "" if stored else result.status.name
        except OrbitError as failure:
            error = str(failure)
        self._history.sends.append(
            Send(role, number, begun, self.now(), stored, wanted, delay_s, broker, error, queue_id, offset)
        )

    async def _delayed(self, producer: Producer) -> None:
        async for number in self._paced("delayed", 8):
            level, delay_s = self._random.choice(list(DELAY_LEVELS.items()))
            message = Message("delayed", str(number), delay_level=level)
            await self._note("delayed", number, producer.send(message), delay_s=delay_s)

    async def _timers(self, producer: Producer) -> None:
        async for number in self._paced("timer", 8):
            delay_s = round(self._random.uniform(3, LONGEST_DELAY_S), 3)
            message = Message("timer", str(number), delay=delay_s)
            await self._note("timer", number, producer.send(message), delay_s=delay_s)

    async def _transactions(self, producer: TransactionProducer) -> None:
        """Of ten transactions seven commit at once, one rolls back, and two are left open and commit at their
        check.
        """

        async def send(message: Message, state: TransactionState) -> SendResult:
            return (await producer.send_in_transaction(message, lambda _: state)).sent

        async for number in self._paced("transaction", 8):
            state = TransactionState.COMMIT
            if number % 10 == 3:
                state = TransactionState.ROLLBACK
            elif number % 5 == 0:
                state = TransactionState.UNKNOWN
            sending = send(Message("transaction", str(number)), state)
            wanted = state is not TransactionState.ROLLBACK
            await self._note("transaction", number, sending, wanted=wanted)

    async def _check(self, message: ReceivedMessage) -> TransactionState:
        number = int(message.body)
        self._history.checks.append((number, self.now()))
        rolled_back = number % 10 == 3
        return TransactionState.ROLLBACK if rolled_back else TransactionState.COMMIT

    # -- consuming -------------------------------------------------------------------------------------

    def _received(self, role: str, message: ReceivedMessage) -> None:
        receipt = Receipt(
            role, int(message.body), self.now(), message.broker_name, message.queue_id, message.queue_offset
        )
        self._history.receipts.append(receipt)

    def _consume(self, role: str, topic: str, **options: Any) -> None:
        """Start a consumer; consumers of the backlog pause for each message."""
        pause_s = BACKLOG_PAUSE_S if role in BACKLOG_ROLES else 0.0

        async def handle(message: ReceivedMessage) -> None:
            self._received(role, message)
            if pause_s:
                await asyncio.sleep(pause_s)

        async def run() -> None:
            async with consumer:
                await consumer.run(handle)

        consumer = Consumer(
            f"{role}_group",
            name_servers=self._place.name_server,
            consume_from=ConsumeFrom.FIRST,
            close_timeout=1,
            **options,
        )
        consumer.subscribe(topic)
        self._consumers.append(asyncio.create_task(run()))

    async def _pop(self, role: str, topic: str, batch: int, pause_s: float = 0.0) -> None:
        consumer = SimpleConsumer(
            f"{role}_group",
            name_servers=self._place.name_server,
            consume_from=ConsumeFrom.FIRST,
            invisible_for=INVISIBLE_S,
            close_timeout=1,
        )
        consumer.subscribe(topic)
        async with consumer:
            while True:
                try:
                    messages = await consumer.receive(batch, wait=2)
                    for message in messages:
                        self._received(role, message)
                        await asyncio.sleep(pause_s)
                    await consumer.ack_all(messages)
                except OrbitError:
                    await asyncio.sleep(0.05)

    # -- a consumer that dies with the master ----------------------------------------------------------

    async def start_reader(self) -> None:
        """Start the process that reads the backlog in its own group; kill an earlier one first."""
        if self._reader is not None and self._reader.returncode is None:
            self._reader.kill()
            await self._reader.wait()
        self.tell("reader", "starts")
        self._reader = await asyncio.create_subprocess_exec(
            *self._reader_command(),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            cwd=ROOT,
            preexec_fn=child_settings,
        )
        self._consumers.append(asyncio.create_task(self._read_along(self._reader)))

    def _reader_command(self) -> list[str]:
        return [sys.executable, "-m", "benchmarks.faults.reader", self._place.name_server, "backlog"]

    async def _read_along(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            if line == b"ready\n":
                self.tell("reader", "ready")
                continue
            fields = line.decode().split()
            if len(fields) != READ_FIELDS or not fields[0].isdecimal():
                continue  # a line that a library printed
            number, broker, queue_id, offset = fields
            self._history.receipts.append(
                Receipt("restarting", int(number), self.now(), broker, int(queue_id), int(offset))
            )
