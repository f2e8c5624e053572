"""The errors that users of clients and tools get, with their facts as attributes.

The errors of single packages (``transport.errors``, ``wire.errors``, ``message.errors``, ``store.errors``,
``spark.errors``, ``ConfigError``) derive from :class:`OrbitError` too, so ``except OrbitError`` catches all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from orbitmq._lazy import lazy

if TYPE_CHECKING:
    from orbitmq.message.errors import MessageFormatError as MessageFormatError
    from orbitmq.transport.errors import ConnectError as ConnectError
    from orbitmq.transport.errors import ConnectionLostError as ConnectionLostError
    from orbitmq.transport.errors import CredentialsError as CredentialsError
    from orbitmq.transport.errors import RequestTimeoutError as RequestTimeoutError
    from orbitmq.transport.errors import TlsError as TlsError
    from orbitmq.transport.errors import TooManyRequestsError as TooManyRequestsError
    from orbitmq.transport.errors import TransportError as TransportError

__all__ = [
    "Attempt",
    "BrokerError",
    "CatalogueEntry",
    "ClientStateError",
    "ConnectError",
    "ConnectionLostError",
    "CredentialsError",
    "MessageFormatError",
    "MessageNotFoundError",
    "NameServerError",
    "NotAllReadError",
    "NotPermittedError",
    "NotStoredSafelyError",
    "OrbitError",
    "ReplyTimeoutError",
    "RequestTimeoutError",
    "SendError",
    "SendErrorKind",
    "StartError",
    "TlsError",
    "TooManyRequestsError",
    "TopicNotFoundError",
    "TransportError",
    "UnknownOptionError",
    "ValidationError",
    "catalogue",
]

# Errors that programs catch and other modules define. Their modules are loaded on first use.
_HOMES = {
    "ConnectError": "orbitmq.transport.errors",
    "ConnectionLostError": "orbitmq.transport.errors",
    "CredentialsError": "orbitmq.transport.errors",
    "MessageFormatError": "orbitmq.message.errors",
    "RequestTimeoutError": "orbitmq.transport.errors",
    "TlsError": "orbitmq.transport.errors",
    "TooManyRequestsError": "orbitmq.transport.errors",
    "TransportError": "orbitmq.transport.errors",
}


class OrbitError(Exception):
    """The base of every error that OrbitMQ raises on purpose. All of them can be copied and pickled."""

    @property
    def help(self) -> str:
        """The advice for this error's ``code``, from the catalogue; empty without a known code."""
        found = catalogue().get(getattr(self, "code", -1))
        return found.help if found is not None else ""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), self.args, dict(self.__dict__))


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """The catalogue's entry for one code.

    Attributes:
        code: the response code, or from 10001 on a code of the client.
        constant: RocketMQ's name for the code.
        text: the meaning of the code.
        help: the advice for users.
    """

    code: int
    constant: str
    text: str
    help: str


@lru_cache(maxsize=1)
def catalogue() -> Mapping[int, CatalogueEntry]:
    """The catalogue of all codes that a client may get, in their order (``errors.toml`` in this package)."""
    import tomllib
    from importlib.resources import files

    data = tomllib.loads(files("orbitmq").joinpath("errors.toml").read_text(encoding="utf-8"))
    return MappingProxyType({entry["code"]: CatalogueEntry(**entry) for entry in data["error"]})


def _rebuilt(kind: type[OrbitError], args: tuple[Any, ...], facts: dict[str, Any]) -> OrbitError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(facts)
    return error


class ValidationError(OrbitError, ValueError):
    """A message, name or option was refused before anything was sent.

    Attributes:
        code: the response code that RocketMQ's client raises for it (13, MESSAGE_ILLEGAL).
    """

    def __init__(self, text: str, code: int = 13) -> None:
        super().__init__(text)
        self.code = code


class UnknownOptionError(ValidationError, TypeError):
    """There is no option of this name; the text names the nearest one."""


class ClientStateError(OrbitError):
    """The client was used before it was started, after it was closed, or inconsistently."""


class BrokerError(OrbitError):
    """A server answered with a response code other than success.

    Attributes:
        code: the response code (ResponseCode).
        remark: the server's text.
        address: ``host:port`` of the server.
    """

    def __init__(self, code: int, remark: str | None, address: str) -> None:
        super().__init__(f"{address} answered code {code}: {remark or 'no remark'}")
        self.code = code
        self.remark = remark or ""
        self.address = address


