"""Builds the fields and the body of a send request from a user's message, which stays unchanged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import msgspec

from orbitmq.client.model import SendResult, SendStatus
from orbitmq.client.producer.open_batch import PLAIN_PROPERTIES, Item, OpenBatch, encode_plain
from orbitmq.client.validation import (
    MAX_MESSAGE_BYTES,
    MAX_PROPERTIES_BYTES,
)
from orbitmq.errors import ValidationError
from orbitmq.message import property_names, sysflag
from orbitmq.message.batch import item_parts
from orbitmq.message.compression import compress
from orbitmq.message.ids import UniqueIds
from orbitmq.message.model import REPLY_TYPE, Message, MessageQueue
from orbitmq.message.numbers import whole_number
from orbitmq.message.properties import properties_text
from orbitmq.message.reserved import AUTO_CREATE_TOPIC, RETRY_PREFIX
from orbitmq.message.sysflag import CompressionType
from orbitmq.message.utf8 import check_utf8
from orbitmq.runtime.seam import Runtime
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wording import counted

# The largest body that is compressed on the event loop, in about a millisecond; larger ones are compressed in
# a thread.
_COMPRESS_INLINE_BYTES = 64 * 1024
_SEND = int(RequestCode.SEND_MESSAGE_V2)
_SEND_BATCH = int(RequestCode.SEND_BATCH_MESSAGE)
_SEND_REPLY = int(RequestCode.SEND_REPLY_MESSAGE_V2)


@dataclass(frozen=True, slots=True)
class Compression:
    """When and how bodies are compressed.

    Attributes:
        from_bytes: the least size of a body to compress (SK-10).
        kind: zlib, LZ4 or ZSTD.
        level: the level of zlib or ZSTD.
    """

    from_bytes: int = 4096
    kind: CompressionType = CompressionType.ZLIB
    level: int = 5


class Outgoing(msgspec.Struct, gc=False):
    """One send request, ready except for the queue.

    Attributes:
        fields: the fields of the header (SendMessageRequestHeaderV2), with the queue of the last try.
    """

    code: int
    topic: str
    body: bytes
    message_id: str
    fields: dict[str, str]

    @property
    def properties_text(self) -> str:
        """The property block of the request; empty for a batch, whose items have their own."""
        return self.fields["i"]

    def header(self, queue: MessageQueue) -> dict[str, str]:
        """The header fields of a try on ``queue``; the next try changes this dict (SK-14)."""
        fields = self.fields
        fields["e"] = str(queue.queue_id)
        fields["n"] = queue.broker_name
        return fields

    def result(self, status: SendStatus, queue: MessageQueue, answer: Command) -> SendResult:
        """The result in the broker's answer (SK-18, SK-19).

        A field that cannot be parsed gets its "unknown" value: the message is stored in any case.
        """
        ext = answer.ext
        text = ext.get("queueId", "")
        queue_id = None if text == self.fields["e"] else whole_number(text)
        if queue_id is not None and queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
        offset = whole_number(ext.get("queueOffset", ""))
        return SendResult(
            status,
            self.message_id,
            ext.get("msgId", ""),
            queue,
            -1 if offset is None else offset,
            ext.get("transactionId") or "",
            ext.get("recallHandle") or "",
        )


class OutgoingFactory:
    """Builds the requests of one producer.

    Args:
        default_queues: queues of a topic that the first message creates.
        max_message_bytes: upper limit of a batch's encoded body (BA-03).
    """

    def __init__(
        self,
        group: str,
        runtime: Runtime,
        *,
        default_queues: int = 4,
        compression: Compression | None = None,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        # The header fields that most messages have in common, in the order of their letters.
        self._plain = {
            "a": group,
            "b": "",
            "c": AUTO_CREATE_TOPIC,
            "d": str(default_queues),
            "e": "0",
            "f": "0",
            "g": "",
            "h": "0",
            "i": "",
            "j": "0",
            "k": "false",
            "m": "false",
            "n": "",
        }
        unique_ids = UniqueIds(runtime)
        self._next_id = unique_ids.next
        self._ids = unique_ids
        self._now_ms = runtime.clock.now_ms
        self._threads = runtime.threads
        self._compression = compression or Compression()
        self._max_message_bytes = max_message_bytes

    def small(self, message: Message, ordering_key: object | None = None) -> Outgoing | None:
        """The request for ``message``; None if its body is large enough for :meth:`large`."""
        body = message.body
        if body.__class__ is not bytes:
            body = bytes(body)
        size = len(body)
        if size < self._compression.from_bytes:
            return self._build(message, body, 0, ordering_key)
        if size > _COMPRESS_INLINE_BYTES:
            return None
        return self._build(message, *self._compress(body), ordering_key)

    async def large(self, message: Message, ordering_key: object | None = None) -> Outgoing:
        """The request for a large message, compressed off the event loop."""
        body, flags = await self._threads.run(self._compress, bytes(message.body))
        return self._build(message, body, flags, ordering_key)

    def _compress(self, body: bytes) -> tuple[bytes, int]:
        settings = self._compression
        packed = compress(body, settings.kind, settings.level)
        if len(packed) >= len(body):
            return body, 0  # within the broker's limit, while the compressed form could exceed it
        return packed, sysflag.with_compression(0, settings.kind)

    def _build(self, message: Message, body: bytes, flags: int, ordering_key: object | None) -> Outgoing:
        properties = message.properties
        text, unique_id, code = "", None, _SEND
        if properties:
            text = _checked_text(properties)
            unique_id = properties.get(property_names.UNIQ_KEY)
            if properties.get(property_names.TRANSACTION_PREPARED) == "true":
                flags |= sysflag.TRANSACTION_PREPARED
            if properties.get(property_names.MSG_TYPE) == REPLY_TYPE:
                code = _SEND_REPLY
        if unique_id is None:
            unique_id = self._next_id()
            text = f"{text}UNIQ_KEY\x01{unique_id}\x02"
        if ordering_key is not None and property_names.SHARDING_KEY not in properties and str(ordering_key):
            text += _checked_text({property_names.SHARDING_KEY: str(ordering_key)})
        fields = self._fields(message.topic, flags, message.flag, text)
        if message.topic.startswith(RETRY_PREFIX):
            # SK-15: both counts also stay in the properties.
            if property_names.RECONSUME_TIME in properties:
                fields["j"] = properties[property_names.RECONSUME_TIME]
            if property_names.MAX_RECONSUME_TIMES in properties:
                fields["l"] = properties[property_names.MAX_RECONSUME_TIMES]
        return Outgoing(code, message.topic, body, unique_id, fields)

    def batch(self, messages: Sequence[Message]) -> Outgoing:
        """The request for a checked batch: every item gets its own id, and nothing is compressed (BA rows).

        Raises:
            ValidationError: the encoded items are over the limit.
        """
        parts: list[bytes] = []
        ids: list[str] = []
        for message in messages:
            properties = dict(message.properties)
            ids.append(properties.setdefault(property_names.UNIQ_KEY, "") or self._next_id())
            properties[property_names.UNIQ_KEY] = ids[-1]
            properties.setdefault(property_names.WAIT, "true")
            text = _checked_text(properties)
            parts += item_parts(message.flag, bytes(message.body), text.encode())
        body = b"".join(parts)
        if len(body) > self._max_message_bytes:
            raise ValidationError(
                f"the batch of {counted(len(messages), 'message')} takes {len(body)} bytes, over the limit "
                f"of {self._max_message_bytes}; send it in parts"
            )
        text = "" if messages[0].wait_stored else f"{property_names.WAIT}\x01false\x02"
        fields = self._fields(messages[0].topic, 0, 0, text, batch=True)
        return Outgoing(_SEND_BATCH, messages[0].topic, body, ",".join(ids), fields)

    def item(self, message: Message) -> Item:
        """A message of a batch, complete except for the unique id if the message has none (BA-05).

        Raises:
            ValidationError: its properties cannot be encoded.
        """
        properties = message.properties
        text = _checked_text(properties)
        if property_names.WAIT not in properties:
            text += "WAIT\x01true\x02"
        return Item(message.body, message.flag, text.encode(), properties.get(property_names.UNIQ_KEY))

    def joined(self, topic: str, batch: OpenBatch) -> tuple[Outgoing, list[str]]:
        """The request for the messages of a collected batch, and the unique id of each (BA-04)."""
        count = len(batch.items)
        if batch.plain:
            body, ids = encode_plain(cast("list[bytes]", batch.items), batch.size, *self._ids.series(count))
        else:
            ids = [self._next_id() for _ in range(count)]
            parts: list[bytes] = []
            for index, item in enumerate(batch.items):
                whole = item if isinstance(item, Item) else Item(item, 0, PLAIN_PROPERTIES, None)
                ids[index] = whole.unique_id or ids[index]
                parts.append(whole.encoded(ids[index]))
            body = b"".join(parts)
        fields = self._fields(topic, 0, 0, "", batch=True)
        return Outgoing(_SEND_BATCH, topic, body, ",".join(ids), fields), ids

    def _fields(
        self, topic: str, flags: int, flag: int, properties: str, *, batch: bool = False
    ) -> dict[str, str]:
        fields = self._plain.copy()
        fields["b"] = topic
        fields["g"] = str(self._now_ms())
        fields["i"] = properties
        if flags:
            fields["f"] = str(flags)
        if flag:
            fields["h"] = str(flag)
        if batch:
            fields["m"] = "true"
        return fields


def _checked_text(properties: dict[str, str]) -> str:
    """The property block; refuses properties that would not decode to the same values.

    Raises:
        ValidationError: a name or value is no string, is empty, or contains 0x00, 0x01, 0x02 or half of a
            surrogate pair, or the block is too long.
    """
    if not properties:
        return ""
    try:
        text = properties_text(properties)
        count = len(properties)
        good = text.count("\x01") == count and text.count("\x02") == count and "\0" not in text
    except TypeError:
        good = False
    if not good or "\x01\x02" in text or "\x02\x01" in text or text[0] == "\x01":
        bad = next(
            (
                (name, value)
                for name, value in properties.items()
                if not (isinstance(name, str) and isinstance(value, str) and name and value)
                or {"\0", "\x01", "\x02"} & {*name, *value}
            ),
            ("?", "?"),
        )
        raise ValidationError(
            f"property {bad[0]!r} = {bad[1]!r}: names and values must be non-empty strings "
            "without the characters 0x00, 0x01 and 0x02"
        )
    if not text.isascii():
        for name, value in properties.items():
            check_utf8("the name of property", name)
            check_utf8(f"property {name!r} =", value)
    # 200 bytes are reserved for properties that the broker adds.
    if len(text) > MAX_PROPERTIES_BYTES // 4 and len(text.encode()) > MAX_PROPERTIES_BYTES - 200:
        raise ValidationError(
            f"the properties take {len(text.encode())} bytes, over the limit of {MAX_PROPERTIES_BYTES - 200}"
        )
    return text
