"""The options of producers and of one send.

The options of a client are the parameters of its constructor, and the client's class documents them. These
classes carry no text on the options: editors would show it in place of the client's.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import msgspec

from orbitmq.client.core.instance import DEFAULT_TOPIC_QUEUES, ClientInstance
from orbitmq.client.hooks import SendHook, SendMiddleware
from orbitmq.client.producer.batching import AutoBatch
from orbitmq.client.producer.faults import PROFILES
from orbitmq.client.producer.queue_choice import Selector
from orbitmq.client.ranges import check_kind, check_number, check_options
from orbitmq.client.validation import MAX_MESSAGE_BYTES, check_topic
from orbitmq.durations import Duration, milliseconds
from orbitmq.errors import ValidationError
from orbitmq.message.compression import compress
from orbitmq.message.errors import CompressionError
from orbitmq.message.model import MessageQueue
from orbitmq.message.sysflag import CompressionType
from orbitmq.runtime.client_tls import Tls
from orbitmq.runtime.seam import Runtime
from orbitmq.transport.client import MAX_IN_FLIGHT
from orbitmq.wire.signing import CredentialsSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    group: str = field(kw_only=False)
    name_servers: str | None = None
    client_id: str | None = None
    timeout: Duration = 3.0
    attempt_timeout: Duration | None = None
    retries: int = 2
    async_retries: int = 2
    retry_codes: Collection[int] = ()
    retry_not_stored_ok: bool = False
    max_message_bytes: int = MAX_MESSAGE_BYTES
    compress_from_bytes: int = 4096
    compression: CompressionType = CompressionType.ZLIB
    compression_level: int = 5
    send_latency_fault_enable: bool = False
    fault_profile: str = "4.x"
    start_detector_enable: bool = False
    auto_batch: AutoBatch | None = None
    hooks: Sequence[SendHook] = ()
    middleware: Sequence[SendMiddleware] = ()
    trace: bool | str = False
    namespace: str = ""
    namespace_v2: str = ""
    credentials: CredentialsSource | None = None
    tls: Tls | None = None
    max_in_flight: int | None = None
    max_in_flight_bytes: int = 100 * 1024 * 1024
    max_async: int = MAX_IN_FLIGHT
    callback_threads: int = 0
    default_topic_queues: int = DEFAULT_TOPIC_QUEUES
    client: ClientInstance | None = None
    runtime: Runtime | None = None

    def __post_init__(self) -> None:
        if self.fault_profile not in PROFILES:
            raise ValidationError(
                f"fault_profile must be one of {sorted(PROFILES)}, got {self.fault_profile!r}"
            )
        check_options(self)
        for code in self.retry_codes:
            check_number("retry_codes", code, called="a code of retry_codes")
        check_kind("compression", self.compression, CompressionType)
        level = f"compression_level of {self.compression.name}"
        check_number(level, self.compression_level)
        try:
            compress(b"", self.compression, self.compression_level)
        except CompressionError as error:
            raise ValidationError(f"compression: {error}") from error
        if isinstance(self.trace, str) and self.trace:
            check_topic(self.trace)
        check_kind("auto_batch", self.auto_batch, AutoBatch | None)


class SendOptions(msgspec.Struct, frozen=True):
    """Options of one send; see :meth:`~orbitmq.client.producer.producer.Producer.send`.

    Attributes:
        timeout_ms: for this send, None for the producer's timeout.
        submitted: the send was made by ``submit``: ``async_retries`` counts, not ``retries`` (AS-12).
    """

    queue: MessageQueue | None = None
    ordering_key: object | None = None
    selector: Selector | None = None
    timeout_ms: int | None = None
    submitted: bool = False

    def __post_init__(self) -> None:
        if self.selector is not None and not callable(self.selector):
            raise ValidationError(
                f"selector must be a function of queues, message and ordering_key, got {self.selector!r}"
            )

    @property
    def chooses_queue(self) -> bool:
        """Whether the options allow one queue only."""
        return self.queue is not None or self.ordering_key is not None or self.selector is not None


def in_ms(timeout: Duration | None) -> int | None:
    """The timeout of one call in milliseconds; None stands for the producer's timeout.

    Raises:
        ValidationError: the timeout is out of range; the text names the range.
    """
    if timeout is None:
        return None
    check_number("timeout", timeout)
    return milliseconds(timeout)


# The options of nearly every send; they are compared by identity.
PLAIN = SendOptions()
PLAIN_SUBMITTED = SendOptions(submitted=True)
