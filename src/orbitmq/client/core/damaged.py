"""Drops messages that a disk or a network has damaged, and logs them."""

from __future__ import annotations

import logging
from functools import partial

from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.message.record import readable_messages

log = logging.getLogger(__name__)


def whole_messages(body: bytes, broker_name: str) -> list[ReceivedMessage]:
    """The messages of an answer that have the right checksum.

    If damaged messages were not dropped, a handler would get a message that was never sent, or every pull
    would fail. Another replica of the log may have the message undamaged.

    Raises:
        RecordError: a record's length is damaged, so the end of the record is not known.
    """
    return readable_messages(body, broker_name, partial(_tell, broker_name))


def messages_of(queue: MessageQueue, body: bytes) -> list[ReceivedMessage]:
    """:func:`whole_messages` of a queue, without messages of another topic that a damaged entry led to.

    A server may add a namespace: then the record holds a longer topic name.
    """
    found = []
    for message in whole_messages(body, queue.broker_name):
        if message.topic == queue.topic or message.topic.endswith(queue.topic) or _is_light(queue.topic):
            found.append(message)
        else:
            _tell(
                queue.broker_name,
                f"{queue} leads to the message at {message.commit_log_offset} of the log, which is of topic "
                f"{message.topic}",
            )
    return found


def _is_light(topic: str) -> bool:
    """Whether the topic is one of RocketMQ's light queues (LMQ), whose messages have another topic."""
    return topic.startswith("%LMQ%")


def _tell(broker_name: str, what: str) -> None:
    log.error("broker %s: %s: the message is left out", broker_name, what)
