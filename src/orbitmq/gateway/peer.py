"""One gRPC client as a peer of the broker, which sends it commands on its Telemetry streams."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from orbitmq.gateway import abilities, questions, schema
from orbitmq.gateway.caller import Caller
from orbitmq.gateway.check_backs import question
from orbitmq.gateway.messages import new
from orbitmq.gateway.schema import ClientType
from orbitmq.gateway.subscriptions import Wanted, subscription
from orbitmq.message.errors import MessageFormatError
from orbitmq.runtime.seam import Clock
from orbitmq.transport.errors import ConnectionLostError, RequestTimeoutError, TransportError
from orbitmq.wire.bodies.client import ConsumerRunningInfo, ConsumeType, SubscriptionData
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command, Language
from orbitmq.wire.headers.client import GetConsumerRunningInfoRequest

# A client counts as gone when it makes no call, or has no Telemetry stream, for these times. Clients send a
# heartbeat every 10 s, and open a new stream 1 s after the old one ended.
SILENT_MS: Final = 40_000
WITHOUT_STREAM_MS: Final = 10_000
# The most topics that are kept of a producer.
MAX_TOPICS: Final = 1000
CONSUMERS: Final[Mapping[int, ConsumeType]] = {
    ClientType.PUSH_CONSUMER: ConsumeType.CONSUME_PASSIVELY,
    ClientType.SIMPLE_CONSUMER: ConsumeType.CONSUME_ACTIVELY,
}
# The most questions of operators that one client may have open.
MAX_QUESTIONS: Final = 100


class TelemetryStream(Protocol):
    """The part of a Telemetry stream that its :class:`GrpcPeer` uses."""

    def answer(self, command: schema.TelemetryCommand) -> bool:
        """Send a command ahead of the waiting questions; False when there is no room for it."""
        ...

    def ask(self, command: schema.TelemetryCommand) -> bool:
        """Send a question to the client; returns False if the stream does not take it."""
        ...

    def close(self) -> None:
        """End the stream when the commands of :meth:`answer` have been sent."""
        ...


class GrpcPeer:
    """One gRPC client as a peer of the broker (``registry.Peer``).

    Attributes:
        caller: the client as in its first call, with the address of its last call.
        kind: a ``ClientType``; UNSPECIFIED until the client has named it.
        group: a consumer's group.
        topics: the topics that a producer sends to, in the order in which it named them; None without any.
        wanted: a consumer's subscriptions; None until it has sent its settings.
        wanted_ms: when the consumer sent them.
        streams: the client's Telemetry streams.
        lost_ms: when the last stream ended; None while there is a stream, or if there never was one.
        since_ms: when the client called first.
        seen_ms: when the client called last.
    """

    __slots__ = (
        "_broker",
        "_clock",
        "_nonce",
        "_open",
        "caller",
        "group",
        "kind",
        "lost_ms",
        "on_close",
        "seen_ms",
        "since_ms",
        "streams",
        "topics",
        "wanted",
        "wanted_ms",
    )

    def __init__(
        self, caller: Caller, clock: Clock, on_close: Callable[[GrpcPeer], None], broker: str
    ) -> None:
        self._broker = broker
        self._clock = clock
        # The last nonce given to a command.
        self._nonce = 0
        # The unanswered questions of operators, by nonce; None without any.
        self._open: dict[str, asyncio.Future[schema.TelemetryCommand]] | None = None
        self.caller = caller if caller.authorization is None else replace(caller, authorization=None)
        self.kind: int = ClientType.UNSPECIFIED
        self.group = ""
        self.topics: dict[str, None] | None = None
        self.wanted: tuple[Wanted, ...] | None = None
        self.wanted_ms = 0
        self.streams: tuple[TelemetryStream, ...] = ()
        self.lost_ms: int | None = None
        self.since_ms = self.seen_ms = clock.now_ms()
        self.on_close = on_close

    @property
    def client_id(self) -> str:
        return self.caller.client_id

    @property
    def remote_address(self) -> str:
        return self.caller.address

    @property
    def language(self) -> Language:
        return self.caller.language

    @property
    def version(self) -> str:
        """The version of the client's library, from its first call."""
        return self.caller.version

    @property
    def user(self) -> str:
        """The user of the client's first call; empty if that call had neither keys nor a certificate."""
        return self.caller.user

    def shared(self, caller: Caller) -> Caller:
        """``self.caller`` if it equals the call's caller: so a client's waiting calls share one object."""
        return self.caller if self.caller == caller else caller

    def calls_from(self, address: str) -> None:
        """Note the address of the client's last call."""
        if self.caller.address != address:
            self.caller = replace(self.caller, address=address)

    @property
    def subscriptions(self) -> list[SubscriptionData]:
        """A consumer's subscriptions, in the form of the remoting protocol's heartbeats."""
        return [subscription(each, self.wanted_ms) for each in self.wanted or ()]

    # -- as a peer -------------------------------------------------------------------------------------

    def oneway(self, command: Command) -> None:
        """Send a transaction check to the client; other commands are dropped, as gRPC clients need none.

        Raises:
            TransportError: the client has no Telemetry stream that takes the command.
        """
        asked = question(command, self._broker)
        if asked is not None:
            self._put(asked)

    async def request(self, command: Command, timeout_ms: int) -> Command:
        """The client's answer to CONSUME_MESSAGE_DIRECTLY or GET_CONSUMER_RUNNING_INFO.

        Raises:
            TransportError: clients of its kind cannot answer such a request, or no answer comes in time.
        """
        reason = questions.refusal(command.code, self.language, self.kind)
        if reason:
            raise TransportError(f"gRPC client {self.client_id}: {reason}", self.remote_address)
        begun = self._clock.monotonic()
        answer = await self._asked(command, timeout_ms)
        reason = questions.unable(answer)
        if reason:
            raise TransportError(f"gRPC client {self.client_id}: {reason}", self.remote_address)
        if command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            took_ms = int((self._clock.monotonic() - begun) * 1000)
            return command.reply(body=questions.consumed(answer, took_ms))
        wanted = GetConsumerRunningInfoRequest.from_ext(command.ext).jstack_enable
        return command.reply(body=self._running_info(questions.dump(answer) if wanted else None))

    def close(self) -> None:
        """Forget the client."""
        self.on_close(self)

    # -- questions -------------------------------------------------------------------------------------

    async def _asked(self, command: Command, timeout_ms: int) -> schema.TelemetryCommand:
        self._open = self._open if self._open is not None else {}
        if len(self._open) >= MAX_QUESTIONS:
            text = f"gRPC client {self.client_id} has {MAX_QUESTIONS} questions to answer, the limit"
            raise TransportError(text, self.remote_address)
        nonce = self._next_nonce()
        try:
            asked = questions.question(command, nonce)
        except MessageFormatError as error:
            raise TransportError(f"the message cannot be given to a client: {error}") from error
        answer: asyncio.Future[schema.TelemetryCommand] = asyncio.get_running_loop().create_future()
        self._open[nonce] = answer
        try:
            self._put(asked)
            async with asyncio.timeout(timeout_ms / 1000):
                return await answer
        except TimeoutError as error:
            text = f"gRPC client {self.client_id} does not answer within {timeout_ms} ms"
            raise RequestTimeoutError(text, self.remote_address) from error
        finally:
            del self._open[nonce]

    def _next_nonce(self) -> str:
        self._nonce += 1
        return str(self._nonce)

    def _put(self, asked: schema.TelemetryCommand) -> None:
        # The newest stream first: the client may have reconnected while an old stream seems open.
        if not any(stream.ask(asked) for stream in reversed(self.streams)):
            raise TransportError(
                f"gRPC client {self.client_id} has no Telemetry stream for a question", self.remote_address
            )

    def answered(self, answer: schema.TelemetryCommand) -> None:
        """Handle the client's answer to a question; an answer that is late, or to no question, is dropped."""
        waiting = (self._open or {}).get(questions.nonce_of(answer))
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def give_up_questions(self) -> None:
        """Fail the open questions: the client has no Telemetry stream any more."""
        for waiting in (self._open or {}).values():
            if not waiting.done():
                text = f"the Telemetry stream of gRPC client {self.client_id} has ended"
                waiting.set_exception(ConnectionLostError(text, self.remote_address))

    def _running_info(self, jstack: str | None) -> bytes:
        return ConsumerRunningInfo(
            properties={
                "PROP_CONSUME_TYPE": CONSUMERS.get(self.kind, ConsumeType.CONSUME_PASSIVELY).value,
                "PROP_CLIENT_VERSION": self.version,
                "PROP_CONSUMER_START_TIMESTAMP": str(self.since_ms),
            },
            subscription_set=self.subscriptions,
            jstack=jstack,
        ).encode(java_keys=True)

    # -- life ------------------------------------------------------------------------------------------

    def send_away(self) -> None:
        """Send ReconnectEndpointsCommand to a client that carries it out, then end the client's streams."""
        told = abilities.reconnects(self.language, self.version)
        for stream in self.streams:
            if told:
                command = new(schema.ReconnectEndpointsCommand, nonce=self._next_nonce())
                stream.answer(new(schema.TelemetryCommand, reconnect_endpoints_command=command))
            stream.close()

    def sends_to(self, topic: str) -> None:
        """Note a topic that the producer sends to; beyond :data:`MAX_TOPICS` the oldest is forgotten."""
        self.topics = self.topics or {}
        self.topics[topic] = None
        if len(self.topics) > MAX_TOPICS:
            del self.topics[next(iter(self.topics))]

    def is_gone(self, now_ms: int) -> bool:
        """Whether the client counts as gone: for too long it has had no stream, or made no call."""
        lost = self.lost_ms
        if lost is not None and now_ms - lost >= WITHOUT_STREAM_MS:
            return True
        return now_ms - self.seen_ms >= SILENT_MS
