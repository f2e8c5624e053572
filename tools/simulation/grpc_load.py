"""gRPC clients of a run: a producer, and simple, push and FIFO consumers that record their deliveries.

The producer sends plain, ordered and delayed messages and transactions. It ends half of the transactions
itself, and the others when the broker checks.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from h2.exceptions import ProtocolError
from tests.conversation.grpc_rpc import RpcClient, Stream, message, received, resource

from orbitmq.errors import OrbitError
from orbitmq.gateway import receipts, schema
from orbitmq.gateway.messages import duration, new, parse, timestamp
from orbitmq.gateway.schema import ClientType, MessageType, TransactionResolution
from orbitmq.gateway.status import Code
from orbitmq.message.model import MessageQueue
from orbitmq.message.reserved import MASTER_ID
from tools.simulation.history import History, Sent
from tools.simulation.lives import CLOSE_LIMIT_S, Lives
from tools.simulation.load import PRODUCERS, dies, fails_first
from tools.simulation.plan import GROUPS, Mode
from tools.simulation.site import PORT, Site

if TYPE_CHECKING:
    from random import Random

PLAIN, ORDERED = "plain", "ordered"
SIMPLE_GROUP, PUSH_GROUP, FIFO_GROUP = "simple", "push", "fifo"
TOPIC_OF: Final = {SIMPLE_GROUP: PLAIN, PUSH_GROUP: PLAIN, FIFO_GROUP: ORDERED}
# The shortest invisible time that gRPC clients may request.
INVISIBLE_S: Final = 10.0
RETRY_S: Final = 1.0
WAIT_S: Final = 5.0
TIMEOUT_S: Final = 3.0
PAUSE_S: Final = 0.3
BEAT_S: Final = 10.0
# The interval at which clients look whether another broker of a group has become its master.
ROUTES_S: Final = 30.0
# The kinds of messages that the producer sends, one of which is drawn each time.
SENDS: Final = (
    *[MessageType.FIFO] * 4,
    *[MessageType.NORMAL] * 2,
    MessageType.DELAY,
    MessageType.TRANSACTION,
)
KEYS: Final = 3
DELAYS_S: Final = (1.0, 6.0)
# The share of transactions that commit, and the share that the producer ends without a check.
COMMITS, TELLS = 0.7, 0.5
# Durations of a consumer's work on a message; push consumers work on some messages for longer than the first
# invisible time.
WORK_S: Final = (0.0, 0.001, 0.02)
PUSH_WORK_S: Final = (0.0, 0.02, 0.5)
LONG_WORK_S, LONG_ONE_IN = 75.0, 200


class LostError(OrbitError):
    """A call has no answer, or an unexpected one."""


@dataclass(slots=True)
class Got:
    """One delivery of a message.

    Attributes:
        member: the life and the group of the consumer.
        popped_s: the time at which the broker gave the message out.
        attempt: the attempt id of the receive, with which it is repeated if its answer is lost; empty if it
            had none.
        again: whether the message was delivered before.
        freed_s: the time from which the message may be delivered again because of a client's call; None
            without such a call.
        done_s: the time at which the broker confirmed the acknowledgement.
    """

    member: str
    group: str
    queue: MessageQueue
    offset: int
    body: bytes
    handle: str
    at_s: float
    popped_s: float
    attempt: str
    again: bool
    freed_s: float | None = None
    done_s: float | None = None

    def may_come_again(self, at_s: float) -> None:
        """Record the client's first call for this message: the repetition of a call whose answer was lost
        changes nothing.
        """
        if self.freed_s is None:
            self.freed_s = at_s


@dataclass
class Record:
    """The deliveries to gRPC consumers, and the time at which each life of them ended."""

    got: list[Got] = field(default_factory=list)
    ended: dict[str, float] = field(default_factory=dict)


class Caller(RpcClient):
    """A client whose calls end with an answer or with :class:`LostError`."""

    async def _called(self, method: str, request: schema.Form, limit_s: float) -> list[bytes]:
        try:
            async with asyncio.timeout(limit_s):
                data = request.SerializeToString()
                answer = await self.grpc.call(method, data, headers=self.headers, timeout_s=limit_s)
        except (TimeoutError, ProtocolError, OSError) as error:
            raise LostError(f"{method}: {error!r}") from error
        if answer.status != 0:
            raise LostError(
                f"{method} ends with {answer.status}: {answer.message or 'its connection is lost'}"
            )
        return answer.messages()

    async def asked(self, method: str, request: schema.Form, form: type[Any]) -> Any:
        """The answer to a call, whatever its status code."""
        return parse(form, (await self._called(method, request, TIMEOUT_S))[0])

    async def received(self, request: schema.ReceiveMessageRequest) -> list[schema.Message]:
        answer = received(await self._called("ReceiveMessage", request, WAIT_S + TIMEOUT_S))
        if answer.code not in (Code.OK, Code.MESSAGE_NOT_FOUND):
            raise LostError(f"ReceiveMessage: {answer.code} {answer.text}")
        return answer.messages

    async def greet(self, kind: int, topic: str) -> Stream:
        """Send the settings on a new Telemetry stream, and wait for the broker's settings; returns the
        stream.
        """
        try:
            async with asyncio.timeout(TIMEOUT_S):
                stream = self.telemetry()
                await stream.send(self.settings(kind, [topic]))
                answer = await stream.next(TIMEOUT_S)
        except (TimeoutError, ProtocolError, OSError, AssertionError) as error:
            raise LostError(f"Telemetry: {error!r}") from error
        if answer.status.code != Code.OK:
            raise LostError(f"Telemetry: {answer.status.message}")
        return stream

    async def question(
        self, stream: Stream, limit_s: float
    ) -> schema.RecoverOrphanedTransactionCommand | None:
        """The broker's check of a transaction, if one arrives in time."""
        try:
            command = await stream.next(limit_s)
        except TimeoutError:
            return None
        except (ProtocolError, AssertionError) as error:
            raise LostError(f"Telemetry: {error!r}") from error
        if not command.HasField("recover_orphaned_transaction_command"):
            return None
        return command.recover_orphaned_transaction_command

    async def beat(self, kind: int) -> None:
        """Send the heartbeat that a client sends every :data:`BEAT_S`."""
        request = new(schema.HeartbeatRequest, group=resource(self.group), client_type=kind)
        await self.asked("Heartbeat", request, schema.HeartbeatResponse)


