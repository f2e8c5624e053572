"""Messages that a disk or a wire has changed: they are left out, and told."""

from __future__ import annotations

import logging
from functools import partial

from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.message.record import readable_messages

log = logging.getLogger(__name__)


def whole_messages(body: bytes, broker_name: str) -> list[ReceivedMessage]:
    """The messages of an answer whose records are whole.

    A handler would get another message than the one that was sent, or none at all with every pull; another
    copy of the log may have it whole.

    Raises:
        RecordError: it is not even told where a record ends.
    """
    return readable_messages(body, broker_name, partial(_tell, broker_name))


def messages_of(queue: MessageQueue, body: bytes) -> list[ReceivedMessage]:
    """:func:`whole_messages` of a queue, without those of another topic: what led to them is damaged.

    With a namespace that servers add, a topic's name is longer there.
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
    """Whether the topic is one of RocketMQ's light queues, whose messages have another topic."""
    return topic.startswith("%LMQ%")


def _tell(broker_name: str, what: str) -> None:
    log.error("broker %s: %s: the message is left out", broker_name, what)
