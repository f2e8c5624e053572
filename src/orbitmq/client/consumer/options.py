"""The options of consumers and readers.

The options of a client are the parameters of its constructor, and the client's class documents them. These
classes carry no text on the options: editors would show it in place of the client's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TypeAlias

from orbitmq.client.consumer.allocation import Allocation, ByBroker, average
from orbitmq.client.consumer.assignment_watch import QueuesChanged
from orbitmq.client.consumer.delivery import FAILURE_PAUSE_S
from orbitmq.client.consumer.puller import FlowLimits
from orbitmq.client.core.instance import ClientInstance
from orbitmq.client.hooks import ConsumeHook, ConsumeMiddleware
from orbitmq.client.model import ConsumeFrom
from orbitmq.client.ranges import check_kind, check_options
from orbitmq.client.validation import check_offset, check_queue, check_topic
from orbitmq.durations import Duration, datetime, instant_ms
from orbitmq.errors import ValidationError
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.client_tls import Tls
from orbitmq.runtime.seam import Runtime
from orbitmq.wire.signing import CredentialsSource


def checked_start(consume_from: object) -> None:
    """Refuse a start place that is not a :class:`ConsumeFrom`, such as its name as text: a consumer would
    wait for ever.

    Raises:
        ValidationError: ``consume_from`` has another type.
    """
    if not isinstance(consume_from, ConsumeFrom):
        names = ", ".join(f"ConsumeFrom.{place.name}" for place in ConsumeFrom)
        raise ValidationError(f"consume_from must be one of {names}, got {consume_from!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """Options of every kind of consumer."""

    name_servers: str | None = None
    client_id: str | None = None
    consume_from: ConsumeFrom = ConsumeFrom.LAST
    namespace: str = ""
    namespace_v2: str = ""
    credentials: CredentialsSource | None = None
    tls: Tls | None = None
    client: ClientInstance | None = None
    runtime: Runtime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingOptions(MemberOptions):
    """Options of consumers that share the queues with the other members of their group."""

    consume_timestamp: datetime | None = None
    pull_batch_size: int = 32
    limits: FlowLimits | None = None
    max_reconsume_times: int = -1
    allocate: Allocation | ByBroker = average
    consume_timeout: Duration = 900.0
    hooks: Sequence[ConsumeHook] = ()
    trace: bool | str = False
    on_assigned: QueuesChanged | None = None
    on_revoked: QueuesChanged | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions(SharingOptions):
    group: str = field(kw_only=False)
    concurrency: int = 20
    pop_batch_size: int = 32
    pop_invisible_for: Duration = 60.0
    ordered: bool = False
    failure_pause: Duration = FAILURE_PAUSE_S
    broadcast: bool = False
    offsets_folder: str | None = None
    close_timeout: Duration = 10.0
    middleware: Sequence[ConsumeMiddleware] = ()

    def __post_init__(self) -> None:
        checked_start(self.consume_from)
        check_options(self)
        if isinstance(self.trace, str) and self.trace:
            check_topic(self.trace)
        if not isinstance(self.allocate, ByBroker) and not callable(self.allocate):
            raise ValidationError(f"allocate must be a function or ByBroker(), got {self.allocate!r}")
        check_kind("limits", self.limits, FlowLimits | None)
        for name in ("on_assigned", "on_revoked"):
            callback = getattr(self, name)
            if callback is not None and not callable(callback):
                raise ValidationError(f"{name} must be a function of a list of queues, got {callback!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PullConsumerOptions(SharingOptions):
    group: str = field(kw_only=False)
    auto_commit: bool = True

    def __post_init__(self) -> None:
        check_options(self)
        self.as_consumer()  # check the options common with Consumer, too

    def as_consumer(self) -> ConsumerOptions:
        """The same options as those of a push consumer of the group."""
        shared = {each.name: getattr(self, each.name) for each in fields(SharingOptions)}
        return ConsumerOptions(self.group, **shared)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleOptions(MemberOptions):
    group: str = field(kw_only=False)
    invisible_for: Duration = 60.0
    ordered: bool = False
    concurrency: int = 20
    batch_size: int = 16
    renew_for: Duration = 900.0
    close_timeout: Duration = 10.0

    def __post_init__(self) -> None:
        checked_start(self.consume_from)
        if self.consume_from is ConsumeFrom.TIMESTAMP:
            raise ValidationError("a pop begins at the oldest or at the newest message: FIRST or LAST")
        check_options(self)


# Where a reader begins: at the first or last message, at a time, or at the offset of each queue.
ReaderStart: TypeAlias = ConsumeFrom | datetime | Mapping[MessageQueue, int]
# Called with a broker's name and the reason why it does not answer, or None when it answers again.
BrokerChanged: TypeAlias = Callable[[str, Exception | None], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    topic: str = field(kw_only=False)
    start: ReaderStart = ConsumeFrom.FIRST
    tags: str = "*"
    sql: str | None = None
    follow: bool = False
    on_broker: BrokerChanged | None = None
    name_servers: str | None = None
    client_id: str | None = None
    namespace: str = ""
    namespace_v2: str = ""
    credentials: CredentialsSource | None = None
    tls: Tls | None = None
    client: ClientInstance | None = None
    runtime: Runtime | None = None

    def __post_init__(self) -> None:
        check_options(self)
        _check_reader_start(self.start)
        if self.on_broker is not None and not callable(self.on_broker):
            raise ValidationError(
                f"on_broker must be a function of a name and an error, got {self.on_broker!r:.80}"
            )


def _check_reader_start(start: object) -> None:
    if isinstance(start, Mapping):
        if not start:
            raise ValidationError("start names no queue")
        for queue, offset in start.items():
            check_queue(queue)
            check_offset(offset)
    elif isinstance(start, datetime):
        instant_ms("start", start)
    elif start not in (ConsumeFrom.FIRST, ConsumeFrom.LAST):
        raise ValidationError(
            "start must be ConsumeFrom.FIRST, ConsumeFrom.LAST, a datetime with a time zone, or a mapping of "
            f"queues to offsets, got {start!r:.80}"
        )