class GrpcLoad(Lives):
    """All gRPC clients of a run; each has a connection to each broker group."""

    def __init__(self, site: Site, history: History, record: Record, dice: Random, mode: Mode) -> None:
        super().__init__(site, history)
        self._mode = mode
        self._record = record
        self._dice = dice
        self._number = 0
        self._stopped = False
        # The producers that wait for an answer to a message.
        self._sending: set[str] = set()

    def _work_of(self, machine: str, life: str) -> Coroutine[Any, Any, None]:
        return self._live(machine, life)

    def kill(self, machine: str) -> bool:
        self._note_end(machine)
        if machine == PRODUCERS:
            self._sending.clear()
        return super().kill(machine)

    def _note_end(self, machine: str) -> None:
        life = self._current.get(machine)
        if life is not None:
            self._record.ended.setdefault(f"{machine}/{life}", self._history.now_s())

    async def stop(self) -> None:
        """Stop all sends; returns when the sends in flight are answered.

        Producers still answer transaction checks.
        """
        self._stopped = True
        until_s = self.now_s() + CLOSE_LIMIT_S
        while self._sending and self.now_s() < until_s:
            await self.sleep(PAUSE_S)

    async def _live(self, machine: str, life: str) -> None:
        async with asyncio.TaskGroup() as tasks:
            for broker in GROUPS:
                if machine == PRODUCERS:
                    tasks.create_task(self._produce(machine, life, broker))
                    continue
                for group in TOPIC_OF:
                    member = _Member(self, machine, life, group, broker)
                    tasks.create_task(member.consume())

    @asynccontextmanager
    async def connected(self, machine: str, client_id: str, group: str, broker: str) -> AsyncIterator[Caller]:
        """A connection to a broker group; a client that closes says goodbye on it."""
        host = self._site.machines[broker].host
        if self._mode.replicas > 1:
            host = await self._host_of(machine, client_id, broker)
        client = await self._open(machine, client_id, group, host)
        try:
            yield client
        except asyncio.CancelledError:
            request = new(schema.NotifyClientTerminationRequest, group=resource(group))
            try:
                await client.asked("NotifyClientTermination", request, schema.NotifyClientTerminationResponse)
            except LostError as error:
                self._history.note(client_id, f"no goodbye: {error}")
            raise
        finally:
            client.grpc.close()

    async def _open(self, machine: str, client_id: str, group: str, host: str) -> Caller:
        runtime = self._site.machines[machine].runtime
        client = Caller(runtime, client_id=client_id, group=group, host=host, port=PORT)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await client.__aenter__()
        except (TimeoutError, OSError) as error:
            raise LostError(f"no connection to {self._site.names[host]}: {error!r}") from error
        return client

    async def _host_of(self, machine: str, client_id: str, group: str) -> str:
        """The host that serves a broker group, by the route from any broker: clients use id 0 only."""
        entry = self._dice.choice(self._mode.brokers)
        client = await self._open(machine, client_id, "", self._site.machines[entry].host)
        try:
            request = new(schema.QueryRouteRequest, topic=resource(PLAIN), endpoints=new(schema.Endpoints))
            route = await client.asked("QueryRoute", request, schema.QueryRouteResponse)
        finally:
            client.grpc.close()
        for queue in route.message_queues:
            if queue.broker.name == group and queue.broker.id == MASTER_ID:
                return str(queue.broker.endpoints.addresses[0].host)
        raise LostError(f"{entry} gives no route to {group}: {route.status.message[:100]}")

    async def again(self, client_id: str, error: OrbitError) -> None:
        """Record an error, and wait before the next connection."""
        self._history.note(client_id, str(error).splitlines()[0][:160])
        await self._site.clock.sleep(PAUSE_S)

    # -- the producer ----------------------------------------------------------------------------------

    async def _produce(self, machine: str, life: str, broker: str) -> None:
        while True:
            try:
                async with self.connected(machine, life, "", broker) as client:
                    stream = await client.greet(ClientType.PRODUCER, PLAIN)
                    began_s = beat_s = self.now_s()
                    while True:
                        if self._mode.replicas > 1 and self.now_s() - began_s >= ROUTES_S:
                            raise LostError("the route is asked for again")
                        if not self._stopped:
                            await self._send(client, f"{life}/{broker}", broker)
                        question = await client.question(stream, self._dice.uniform(0.02, 0.2))
                        if question is not None:
                            await self._answer(client, question, broker)
                        if self.now_s() - beat_s >= BEAT_S:
                            await client.beat(ClientType.PRODUCER)
                            beat_s = self.now_s()
            except LostError as error:
                await self.again(life, error)

    def _next(self) -> tuple[Sent, schema.Message]:
        """The next message."""
        self._number += 1
        kind = self._dice.choice(SENDS)
        topic = ORDERED if kind == MessageType.FIFO else PLAIN
        sent = Sent(f"{topic}-{self._number}".encode(), topic, topic, self.now_s())
        system: dict[str, Any] = {"message_type": kind}
        if kind == MessageType.FIFO:
            sent.key = system["message_group"] = str(self._dice.randrange(KEYS))
        elif kind == MessageType.DELAY:
            sent.kind, sent.delay_s = "timer", self._dice.uniform(*DELAYS_S)
            now_ms = self._site.machines[PRODUCERS].runtime.clock.now_ms()
            system["delivery_timestamp"] = timestamp(now_ms + round(sent.delay_s * 1000))
        elif kind == MessageType.TRANSACTION:
            sent.kind, sent.commits = "trade", self._dice.random() < COMMITS
        return sent, message(sent.body, topic=topic, id=f"01{self._number:030}", **system)

    async def _send(self, client: Caller, name: str, broker: str) -> None:
        sent, one = self._next()
        self._history.send(sent)
        self._sending.add(name)
        try:
            request = new(schema.SendMessageRequest, messages=[one])
            answer = await client.asked("SendMessage", request, schema.SendMessageResponse)
        finally:
            self._sending.discard(name)
        if answer.status.code != Code.OK:
            text = f"{sent.body.decode()}: {answer.status.message[:160]}"
            if self._mode.replicas > 1:
                raise LostError(text)  # another broker may be the master
            self._history.note("producer", text)
            return
        sent.acked_s, sent.queue = self.now_s(), MessageQueue(sent.topic, broker, -1)
        if sent.commits is not None and self._dice.random() < TELLS:
            sent.told_s = self.now_s()
            (half,) = answer.entries
            await self._tell(client, sent, half.message_id, half.transaction_id)

    async def _answer(
        self, client: Caller, question: schema.RecoverOrphanedTransactionCommand, broker: str
    ) -> None:
        body = bytes(question.message.body)
        sent = self._history.sent.get(body)
        if sent is None or sent.commits is None:
            text = f"the producer is asked about {body[:40]!r}"
            self._history.violate("messages are as they were sent", text, body)
            return
        sent.asked.append((self.now_s(), broker))
        message_id = question.message.system_properties.message_id
        await self._tell(client, sent, message_id, question.transaction_id)

    async def _tell(self, client: Caller, sent: Sent, message_id: str, transaction_id: str) -> None:
        """Send a transaction's outcome to its broker."""
        request = new(
            schema.EndTransactionRequest,
            topic=resource(sent.topic),
            message_id=message_id,
            transaction_id=transaction_id,
            resolution=TransactionResolution.COMMIT if sent.commits else TransactionResolution.ROLLBACK,
        )
        answer = await client.asked("EndTransaction", request, schema.EndTransactionResponse)
        # An earlier call, whose answer was lost, may have ended the transaction.
        if answer.status.code not in (Code.OK, Code.INVALID_TRANSACTION_ID):
            raise LostError(f"EndTransaction: {answer.status.code} {answer.status.message}")

    # -- for members -----------------------------------------------------------------------------------

    def note(self, group: str, member: str, broker: str, attempt: str, one: schema.Message) -> Got:
        """Record a delivery."""
        system, history = one.system_properties, self._history
        handle = receipts.decode(system.receipt_handle, broker)
        clock = self._site.machines[broker].runtime.clock
        popped_s = history.now_s() - (clock.now_ms() - handle.info.pop_time) / 1000
        queue = MessageQueue(one.topic.name, broker, system.queue_id)
        again = system.delivery_attempt > 1
        body = bytes(one.body)
        if body not in history.sent:
            history.violate("messages are as they were sent", f"{member} gets {body[:40]!r}")
        history.deliver(group, member, body, queue, system.queue_offset, again=again)
        got = Got(
            member, group, queue, system.queue_offset, body, system.receipt_handle,
            history.now_s(), popped_s, attempt, again,
        )  # fmt: skip
        self._record.got.append(got)
        return got

    def handled(self, got: Got) -> None:
        """Record that a message is handled: this counts whether the client's acknowledgement is answered or
        not.
        """
        got.may_come_again(self._history.now_s())
        self._history.by_group.setdefault(got.group, set()).add(got.body)

    @property
    def dice(self) -> Random:
        return self._dice

    async def sleep(self, seconds: float) -> None:
        await self._site.clock.sleep(seconds)

    def now_s(self) -> float:
        return self._history.now_s()


