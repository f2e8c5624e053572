"""Message trace: records of each send and each delivery, in the form of RocketMQ's own clients.

Records go to the topic RMQ_SYS_TRACE_TOPIC in the text format of TraceDataEncoder, so that RocketMQ's tools
(mqadmin queryMsgTraceById, the dashboard) show them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable

from orbitmq.client.hooks import ConsumeContext, ConsumeHook, EndTransactionContext, SendContext, SendHook
from orbitmq.client.model import SendStatus
from orbitmq.client.namespaces import Namespace
from orbitmq.client.observe.trace_records import FIELD, NONE, RECORD
from orbitmq.durations import since_1970_ms
from orbitmq.errors import OrbitError
from orbitmq.message import property_names
from orbitmq.message.ids import UniqueIds
from orbitmq.message.model import Message
from orbitmq.message.properties import parse_properties
from orbitmq.message.reserved import TRACE_TOPIC
from orbitmq.runtime.seam import Runtime
from orbitmq.runtime.tasks import Background, every
from orbitmq.wording import counted

log = logging.getLogger("orbitmq.client")

TRACE_GROUP = "_INNER_TRACE_PRODUCER"
# The region of a broker without a regionId setting.
DEFAULT_REGION = "DefaultRegion"

FLUSH_EVERY_S = 1.0
MAX_WAITING = 2048
MAX_BODY_CHARS = 100_000
_NORMAL, _HALF, _COMMIT, _DELAY = range(4)


class Tracer:
    """Collects trace records and sends them within a second. While 2048 records wait, further ones are
    dropped, with a warning that names their number.

    Args:
        send: sends one message of records.
        topic: the topic for the records.
    """

    def __init__(
        self, runtime: Runtime, send: Callable[[Message], Awaitable[object]], topic: str = TRACE_TOPIC
    ) -> None:
        self._clock = runtime.clock
        self._send = send
        self.topic = topic
        self._waiting: deque[tuple[str, str]] = deque()
        self._dropped = 0
        self._background = Background("trace")
        self.next_id = UniqueIds(runtime).next

    async def start(self) -> None:
        """Begin to send the records."""
        self._background.spawn(every(self._clock, FLUSH_EVERY_S, self.flush), "flush")

    async def close(self) -> None:
        """Send the waiting records, and end the background work."""
        await self._background.stop()
        await self.flush()

    def append(self, record: str, record_keys: str) -> None:
        """Add one record; the words of ``record_keys`` become keys of the message that carries it."""
        if len(self._waiting) >= MAX_WAITING:
            self._dropped += 1
            return
        self._waiting.append((record, record_keys))

    async def flush(self) -> None:
        """Send the waiting records. A failed send loses its records: tracing must not delay messages."""
        if self._dropped:
            log.warning(
                "%d trace records were dropped, as they came faster than they could be sent", self._dropped
            )
            self._dropped = 0
        while self._waiting:
            body, found = "", dict[str, None]()
            while self._waiting and len(body) < MAX_BODY_CHARS:
                record, record_keys = self._waiting.popleft()
                body += record
                found |= dict.fromkeys(record_keys.split())
            try:
                await self._send(Message(self.topic, body, keys=found))
            except OrbitError as error:
                log.warning("trace records of %s are lost: %s", counted(len(found), "message"), error)


class SendTrace(SendHook):
    """Records every stored message (trace type Pub)."""

    def __init__(self, tracer: Tracer, namespace: Namespace) -> None:
        self._tracer = tracer
        self._namespace = namespace

    def after(self, context: SendContext) -> None:
        result = context.result
        if result is None or context.queue.topic == self._tracer.topic:
            return
        properties = parse_properties(context.properties_text)
        kind = (
            _DELAY
            if properties.keys()
            & {property_names.DELAY, property_names.TIMER_DELIVER_MS, property_names.TIMER_DELAY_MS}
            else _NORMAL
        )
        if properties.get(property_names.TRANSACTION_PREPARED) == "true":
            kind = _HALF
        found_keys = properties.get(property_names.KEYS, "")
        fields = (
            "Pub",
            since_1970_ms(context.begun),
            DEFAULT_REGION,
            self._namespace.short(context.group),
            self._namespace.short(context.queue.topic),
            result.message_id,
            properties.get(property_names.TAGS, NONE),
            found_keys or NONE,
            context.address,
            context.body_bytes,
            int(context.took * 1000),
            kind,
            result.offset_message_id,
            _java(result.status is SendStatus.SEND_OK),
        )
        self._tracer.append(_record(fields), f"{result.message_id.replace(',', ' ')} {found_keys}")

    def end_transaction(self, context: EndTransactionContext) -> None:
        fields = (
            "EndTransaction",
            since_1970_ms(context.at),
            DEFAULT_REGION,
            self._namespace.short(context.group),
            self._namespace.short(context.topic),
            context.message_id,
            NONE,
            NONE,
            context.address,
            _COMMIT,
            context.transaction_id or NONE,
            context.state,
            _java(context.from_check),
        )
        self._tracer.append(_record(fields), context.message_id)


class ConsumeTrace(ConsumeHook):
    """Records every delivery and its end (trace types SubBefore and SubAfter)."""

    def __init__(self, tracer: Tracer, namespace: Namespace) -> None:
        self._tracer = tracer
        self._namespace = namespace
        # One entry per message in flight at most.
        self._requests: dict[int, str] = {}

    def before(self, context: ConsumeContext) -> None:
        message = context.message
        if (
            message.properties.get(property_names.TRACE_ON) == "false"
            or context.queue.topic == self._tracer.topic
        ):
            return
        request_id = self._requests[id(message)] = self._tracer.next_id()
        fields = (
            "SubBefore",
            since_1970_ms(context.begun),
            message.properties.get(property_names.MSG_REGION, DEFAULT_REGION),
            self._namespace.short(context.group),
            request_id,
            message.message_id,
            message.reconsume_times,
            _keys(message) or NONE,
        )
        self._tracer.append(_record(fields), f"{message.message_id} {_keys(message)}")

    def after(self, context: ConsumeContext) -> None:
        message = context.message
        request_id = self._requests.pop(id(message), None)
        if request_id is None:
            return
        fields = (
            "SubAfter",
            request_id,
            message.message_id,
            int(context.took * 1000),
            _java(context.success),
            _keys(message) or NONE,
            int(context.outcome or 0),
            since_1970_ms(context.begun) + int(context.took * 1000),
            self._namespace.short(context.group),
        )
        self._tracer.append(_record(fields), f"{message.message_id} {_keys(message)}")


def _record(fields: tuple[object, ...]) -> str:
    """The text of a record. Java's reader needs the last field not to be empty."""
    return FIELD.join(map(str, fields)) + RECORD


def _keys(message: Message) -> str:
    return message.properties.get(property_names.KEYS, "")


def _java(value: bool) -> str:
    return "true" if value else "false"
