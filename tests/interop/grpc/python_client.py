"""The official Python client at work, in a virtual environment of its own: one JSON object a line.

    python_client.py ROLE ENDPOINT TOPIC GROUP COUNT

The variables ACCESS_KEY and SECRET_KEY of the environment are its keys, when they are set. ROLE is send,
fifo, flights, steady, simple, late, push, hold, sql, fail, transact, die, answer or recall. What is sent:
bodies ``body-<n>`` with key ``key-<n>``, tag ``tag`` and property ``number``; ``fifo`` sends bodies only, of
one message group. What is received is acknowledged. ``flights`` sends the lines of the file GROUP: tag, key
(or none) and body. ``steady`` sends 50 a second, whatever becomes of each; ``fail`` fails to handle what
comes; ``sql`` takes numbers from 10 on. ``transact`` commits one message, rolls one back, and leaves one to
the question of the broker. ``die`` leaves one and ends without a goodbye; ``answer`` waits for one question.
``recall`` takes back one of two delayed messages. ``late`` acknowledges only after a line of input; the
listeners of ``hold`` end only then.
"""

import json
import os
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
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

LIMIT_S = 90.0
# The slowest client takes this many messages a second.
SLOWEST = 50


def limit_s(count):
    return LIMIT_S + count / SLOWEST


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
        message.add_property("number", str(number))
        say(id=producer.send(message).message_id)
    producer.shutdown()


def fifo(configuration, topic, _group, count):
    producer = Producer(configuration, (topic,))
    producer.startup()
    for number in range(count):
        message = message_of(topic, f"body-{number}")
        message.message_group = "one"
        say(id=producer.send(message).message_id)
    producer.shutdown()


def flights(configuration, topic, file, _count):
    producer = Producer(configuration, (topic,))
    producer.startup()
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            tag, key, body = line.rstrip("\n").split("\t")
            message = message_of(topic, body)
            message.tag = tag
            if key:
                message.keys = key
            say(id=producer.send(message).message_id)
    producer.shutdown()


def steady(configuration, topic, _group, count):
    producer = Producer(configuration, (topic,))
    producer.startup()
    for number in range(count):
        body = f"body-{number}"
        try:
            producer.send(message_of(topic, body))
            say(sent=body)
        except Exception as error:
            say(failed=body, why=str(error))
        time.sleep(0.02)
    producer.shutdown()


def simple(configuration, topic, group, count, wanted=None):
    consumer = SimpleConsumer(configuration, group, {topic: wanted or FilterExpression()}, 3)
    consumer.startup()
    end = time.monotonic() + limit_s(count)
    seen = 0
    while seen < count and time.monotonic() < end:
        for message in consumer.receive(32, 15) or []:
            say_received(message)
            consumer.ack(message)
            seen += 1
    consumer.shutdown()


def late(configuration, topic, group, count):
    consumer = SimpleConsumer(configuration, group, {topic: FilterExpression()}, 3)
    consumer.startup()
    messages = []
    end = time.monotonic() + LIMIT_S
    while len(messages) < count and time.monotonic() < end:
        for message in consumer.receive(32, 60) or []:
            say_received(message)
            messages.append(message)
    sys.stdin.readline()
    for message in messages:
        body = message.body.decode()
        try:
            consumer.ack(message)
            say(acknowledged=body)
        except Exception as error:
            say(failed=body, why=str(error))
    consumer.shutdown()


def sql(configuration, topic, group, count):
    simple(configuration, topic, group, count, FilterExpression("number >= 10", FilterType.SQL))


def fail(configuration, topic, group, count):
    push(configuration, topic, group, count, ConsumeResult.FAILURE, 15)


def message_of(topic, body):
    message = Message()
    message.topic = topic
    message.body = body.encode()
    return message


class Checker(TransactionChecker):
    def __init__(self):
        self.asked = threading.Event()

    def check(self, message):
        say(asked=message.body.decode())
        self.asked.set()
        return TransactionResolution.COMMIT


def checking(configuration, topic):
    checker = Checker()
    producer = Producer(configuration, (topic,), checker=checker)
    producer.startup()
    return producer, checker.asked


def transact(configuration, topic, _group, _count):
    producer, asked = checking(configuration, topic)
    for body, end in (("committed", "commit"), ("rolled back", "rollback"), ("asked about", "")):
        transaction = producer.begin_transaction()
        say(id=producer.send(message_of(topic, body), transaction).message_id)
        if end:
            getattr(transaction, end)()
    answer_one(producer, asked)


def answer_one(producer, asked):
    asked.wait(LIMIT_S)
    # The answer is on its way.
    time.sleep(1)
    producer.shutdown()


def die(configuration, topic, _group, _count):
    producer, _asked = checking(configuration, topic)
    say(id=producer.send(message_of(topic, "left behind"), producer.begin_transaction()).message_id)
    os._exit(0)


def answer(configuration, topic, _group, _count):
    answer_one(*checking(configuration, topic))


def recall(configuration, topic, _group, _count):
    producer = Producer(configuration, (topic,))
    producer.startup()
    handles = []
    for body in ("recalled", "kept"):
        message = message_of(topic, body)
        message.delivery_timestamp = int(time.time()) + 8
        handles.append(producer.send(message).recall_handle)
    say(recalled=producer.recall_message(topic, handles[0]))
    try:
        producer.recall_message(topic, handles[0])
    except Exception as error:
        say(refused=str(error))
    producer.shutdown()


def hold(configuration, topic, group, _count):
    free = threading.Event()

    class Listener(MessageListener):
        def consume(self, message):
            say_received(message)
            free.wait()
            return ConsumeResult.SUCCESS

    consumer = PushConsumer(configuration, group, Listener(), {topic: FilterExpression()})
    consumer.startup()
    sys.stdin.readline()
    free.set()
    # The acknowledgements are on their way.
    time.sleep(2)
    consumer.shutdown()


def push(configuration, topic, group, count, result=ConsumeResult.SUCCESS, rest_s=1):
    done = threading.Event()
    seen = []

    class Listener(MessageListener):
        def consume(self, message):
            say_received(message)
            seen.append(message)
            if len(seen) >= count:
                done.set()
            return result

    consumer = PushConsumer(configuration, group, Listener(), {topic: FilterExpression()})
    consumer.startup()
    done.wait(limit_s(count))
    # The last acknowledgements are on their way, and what failed is to come once more.
    time.sleep(rest_s)
    consumer.shutdown()


def main(role, endpoint, topic, group, count):
    credentials = Credentials(os.environ.get("ACCESS_KEY", ""), os.environ.get("SECRET_KEY", ""))
    configuration = ClientConfiguration(endpoint, credentials)
    roles = (send, fifo, flights, steady, simple, late, push, hold, sql, fail, transact, die, answer, recall)
    {each.__name__: each for each in roles}[role](configuration, topic, group, int(count))


if __name__ == "__main__":
    main(*sys.argv[1:])
