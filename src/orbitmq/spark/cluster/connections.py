"""The connections of one Spark process: kept between calls, and opened again if the server closed them."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from orbitmq.runtime.seam import Buffer
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.errors import UnreachableError
from orbitmq.transport.blocking import BlockingConnection
from orbitmq.transport.errors import ConnectionLostError, TransportError
from orbitmq.transport.identity import NOBODY, Identity
from orbitmq.wire.command import Command
from orbitmq.wire.connection import Allocate
from orbitmq.wire.refusals import error_of, refuses_user

# Most requests that are sent together; their answers are in memory at the same time.
MAX_PIPELINE = 256
# Workers live long and a topic has few brokers; more connections than this are a leak.
MAX_CONNECTIONS = 64

# Idle connections, the longest idle first. The key contains the process id, since Spark forks: a child must
# not use its parent's connections.
_idle: dict[tuple[int, str, Identity], BlockingConnection] = {}


def ask(
    address: str,
    commands: Sequence[Command],
    timeout_ms: int,
    *,
    identity: Identity = NOBODY,
    repeatable: bool = True,
) -> list[Command]:
    """The answers to ``commands``, in their order and with any response code. The commands are sent together.

    A server closes connections that were idle for long (120 s in RocketMQ), which the client notices only
    when the next request is lost: therefore a kept connection that breaks is replaced once.

    Args:
        timeout_ms: time limit of the connect, and of the answers to each group of requests.
        identity: keys and TLS; connections are kept separately for each identity.
        repeatable: whether the server may get the requests twice. If not, a broken connection is an error.

    Raises:
        UnreachableError: at least one command got no answer; the connection is given up.
        NotPermittedError: the server refuses the keys or the rights of this identity.
    """
    kept = _kept(address, identity)
    if kept is not None:
        try:
            return _exchange(kept, commands, timeout_ms)
        except ConnectionLostError as error:
            if not repeatable:
                raise UnreachableError(str(error)) from error
        except TransportError as error:
            raise UnreachableError(str(error)) from error
    try:
        connection = BlockingConnection(address, timeout_ms=timeout_ms, identity=identity)
        return _exchange(connection, commands, timeout_ms)
    except TransportError as error:
        raise UnreachableError(str(error)) from error


def _exchange(connection: BlockingConnection, commands: Sequence[Command], timeout_ms: int) -> list[Command]:
    answers: list[Command] = []
    try:
        for first in range(0, len(commands), MAX_PIPELINE):
            answers += connection.request_many(list(commands[first : first + MAX_PIPELINE]), timeout_ms)
    except TransportError:
        connection.close()
        raise
    _keep(connection)
    for command, answer in zip(commands, answers, strict=True):
        if refuses_user(answer.code, answer.remark):
            raise error_of(command, answer, connection.address)
    return answers


class Conversation:
    """Pipelined requests to one server: new requests are sent while answers to earlier ones arrive.

    The connection is exclusive to this object until :meth:`close`.

    Args:
        timeout_ms: time limit of the connect, and of each answer.
        allocate: allocates memory for a long answer; its content may be undefined.
        identity: keys and TLS of the requests.

    Raises:
        UnreachableError: no connection. The methods raise it, too; afterwards only :meth:`close` may be
            called.
    """

    def __init__(
        self, address: str, timeout_ms: int, allocate: Allocate = bytearray, identity: Identity = NOBODY
    ) -> None:
        self._address = address
        self._timeout_s = timeout_ms / 1000
        self._clock = this_worker().clock
        self._arrived: deque[tuple[int, Command]] = deque()
        self._bodies: dict[int, memoryview] = {}
        self._on_their_way = 0
        try:
            self._connection = _kept(address, identity) or BlockingConnection(
                address, timeout_ms=timeout_ms, identity=identity, allocate=allocate
            )
        except TransportError as error:
            raise UnreachableError(str(error)) from error

    def send(self, commands: Sequence[Command]) -> list[int]:
        """Send requests without waiting for the answers; returns the numbers that the answers will have."""
        numbers = [self._connection.submit(command) for command in commands]
        self._on_their_way += len(numbers)
        self._turn(0.0)
        return numbers

    def receive(self) -> tuple[int, Command, Buffer]:
        """The number of the next answer, the answer with any response code, and its body.

        Answers may arrive in another order than the requests were sent.
        """
        end = self._clock.monotonic() + self._timeout_s
        while not self._arrived:
            left = end - self._clock.monotonic()
            if left <= 0:
                self._connection.close()
                missing = f"{self._on_their_way} answers missing after {self._timeout_s:g} s"
                raise UnreachableError(f"{self._address}: {missing}")
            self._turn(left)
        self._on_their_way -= 1
        number, answer = self._arrived.popleft()
        return number, answer, self._bodies.pop(number, answer.body)

    def _turn(self, timeout_s: float) -> None:
        try:
            self._arrived += self._connection.poll(timeout_s, self._bodies).items()
        except TransportError as error:
            self._connection.close()
            raise UnreachableError(str(error)) from error

    def close(self) -> None:
        """Keep the connection for the next call of this process, or close it if answers are still pending."""
        if self._on_their_way:
            self._connection.close()
        elif not self._connection.closed:
            _keep(self._connection)


def _kept(address: str, identity: Identity) -> BlockingConnection | None:
    """The identity's idle connection to ``address``, if there is one that the server has not closed."""
    kept = _idle.pop((this_worker().host.pid, address, identity), None)
    return kept if kept is not None and kept.usable else None


def _keep(connection: BlockingConnection) -> None:
    key = this_worker().host.pid, connection.address, connection.identity
    other = _idle.pop(key, None)
    if other is not None:
        other.close()
    while len(_idle) >= MAX_CONNECTIONS:
        _idle.pop(next(iter(_idle))).close()
    _idle[key] = connection


def close_connections() -> None:
    """Close every idle connection of this process."""
    for key in [key for key in _idle if key[0] == this_worker().host.pid]:
        _idle.pop(key).close()
