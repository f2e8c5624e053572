"""One gRPC client as a peer of the broker: it is asked on its Telemetry streams."""

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

# Clients send a heartbeat every 10 s, and open a new Telemetry stream 1 s after theirs ended.
SILENT_MS: Final = 40_000
WITHOUT_STREAM_MS: Final = 10_000
# The most topics that are noted of a producer.
MAX_TOPICS: Final = 1000
CONSUMERS: Final[Mapping[int, ConsumeType]] = {
    ClientType.PUSH_CONSUMER: ConsumeType.CONSUME_PASSIVELY,
    ClientType.SIMPLE_CONSUMER: ConsumeType.CONSUME_ACTIVELY,
}
# The most questions of operators that one client may have open.
MAX_QUESTIONS: Final = 100


class TelemetryStream(Protocol):
    """A Telemetry stream, as far as its client is concerned."""

    def answer(self, command: schema.TelemetryCommand) -> bool:
        """Send a command before the questions that wait; False when there is no room for it."""
        ...

    def ask(self, command: schema.TelemetryCommand) -> bool:
        """Send a question to the client; False when the stream does not take it."""
        ...

    def close(self) -> None:
        """End the stream when the commands of :meth:`answer` are sent."""
        ...


class GrpcPeer:
    """One gRPC client as a peer of the broker (``registry.Peer``).

    Attributes:
        caller: its first call, with the address of its last one.
        kind: a ``ClientType``; unspecified until the client has said it.
        group: of a consumer.
        topics: that a producer sends to, in the order in which it named them; None: none.
        wanted: what a consumer subscribes to; None until the client has said it.
        wanted_ms: when it said that.
        streams: its Telemetry streams.
        lost_ms: since when there is no stream; None: there is one, or there never was one.
        since_ms: when the client called first.
        seen_ms: when it called last.
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
        # The nonce of the last command that has one.
        self._nonce = 0
        # The questions of operators that are not answered yet, by nonce; None: there are none.
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
        """The version of the client's library, as the client says."""
        return self.caller.version

    @property
    def user(self) -> str:
        """The user who signed its first call; empty: the call had no signature."""
        return self.caller.user

    def shared(self, caller: Caller) -> Caller:
        """The client as one of its calls names it: the calls that wait keep one object, if they can."""
        return self.caller if self.caller == caller else caller

    def calls_from(self, address: str) -> None:
        """Note the address of its last call."""
        if self.caller.address != address:
            self.caller = replace(self.caller, address=address)

    @property
    def subscriptions(self) -> list[SubscriptionData]:
        """What a consumer subscribes to, as heartbeats of the remoting protocol have it."""
        return [subscription(each, self.wanted_ms) for each in self.wanted or ()]

    # -- as a peer -------------------------------------------------------------------------------------

    def oneway(self, command: Command) -> None:
        """Send a question about a transaction; notices are dropped, as gRPC clients need none.

        Raises:
            TransportError: the client has no Telemetry stream that takes the question.
        """
        asked = question(command, self._broker)
        if asked is not None:
            self._put(asked)

    async def request(self, command: Command, timeout_ms: int) -> Command:
        """The client's answer to CONSUME_MESSAGE_DIRECTLY or GET_CONSUMER_RUNNING_INFO.

        Raises:
            TransportError: the client cannot answer such a request (known at once), or does not in time.
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
        # The newest stream first: the client may have come back on it.
        if not any(stream.ask(asked) for stream in reversed(self.streams)):
            raise TransportError(
                f"gRPC client {self.client_id} has no Telemetry stream for a question", self.remote_address
            )

    def answered(self, answer: schema.TelemetryCommand) -> None:
        """The client answers a question; an answer that is late, or to no question, is dropped."""
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
        """Tell a client that understands it to make a new connection, then end its streams."""
        told = abilities.reconnects(self.language, self.version)
        for stream in self.streams:
            if told:
                command = new(schema.ReconnectEndpointsCommand, nonce=self._next_nonce())
                stream.answer(new(schema.TelemetryCommand, reconnect_endpoints_command=command))
            stream.close()

    def sends_to(self, topic: str) -> None:
        """Note a topic that a producer sends to; beyond the limit the oldest is forgotten."""
        self.topics = self.topics or {}
        self.topics[topic] = None
        if len(self.topics) > MAX_TOPICS:
            del self.topics[next(iter(self.topics))]

    def is_gone(self, now_ms: int) -> bool:
        """Whether the client counts as gone: its stream ended, or it has sent nothing, for too long."""
        lost = self.lost_ms
        if lost is not None and now_ms - lost >= WITHOUT_STREAM_MS:
            return True
        return now_ms - self.seen_ms >= SILENT_MS
