"""The official Python client at work, in a virtual environment of its own: one JSON object a line.

    python python_client.py send|simple|push ENDPOINT TOPIC GROUP COUNT

What is sent: bodies ``body-<n>`` with key ``key-<n>`` and tag ``tag``. What is received is acknowledged.
"""

import json
import sys
import threading
import time

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
)

LIMIT_S = 90.0


def say(**line):
    # In one write: listeners run in several threads.
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def say_received(message):
    keys = message.keys
    say(
        body=message.body.decode(),
        keys=keys if isinstance(keys, str) else " ".join(keys),
        tag=message.tag,
        attempt=message.delivery_attempt,
    )


def send(configuration, topic, _group, count):
    producer = Producer(configuration, (topic,))
    producer.startup()
    for number in range(count):
        message = Message()
        message.topic = topic
        message.body = f"body-{number}".encode()
        message.keys = f"key-{number}"
        message.tag = "tag"
        say(id=producer.send(message).message_id)
    producer.shutdown()


def simple(configuration, topic, group, count):
    consumer = SimpleConsumer(configuration, group, {topic: FilterExpression()}, 3)
    consumer.startup()
    end = time.monotonic() + LIMIT_S
    seen = 0
    while seen < count and time.monotonic() < end:
        for message in consumer.receive(32, 15) or []:
            say_received(message)
            consumer.ack(message)
            seen += 1
    consumer.shutdown()


def push(configuration, topic, group, count):
    done = threading.Event()
    seen = []

    class Listener(MessageListener):
        def consume(self, message):
            say_received(message)
            seen.append(message)
            if len(seen) >= count:
                done.set()
            return ConsumeResult.SUCCESS

    consumer = PushConsumer(configuration, group, Listener(), {topic: FilterExpression()})
    consumer.startup()
    done.wait(LIMIT_S)
    # The last acknowledgements are on their way.
    time.sleep(1)
    consumer.shutdown()


def main(role, endpoint, topic, group, count):
    configuration = ClientConfiguration(endpoint, Credentials())
    {"send": send, "simple": simple, "push": push}[role](configuration, topic, group, int(count))


if __name__ == "__main__":
    main(*sys.argv[1:])
