"""gRPC clients of a run: a producer, and simple, push and FIFO consumers that note what they get."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from h2.exceptions import ProtocolError
from tests.conversation.grpc_rpc import RpcClient, message, received, resource

from orbitmq.errors import OrbitError
from orbitmq.gateway import receipts, schema
from orbitmq.gateway.messages import duration, new, parse
from orbitmq.gateway.schema import ClientType, MessageType
from orbitmq.gateway.status import Code
from orbitmq.message.model import MessageQueue
from tools.simulation.history import History, Sent
from tools.simulation.lives import CLOSE_LIMIT_S, Lives
from tools.simulation.load import PRODUCERS, dies, fails_first
from tools.simulation.plan import GROUPS
from tools.simulation.site import PORT, Site

if TYPE_CHECKING:
    from random import Random

PLAIN, ORDERED = "plain", "ordered"
SIMPLE_GROUP, PUSH_GROUP, FIFO_GROUP = "simple", "push", "fifo"
TOPIC_OF: Final = {SIMPLE_GROUP: PLAIN, PUSH_GROUP: PLAIN, FIFO_GROUP: ORDERED}
# The shortest invisible time that gRPC clients may ask for.
INVISIBLE_S: Final = 10.0
RETRY_S: Final = 1.0
WAIT_S: Final = 5.0
TIMEOUT_S: Final = 3.0
PAUSE_S: Final = 0.3
BEAT_S: Final = 10.0
# How long consumers work on a message; push consumers on some longer than it is invisible at first.
WORK_S: Final = (0.0, 0.001, 0.02)
PUSH_WORK_S: Final = (0.0, 0.02, 0.5)
LONG_WORK_S, LONG_ONE_IN = 75.0, 200


class LostError(OrbitError):
    """A call has no answer, or another one than it should."""


@dataclass(slots=True)
class Got:
    """One delivery of a message.

    Attributes:
        member: life and group of the consumer.
        popped_s: when its broker gave it out.
        attempt: of the receive, which was repeated under it when its answer was lost; empty: it had none.
        again: it was delivered before.
        freed_s: from when on it may come again by what its client said; None: it said nothing.
        done_s: when the broker said that it is done.
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
        """Note what the client says first: to repeat a request whose answer was lost changes nothing."""
        if self.freed_s is None:
            self.freed_s = at_s


@dataclass
class Record:
    """What gRPC consumers got, and when each life of them ended."""

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
        """The answer of a call, whatever its status code."""
        return parse(form, (await self._called(method, request, TIMEOUT_S))[0])

    async def received(self, request: schema.ReceiveMessageRequest) -> list[schema.Message]:
        answer = received(await self._called("ReceiveMessage", request, WAIT_S + TIMEOUT_S))
        if answer.code not in (Code.OK, Code.MESSAGE_NOT_FOUND):
            raise LostError(f"ReceiveMessage: {answer.code} {answer.text}")
        return answer.messages

    async def greet(self, kind: int, topic: str) -> None:
        """Send the settings on a new Telemetry stream, and wait for the broker's."""
        try:
            async with asyncio.timeout(TIMEOUT_S):
                stream = self.telemetry()
                await stream.send(self.settings(kind, [topic]))
                answer = await stream.next(TIMEOUT_S)
        except (TimeoutError, ProtocolError, OSError, AssertionError) as error:
            raise LostError(f"Telemetry: {error!r}") from error
        if answer.status.code != Code.OK:
            raise LostError(f"Telemetry: {answer.status.message}")