class NotPermittedError(BrokerError):
    """The client's user may not do this, or the permissions of the topic, group or broker forbid it to all.

    A client whose keys or rights are refused does not try another broker, as rights hold for the cluster.

    Attributes:
        user: the access key of the request; empty without credentials.
        what: the request, with its topic or group; empty if the client itself refused.
    """

    def __init__(
        self,
        text: str,
        *,
        code: int = 16,
        remark: str | None = None,
        address: str = "",
        user: str = "",
        what: str = "",
    ) -> None:
        super().__init__(code, remark, address)
        self.args = (text,)
        self.user = user
        self.what = what


class NameServerError(OrbitError):
    """No name server is configured, or none of them answered.

    Attributes:
        tried: each address, in the order tried, with its failure.
    """

    code = 10004

    def __init__(self, text: str, tried: Sequence[tuple[str, str]] = ()) -> None:
        super().__init__(text)
        self.tried = tuple(tried)


class TopicNotFoundError(OrbitError):
    """No broker has the topic, nor (for senders) would one create it, according to the name servers."""

    code = 10005

    def __init__(self, topic: str, text: str) -> None:
        super().__init__(text)
        self.topic = topic


class MessageNotFoundError(OrbitError):
    """No broker has a message with this id: it never existed, has expired, or its broker is down."""


class ReplyTimeoutError(OrbitError, TimeoutError):
    """A request was stored, but no consumer answered it in time.

    Attributes:
        topic: the topic of the request.
        code: the code that RocketMQ's client gives (10006).
    """

    code = 10006

    def __init__(self, topic: str, text: str) -> None:
        super().__init__(text)
        self.topic = topic


class NotAllReadError(OrbitError):
    """Some brokers did not answer while a topic was read; the messages of the other brokers were read.

    Attributes:
        topic: the topic that was read.
        left_out: by broker, the error because of which messages are missing.
    """

    def __init__(self, topic: str, left_out: Mapping[str, Exception]) -> None:
        missing = "; ".join(f"{broker}: {error}" for broker, error in left_out.items())
        super().__init__(f"messages of topic {topic!r} are missing: {missing}")
        self.topic = topic
        self.left_out = left_out


class NotStoredSafelyError(OrbitError):
    """A half message is stored, but not as safely as the broker promises; its transaction was not begun."""


class StartError(OrbitError):
    """A name server or broker cannot start; the text is one line for the operator."""


class SendErrorKind(Enum):
    """The reasons for which a send can fail."""

    NO_NAME_SERVER = "no name server"
    TOPIC_UNKNOWN = "topic unknown"
    NO_WRITABLE_QUEUE = "no writable queue"
    BROKER_UNREACHABLE = "broker unreachable"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    TOO_MANY_REQUESTS = "too many requests"


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a send.

    Attributes:
        broker_name: the name of the broker group.
        address: the broker's address; empty if it was unknown.
        queue_id: the id of the queue.
        took: how many seconds the attempt took.
        code: the response code, or the client code (10001 connect, 10002 timeout, 10003 no such broker).
        cause: the failure, in words.
    """

    broker_name: str
    address: str
    queue_id: int
    took: float
    code: int
    cause: str

    def __str__(self) -> str:
        place = f"{self.broker_name}[{self.queue_id}] at {self.address or '?'}"
        return f"{place}: {self.cause} ({self.took * 1000:.0f} ms)"


class SendError(OrbitError):
    """A message could not be sent, or its fate is unknown (kind TIMEOUT).

    Attributes:
        kind: the reason, by the last attempt.
        topic: the topic of the message.
        attempts: all attempts in order, with broker, time and cause.
        code: the response code of the last refusal, else the code that RocketMQ's client would give.
        remark: the broker's text in the last refusal, else empty.
        took: how many seconds passed from the call to this error.
    """

    def __init__(
        self,
        kind: SendErrorKind,
        topic: str,
        text: str,
        *,
        attempts: Sequence[Attempt] = (),
        code: int = -1,
        remark: str = "",
        took: float = 0.0,
    ) -> None:
        super().__init__(text)
        self.kind = kind
        self.topic = topic
        self.attempts = tuple(attempts)
        self.code = code
        self.remark = remark
        self.took = took

    @property
    def brokers_tried(self) -> list[str]:
        """The names of the brokers of all attempts, in order, with repetitions."""
        return [attempt.broker_name for attempt in self.attempts]


if not TYPE_CHECKING:  # type checkers would accept every name of a module with __getattr__
    __getattr__, __dir__ = lazy(__name__, _HOMES, __all__)
