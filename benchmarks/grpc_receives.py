"""Push consumers over gRPC: each receives up to 32 messages and acknowledges them one by one.

The consumers are the same program for both systems (:mod:`benchmarks.grpc_wire`), with one connection each in
one process. A consumer sends all acknowledgements of a receive at once, and receives again when all are
answered. The topic is filled before a run; the run ends when each message is acknowledged.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks.grpc_wire import Run, Wire, send_request
from benchmarks.servers import Server, ServerError

from orbitmq.gateway import schema
from orbitmq.gateway.messages import duration, new, parse
from orbitmq.gateway.schema import ClientType, FilterType
from orbitmq.gateway.status import Code

CONSUMERS = 16
BATCH = 32
BODY_BYTES = 128
# Sends in flight while the topic is filled.
FILLING = 256
# The shortest polling time that Apache's proxy accepts by default.
POLL_MS = 2000
LIMIT_S = 300
GROUP = "grpc-consumers"


class Consumer:
    """One push consumer.

    Attributes:
        goes_on: whether the consumer receives again when all messages are acknowledged.
        took_us: for each acknowledgement, the time from its call to its answer.
    """

    def __init__(self, wire: Wire, topic: str, group: str) -> None:
        self.wire = wire
        self.took_us: list[float] = []
        self._topic, self._group = new(schema.Resource, name=topic), new(schema.Resource, name=group)
        expression = new(schema.FilterExpression, type=FilterType.TAG, expression="*")
        entry = new(schema.SubscriptionEntry, topic=self._topic, expression=expression)
        subscription = new(schema.Subscription, group=self._group, subscriptions=[entry])
        settings = new(schema.Settings, client_type=ClientType.PUSH_CONSUMER, subscription=subscription)
        command = new(schema.TelemetryCommand, settings=settings)
        stream = wire.begin("Telemetry", command.SerializeToString(), end=False)
        wire.flush()
        wire.first(stream)
        self._request = new(
            schema.ReceiveMessageRequest,
            group=self._group,
            message_queue=new(schema.MessageQueue, topic=self._topic),
            filter_expression=expression,
            batch_size=BATCH,
            auto_renew=True,
            long_polling_timeout=duration(POLL_MS),
        ).SerializeToString()
        self._receiving = 0
        self._begun: dict[int, float] = {}
        self.goes_on = False

    @property
    def busy(self) -> bool:
        """Whether calls are in flight."""
        return bool(self._receiving or self._begun)

    def receive(self) -> None:
        """Begin to receive."""
        self._receiving = self.wire.begin("ReceiveMessage", self._request)
        self.wire.flush()

    def turn(self) -> int:
        """Read the arrived answers and continue; returns the number of answered acknowledgements.

        Raises:
            ServerError: an acknowledgement was refused.
        """
        self.wire.receive()
        answered, now = 0, time.perf_counter()
        for stream, found in self.wire.done():
            if stream not in self._begun and stream != self._receiving:
                raise ServerError(f"the Telemetry stream has ended: {found}")
            if stream == self._receiving:
                self._receiving = 0
                self._acknowledge([parse(schema.ReceiveMessageResponse, data) for data in found], now)
                continue
            answer = parse(schema.AckMessageResponse, found[0] if found else b"")
            if answer.status.code != Code.OK:
                raise ServerError(f"an acknowledgement is refused: {answer.status}")
            self.took_us.append((now - self._begun.pop(stream)) * 1e6)
            answered += 1
        if self.goes_on and not self.busy:
            self.receive()
        return answered

    def _acknowledge(self, answers: Sequence[schema.ReceiveMessageResponse], now: float) -> None:
        for answer in answers:
            system = answer.message.system_properties
            if not system.receipt_handle:
                continue
            entry = new(
                schema.AckMessageEntry, message_id=system.message_id, receipt_handle=system.receipt_handle
            )
            request = new(schema.AckMessageRequest, group=self._group, topic=self._topic, entries=[entry])
            self._begun[self.wire.begin("AckMessage", request.SerializeToString())] = now
        self.wire.flush()


class Consumers:
    """All consumers of one system, used for all runs."""

    def __init__(self, port: int, topic: str, stack: ExitStack, *, group: str = GROUP) -> None:
        # Each run has new client ids: a server may not know yet that the clients of the last run are gone.
        run = time.monotonic_ns()
        self._all = [
            Consumer(stack.enter_context(Wire(port, f"consumer-{run}-{number}")), topic, group)
            for number in range(CONSUMERS)
        ]
        self._selector = stack.enter_context(selectors.DefaultSelector())
        for consumer in self._all:
            self._selector.register(consumer.wire, selectors.EVENT_READ, consumer)
            # From here on, the group begins at the end of each queue.
            consumer.receive()
        self._rest()

    def _rest(self) -> None:
        """Wait until no call is in flight."""
        for consumer in self._all:
            consumer.goes_on = False
        until = time.monotonic() + LIMIT_S
        while any(consumer.busy for consumer in self._all):
            self._turn()
            if time.monotonic() > until:
                raise ServerError(f"receives are not answered within {LIMIT_S} s")

    def _turn(self, timeout_s: float = 0.1) -> int:
        ready = self._selector.select(timeout_s)
        return sum(key.data.turn() for key, _ in ready)

    def run(self, server: Server, count: int) -> Run:
        """Receive and acknowledge this many stored messages.

        Raises:
            ServerError: they do not arrive in time.
        """
        for consumer in self._all:
            consumer.took_us.clear()
            consumer.goes_on = True
            consumer.receive()
        begun, seen, cpu_s = time.perf_counter(), 0, server.cpu_s()
        while seen < count:
            seen += self._turn()
            if time.perf_counter() - begun > LIMIT_S:
                raise ServerError(f"{seen} of {count} messages within {LIMIT_S} s")
        took_s = time.perf_counter() - begun
        cpu_s = server.cpu_s() - cpu_s
        self._rest()
        took_us = sorted(each for consumer in self._all for each in consumer.took_us)
        return Run(count / took_s, cpu_s / count * 1e6, took_us[count // 2], took_us[count * 99 // 100])


def fill(port: int, topic: str, count: int) -> None:
    """Send this many messages.

    Raises:
        ServerError: a message is refused.
    """
    data = send_request(topic, BODY_BYTES)
    begun = done = 0
    with Wire(port, "filler") as wire:
        while done < count:
            while begun < count and begun - done < FILLING:
                wire.begin("SendMessage", data)
                begun += 1
            wire.flush()
            wire.receive()
            for _, found in wire.done():
                done += 1
                answer = parse(schema.SendMessageResponse, found[0] if found else b"")
                if answer.status.code != Code.OK:
                    raise ServerError(f"a message is refused: {answer.status}")