class GrpcLoad(Lives):
    """All gRPC clients of a run; each has a connection to each broker."""

    def __init__(self, site: Site, history: History, record: Record, dice: Random) -> None:
        super().__init__(site, history)
        self._record = record
        self._dice = dice
        self._number = 0
        self._stopped = False
        self._sending: list[asyncio.Task[None]] = []

    def _work_of(self, machine: str, life: str) -> Coroutine[Any, Any, None]:
        return self._live(machine, life)

    def kill(self, machine: str) -> bool:
        self._note_end(machine)
        return super().kill(machine)

    def _note_end(self, machine: str) -> None:
        life = self._current.get(machine)
        if life is not None:
            self._record.ended.setdefault(f"{machine}/{life}", self._history.now_s())

    async def stop(self) -> None:
        """No producer sends anything more; returns when what is on its way is answered."""
        self._stopped = True
        if self._sending:
            await asyncio.wait(self._sending, timeout=CLOSE_LIMIT_S)

    async def _live(self, machine: str, life: str) -> None:
        async with asyncio.TaskGroup() as tasks:
            for broker in GROUPS:
                if machine == PRODUCERS:
                    self._sending = [task for task in self._sending if not task.done()]
                    self._sending.append(tasks.create_task(self._produce(machine, life, broker)))
                    continue
                for group in TOPIC_OF:
                    member = _Member(self, machine, life, group, broker)
                    tasks.create_task(member.consume())

    @asynccontextmanager
    async def connected(self, machine: str, client_id: str, group: str, broker: str) -> AsyncIterator[Caller]:
        """A connection to a broker; a client that is closed says goodbye on it."""
        host = self._site.machines[broker].host
        runtime = self._site.machines[machine].runtime
        client = Caller(runtime, client_id=client_id, group=group, host=host, port=PORT)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await client.__aenter__()
        except (TimeoutError, OSError) as error:
            raise LostError(f"no connection to {broker}: {error!r}") from error
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

    async def again(self, client_id: str, error: OrbitError) -> None:
        """Note what went wrong, and wait before another connection."""
        self._history.note(client_id, str(error).splitlines()[0][:160])
        await self._site.clock.sleep(PAUSE_S)

    # -- the producer ----------------------------------------------------------------------------------

    async def _produce(self, machine: str, life: str, broker: str) -> None:
        while not self._stopped:
            try:
                async with self.connected(machine, life, "", broker) as client:
                    await client.greet(ClientType.PRODUCER, PLAIN)
                    while not self._stopped:
                        await self._send(client, broker)
                        await self._site.clock.sleep(self._dice.uniform(0.02, 0.2))
            except LostError as error:
                await self.again(life, error)

    async def _send(self, client: Caller, broker: str) -> None:
        self._number += 1
        key = str(self._dice.randrange(3)) if self._dice.random() < 0.5 else ""
        topic = ORDERED if key else PLAIN
        body = f"{topic}-{self._number}".encode()
        kind = MessageType.FIFO if key else MessageType.NORMAL
        system: dict[str, Any] = {"message_type": kind}
        if key:
            system["message_group"] = key
        sent = self._history.send(Sent(body, topic, topic, self._history.now_s(), key=key))
        one = message(body, topic=topic, id=f"01{self._number:030}", **system)
        request = new(schema.SendMessageRequest, messages=[one])
        answer = await client.asked("SendMessage", request, schema.SendMessageResponse)
        if answer.status.code == Code.OK:
            sent.acked_s, sent.queue = self._history.now_s(), MessageQueue(topic, broker, -1)
        else:
            self._history.note("producer", f"{body.decode()}: {answer.status.message[:160]}")

    # -- for members -----------------------------------------------------------------------------------

    def note(self, group: str, member: str, broker: str, attempt: str, one: schema.Message) -> Got:
        """Note a delivery."""
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
        """A message is handled: what its client tells of that counts, whether it is answered or not."""
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
    """A consumer of one group at one broker. What it has it goes on with when its connection is lost."""

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
        """Take messages until the client is closed."""
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
            request = new(schema.HeartbeatRequest, group=resource(self._group), client_type=self._kind)
            await client.asked("Heartbeat", request, schema.HeartbeatResponse)
            self._beat_s = self._load.now_s()

    async def _receive(self, client: Caller) -> None:
        await self._beat(client)
        if self._group == FIFO_GROUP and not self._attempt:
            # Used again until an answer comes.
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
        """A message fails: its client says when it is to come again, or lets its time run out."""
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
        if answer.status.message == Code.OK.name:  # else it is not this client's any more
            one.done_s = self._load.now_s()