class _Member:
    """A consumer of one group at one broker. It keeps its messages when its connection is lost."""

    def __init__(self, load: GrpcLoad, machine: str, life: str, group: str, broker: str) -> None:
        self._load = load
        self._machine = machine
        self._group = group
        self._broker = broker
        self._topic = TOPIC_OF[group]
        self._renews = group == PUSH_GROUP
        self._kind = ClientType.PUSH_CONSUMER if self._renews else ClientType.SIMPLE_CONSUMER
        self._life = life
        self._name = f"{life}/{group}"
        self._has: deque[Got] = deque()
        self._attempt = ""
        self._attempts = 0
        self._beat_s = 0.0

    async def consume(self) -> None:
        """Receive messages until the client is closed."""
        load = self._load
        while True:
            try:
                async with load.connected(self._machine, self._name, self._group, self._broker) as client:
                    await client.greet(self._kind, self._topic)
                    self._beat_s = load.now_s()
                    while True:
                        await self._handle(client)
                        await self._receive(client)
            except LostError as error:
                await load.again(self._name, error)

    async def _beat(self, client: Caller) -> None:
        if self._load.now_s() - self._beat_s >= BEAT_S:
            await client.beat(self._kind)
            self._beat_s = self._load.now_s()

    async def _receive(self, client: Caller) -> None:
        await self._beat(client)
        if self._group == FIFO_GROUP and not self._attempt:
            # The same id is used until an answer arrives.
            self._attempts += 1
            self._attempt = f"{self._name}/{self._broker}/{self._attempts}"
        request = client.receive_request(
            self._topic,
            count=8,
            wait_ms=int(WAIT_S * 1000),
            renew=self._renews,
            attempt=self._attempt or None,
        )
        messages = await client.received(request)
        note = partial(self._load.note, self._group, self._name, self._broker, self._attempt)
        self._has.extend(map(note, messages))
        self._attempt = ""

    # -- handling --------------------------------------------------------------------------------------

    async def _handle(self, client: Caller) -> None:
        while self._has:
            several = self._load.dice.randint(1, 3) if self._group == SIMPLE_GROUP else 1
            batch = [self._has[at] for at in range(min(several, len(self._has)))]
            await self._work(client, batch[0])
            one = batch[0]
            if not one.again and fails_first(one.body):
                await self._fail(client, one)
                batch = [one]
            elif self._renews and dies(one.body):
                await self._give_up(client, one)
                batch = [one]
            else:
                batch = [each for each in batch if each is one or each.again or not fails_first(each.body)]
                await self._acknowledge(client, batch)
            for each in batch:
                self._has.remove(each)

    async def _work(self, client: Caller, one: Got) -> None:
        dice = self._load.dice
        if not self._renews or dice.randrange(LONG_ONE_IN):
            await self._load.sleep(dice.choice(PUSH_WORK_S if self._renews else WORK_S))
            return
        end_s = self._load.now_s() + LONG_WORK_S
        while self._load.now_s() < end_s:
            await self._load.sleep(BEAT_S / 2)
            await self._beat(client)

    async def _acknowledge(self, client: Caller, batch: list[Got]) -> None:
        entries = [new(schema.AckMessageEntry, message_id="m", receipt_handle=one.handle) for one in batch]
        request = new(
            schema.AckMessageRequest,
            group=resource(self._group),
            topic=resource(self._topic),
            entries=entries,
        )
        for one in batch:
            self._load.handled(one)
        answer = await client.asked("AckMessage", request, schema.AckMessageResponse)
        for one, entry in zip(batch, answer.entries, strict=True):
            if entry.status.code == Code.OK:
                one.done_s = self._load.now_s()
            elif entry.status.code != Code.INVALID_RECEIPT_HANDLE:
                raise LostError(f"AckMessage: {entry.status.code} {entry.status.message}")

    async def _fail(self, client: Caller, one: Got) -> None:
        """Handle a failure: the client sets the time of the next delivery, or lets the invisible time run
        out.
        """
        if not self._renews and sum(one.body) % 2:
            one.may_come_again(one.popped_s + INVISIBLE_S)
            return
        request = new(
            schema.ChangeInvisibleDurationRequest,
            group=resource(self._group),
            topic=resource(self._topic),
            receipt_handle=one.handle,
            message_id="m",
            invisible_duration=duration(int(RETRY_S * 1000)),
        )
        one.may_come_again(self._load.now_s() + RETRY_S)
        method, form = "ChangeInvisibleDuration", schema.ChangeInvisibleDurationResponse
        answer = await client.asked(method, request, form)
        if answer.status.code not in (Code.OK, Code.INVALID_RECEIPT_HANDLE):
            raise LostError(f"{method}: {answer.status.code} {answer.status.message}")

    async def _give_up(self, client: Caller, one: Got) -> None:
        request = new(
            schema.ForwardMessageToDeadLetterQueueRequest,
            group=resource(self._group),
            topic=resource(self._topic),
            receipt_handle=one.handle,
            message_id="m",
            delivery_attempt=1,
            max_delivery_attempts=1,
        )
        self._load.handled(one)
        method, form = "ForwardMessageToDeadLetterQueue", schema.ForwardMessageToDeadLetterQueueResponse
        answer = await client.asked(method, request, form)
        if answer.status.code != Code.OK:
            raise LostError(f"{method}: {answer.status.message}")
        # with another message the delivery is no longer this client's
        if answer.status.message == Code.OK.name:
            one.done_s = self._load.now_s()
