"""Commands of mqadmin that find, print and send messages."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from orbitmq.cli.failures import UsageError
from orbitmq.cli.mqadmin.groups import connections, consume_stats
from orbitmq.cli.mqadmin.looks import groups_of
from orbitmq.cli.mqadmin.offers import TOPIC, Flag, Offers, Options, Tool, boolean, moment, number
from orbitmq.cli.mqadmin.text import clock, laid, table, word
from orbitmq.durations import instant
from orbitmq.message.model import Message, MessageQueue
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.client import ConsumeMessageDirectlyResult, ConsumeType, MessageModel

if TYPE_CHECKING:
    from orbitmq.admin import QueueStatus
    from orbitmq.message.model import ReceivedMessage

MESSAGES = Offers()
CHARSET = Flag("f", "bodyFormat", "the body's character set (UTF-8)")
DIRECTLY = (
    Flag("g", "consumerGroup", "have a consumer of this group handle it now; with -d"),
    Flag("d", "clientId", "the consumer's client id"),
)
HOUR_MS = 3_600_000
# The number of messages that consumeMessage prints by default.
CONSUMED = 128


# -- finding ---------------------------------------------------------------------------------------------


@MESSAGES(
    "queryMsgById",
    "a message by the broker's id",
    TOPIC,
    Flag("i", "msgId", "ids, separated by commas", required=True),
    CHARSET,
    *DIRECTLY,
)
async def query_msg_by_id(tool: Tool, options: Options) -> AsyncIterator[str]:
    _check_pair(options)
    for message_id in filter(None, options.i.split(",")):
        message = await tool.admin.messages.get(message_id.strip(), topic=options.t)
        if result := await _handled(tool, options, message):
            yield result
            continue
        yield f"{'OffsetID:':<20} {message.offset_message_id}"
        async for line in _shown(tool, message, options.f):
            yield line


@MESSAGES(
    "queryMsgByUniqueKey",
    "a message by its unique id",
    TOPIC,
    Flag("i", "msgId", "the unique id", required=True),
    Flag("a", "showAll", "all messages with this id, 32 at most", takes=False),
    *DIRECTLY,
)
async def query_msg_by_unique_key(tool: Tool, options: Options) -> AsyncIterator[str]:
    _check_pair(options)
    found = await tool.admin.messages.by_unique_id(options.t, options.i)
    for message in found if options.a else found[:1]:
        if result := await _handled(tool, options, message):
            yield result
            continue
        async for line in _shown(tool, message):
            yield line


@MESSAGES(
    "queryMsgByKey",
    "messages by a key",
    TOPIC,
    Flag("k", "msgKey", "the key", required=True),
    Flag("b", "beginTimestamp", "stored from this time on, milliseconds"),
    Flag("e", "endTimestamp", "stored up to this time, milliseconds"),
    Flag("m", "maxNum", "most messages (64)"),
)
async def query_msg_by_key(tool: Tool, options: Options) -> AsyncIterator[str]:
    answer = await tool.admin.messages.find(
        options.t,
        key=options.k,
        begin=None if options.b is None else instant(moment("b", options.b)),
        end=None if options.e is None else instant(moment("e", options.e)),
        max_messages=number("m", options.m, 64),
    )
    row = "%-50s %4s %40s %-200s"
    yield laid(row, "#Message ID", "#QID", "#Offset", "#IndexKey")
    for one in answer.whole():
        hour = one.store_timestamp_ms // HOUR_MS * HOUR_MS
        index = f"{hour}@{options.t}@K@{options.k}@{one.message_id}@{one.commit_log_offset}"
        yield laid(row, one.message_id, one.queue_id, one.queue_offset, index)


@MESSAGES(
    "queryMsgByOffset",
    "a message by its place",
    TOPIC,
    Flag("b", "brokerName", "name of the broker", required=True),
    Flag("i", "queueId", "the queue", required=True),
    Flag("o", "offset", "its offset there", required=True),
    CHARSET,
)
async def query_msg_by_offset(tool: Tool, options: Options) -> AsyncIterator[str]:
    queue = MessageQueue(options.t, options.b, number("i", options.i, 0))
    offset = number("o", options.o, 0)
    async for message in _read(tool, await _known(tool, queue), offset, offset + 1):
        yield f"{'OffsetID:':<20} {message.offset_message_id}"
        async for line in _shown(tool, message, options.f):
            yield line


def _check_pair(options: Options) -> None:
    if (options.g is None) != (options.d is None):
        raise UsageError("-g and -d name a consumer: give both or none")


async def _handled(tool: Tool, options: Options, message: ReceivedMessage) -> str:
    """The result of a consumer that handles the message now; empty if no consumer is named."""
    if options.g is None:
        return ""
    request = headers.ConsumeMessageDirectlyRequest(
        consumer_group=options.g, client_id=options.d, msg_id=message.offset_message_id, topic=options.t
    )
    answer = await tool.cluster.ask(message.store_host, request.command())
    result = ConsumeMessageDirectlyResult.decode(answer.body)
    return (
        f"ConsumeMessageDirectlyResult [order={word(result.order)}, autoCommit={word(result.auto_commit)}, "
        f"consumeResult={'null' if result.consume_result is None else result.consume_result.name}, "
        f"remark={word(result.remark)}, spentTimeMills={result.spent_time_mills}]"
    )


async def _shown(tool: Tool, message: ReceivedMessage, charset: str | None = None) -> AsyncIterator[str]:
    """All fields of a message, and what each group has done with it. Apache's tool writes the body to
    a file.
    """
    properties = message.properties
    for name, value in (
        ("Topic", message.topic),
        ("Tags", f"[{properties.get('TAGS', 'null')}]"),
        ("Keys", f"[{properties.get('KEYS', 'null')}]"),
        ("Queue ID", message.queue_id),
        ("Queue Offset", message.queue_offset),
        ("CommitLog Offset", message.commit_log_offset),
        ("Reconsume Times", message.reconsume_times),
        ("Born Timestamp", clock(message.born_timestamp_ms)),
        ("Store Timestamp", clock(message.store_timestamp_ms)),
        ("Born Host", message.born_host),
        ("Store Host", message.store_host),
        ("System Flag", message.sys_flag),
        ("Properties", table(properties)),
        ("Message Body", _text(message, "f", charset)),
    ):
        yield f"{name + ':':<20} {value}"
    yield "\n"
    groups = await groups_of(tool, message.topic)
    if not groups:
        yield "WARN: No Consumer"
    for group in groups:
        kind, problem = await _track(tool, message, group)
        yield f"MessageTrack [consumerGroup={group}, trackType={kind}, exceptionDesc={problem}]"


async def _track(tool: Tool, message: ReceivedMessage, group: str) -> tuple[str, str]:
    """What a group has done with a message, or why that is unknown."""
    online = await connections(tool, group)
    if online is None:
        return "NOT_ONLINE", f"CODE:206 DESC:the consumer group[{group}] not online"
    if online.consume_type is ConsumeType.CONSUME_ACTIVELY:
        return "PULL", "null"
    if online.message_model is MessageModel.BROADCASTING:
        return "CONSUME_BROADCASTING", "null"
    offsets = (await consume_stats(tool, group, message.topic)).offset_table.get(message.queue)
    if offsets is None or offsets.consumer_offset <= message.queue_offset:
        return "NOT_CONSUME_YET", "null"
    wanted = online.subscription_table.get(message.topic)
    tags = wanted.tags_set if wanted else set[str]()
    filtered = tags and "*" not in tags and message.properties.get("TAGS") not in tags
    return "CONSUMED_BUT_FILTERED" if filtered else "CONSUMED", "null"


# -- printing --------------------------------------------------------------------------------------------


@MESSAGES(
    "printMsg",
    "all messages of a topic",
    TOPIC,
    Flag("s", "subExpression", "only with these tags: a || b"),
    Flag("b", "beginTimestamp", "stored from this time on, milliseconds or yyyy-MM-dd#HH:mm:ss:SSS"),
    Flag("e", "endTimestamp", "stored before this time"),
    Flag("d", "printBody", "with bodies: true or false (true)"),
    Flag("c", "charsetName", "their character set (UTF-8)"),
)
async def print_msg(tool: Tool, options: Options) -> AsyncIterator[str]:
    body = boolean(options.d, True)
    for status in (await tool.admin.topics.status(options.t)).whole():
        begin, end = await _between(tool, status, options.b, options.e, "b")
        yield f"minOffset={begin}, maxOffset={end}, {_queue(status.queue)}"
        async for message in _read(tool, status, begin, end, options.s or "*"):
            yield _line(message, _text(message, "c", options.c) if body else "NOT PRINT BODY")
        yield "-" * 56


@MESSAGES(
    "consumeMessage",
    "messages of a topic, of a queue, or from an offset on",
    TOPIC,
    Flag("b", "brokerName", "name of the broker"),
    Flag("i", "queueId", "the queue"),
    Flag("o", "offset", "the first offset"),
    Flag("s", "beginTimestamp", "stored from this time on, milliseconds or yyyy-MM-dd#HH:mm:ss:SSS"),
    Flag("e", "endTimestamp", "stored before this time"),
    Flag("c", "MessageNumber", f"most messages ({CONSUMED})"),
)
async def consume_message(tool: Tool, options: Options) -> AsyncIterator[str]:
    left = number("c", options.c, CONSUMED)
    if options.i is not None and options.b is None:
        raise UsageError("-i needs -b: the broker of the queue")
    if options.o is not None and options.i is None:
        raise UsageError("-o needs -i: the queue of the offset")
    if options.i is None:
        queues: Sequence[QueueStatus] = (await tool.admin.topics.status(options.t)).whole()
        queues = [one for one in queues if options.b in (None, one.queue.broker_name)]
    else:
        queues = [await _known(tool, MessageQueue(options.t, options.b, number("i", options.i, 0)))]
    for status in queues:
        begin, end = await _between(tool, status, options.s, options.e, "s")
        begin = max(begin, number("o", options.o, 0))
        end = min(end, begin + left)
        if begin < end:
            yield "Consume ok"
        async for message in _read(tool, status, begin, end):
            left -= 1
            yield _line(message, _text(message, "c", None))
        yield f"{_queue(status.queue)} print msg finished. status=NO_NEW_MSG, offset={max(begin, end)}"
        if left <= 0:
            return


async def _between(
    tool: Tool, status: QueueStatus, begin: str | None, end: str | None, letter: str
) -> tuple[int, int]:
    """The offsets of a time range in a queue: of the first message, and after the last one."""
    first = status.min_offset
    last = status.max_offset
    if begin is not None:
        first = await _at(tool, status.queue, moment(letter, begin))
    if end is not None:
        last = await _at(tool, status.queue, moment("e", end))
    return first, last


async def _at(tool: Tool, queue: MessageQueue, time_ms: int) -> int:
    address = next(
        one.address for one in await tool.cluster.readers(queue.topic) if one.name == queue.broker_name
    )
    request = headers.SearchOffsetByTimestampRequest(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=time_ms
    )
    answer = await tool.cluster.ask(address, request.command())
    return headers.SearchOffsetByTimestampResponse.from_ext(answer.ext).offset


async def _known(tool: Tool, queue: MessageQueue) -> QueueStatus:
    for one in (await tool.admin.topics.status(queue.topic)).whole():
        if one.queue == queue:
            return one
    raise UsageError(f"{queue.broker_name} has no queue {queue.queue_id} of {queue.topic}")


async def _read(
    tool: Tool, status: QueueStatus, begin: int, end: int, tags: str = "*"
) -> AsyncIterator[ReceivedMessage]:
    """The messages of a queue from an offset up to, but not including, another one."""
    from orbitmq.client.consumer.reader import Reader

    begin, end = max(begin, status.min_offset), min(end, status.max_offset)
    if begin >= end:
        return
    queue = status.queue
    reader = Reader(queue.topic, start={queue: begin}, tags=tags, **tool.servers.options)
    async with reader, aclosing(reader.messages()) as found:
        async for message in found:
            if message.queue_offset < end:
                yield message
            if message.queue_offset >= end - 1:
                return


def _text(message: ReceivedMessage, letter: str, charset: str | None) -> str:
    """The body as text.

    Raises:
        UsageError: the character set does not exist; the text names the flag.
    """
    try:
        return message.body.decode(charset or "UTF-8", errors="replace")
    except LookupError as error:
        raise UsageError(f"-{letter} {charset}: no such character set") from error


def _queue(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _line(message: ReceivedMessage, text: str) -> str:
    """A message in the form of Java's text of it, followed by the body's text."""
    signed = ", ".join(str(one - 256 if one > 127 else one) for one in message.body)
    inner = (
        f"Message{{topic='{message.topic}', flag={message.flag}, properties={table(message.properties)}, "
        f"body=[{signed}], transactionId='null'}}"
    )
    shown = (
        f"MessageExt [brokerName={message.broker_name}, queueId={message.queue_id}, "
        f"storeSize={message.store_size_bytes}, queueOffset={message.queue_offset}, "
        f"sysFlag={message.sys_flag}, bornTimestamp={message.born_timestamp_ms}, "
        f"bornHost=/{message.born_host}, storeTimestamp={message.store_timestamp_ms}, "
        f"storeHost=/{message.store_host}, msgId={message.offset_message_id}, "
        f"commitLogOffset={message.commit_log_offset}, bodyCRC={message.body_crc}, "
        f"reconsumeTimes={message.reconsume_times}, "
        f"preparedTransactionOffset={message.prepared_transaction_offset}, toString()={inner}]"
    )
    return f"MSGID: {message.message_id} {shown} BODY: {text}"


# -- sending ---------------------------------------------------------------------------------------------


@MESSAGES(
    "sendMessage",
    "send a message",
    TOPIC,
    Flag("p", "body", "the body", required=True),
    Flag("k", "key", "its keys"),
    Flag("c", "tags", "its tag"),
    Flag("b", "broker", "name of the broker; with -i"),
    Flag("i", "qid", "the queue there"),
    Flag("m", "msgTraceEnable", "with a trace: true or false (false)"),
)
async def send_message(tool: Tool, options: Options) -> AsyncIterator[str]:
    from orbitmq.client.producer.producer import Producer
    from orbitmq.runtime.system import system_runtime

    if options.i is not None and options.b is None:
        raise UsageError("-i needs -b: the broker of the queue")
    queue = None if options.i is None else MessageQueue(options.t, options.b, number("i", options.i, 0))
    message = Message(options.t, options.p, tags=options.c, keys=options.k or ())
    # A group of its own, like Apache's tool: no other producer is asked about its transactions.
    group = str(system_runtime().clock.now_ms())
    async with Producer(group, trace=boolean(options.m, False), **tool.servers.options) as producer:
        if queue is None:
            result = await producer.send(message)
        else:
            result = await producer.send(message, queue=queue)
    row = "%-32s  %-4s  %-20s    %s"
    yield laid(row, "#Broker Name", "#QID", "#Send Result", "#MsgId")
    yield laid(row, result.queue.broker_name, result.queue.queue_id, result.status.name, result.message_id)
