"""The official Python client with default settings, in a virtual environment of its own.

    grpc_python.py ROLE ENDPOINT TOPIC GROUP WARM_S SECONDS

ROLE is send (by 16 threads) or consume (a push consumer). A consumer's time begins with its first message.
Prints "ready" when it works, "begin" WARM_S later, and after SECONDS more the number of messages.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

from rocketmq import (  # type: ignore[import-not-found]
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
)

THREADS = 16
BODY = b"x" * 128
FIRST_WITHIN_S = 60
# One element per message, since several threads may append to a list safely.
counted: list[None] = []
failures: list[str] = []


def send(configuration: ClientConfiguration, topic: str, _group: str) -> None:
    producer = Producer(configuration, (topic,))
    producer.startup()

    def send_on() -> None:
        try:
            while True:
                message = Message()
                message.topic = topic
                message.body = BODY
                producer.send(message)
                counted.append(None)
        except Exception as error:
            failures.append(str(error))

    for _ in range(THREADS):
        threading.Thread(target=send_on, daemon=True).start()


def consume(configuration: ClientConfiguration, topic: str, group: str) -> None:
    first = threading.Event()

    class Listener(MessageListener):  # type: ignore[misc]
        def consume(self, message: Message) -> ConsumeResult:
            counted.append(None)
            first.set()
            return ConsumeResult.SUCCESS

    PushConsumer(configuration, group, Listener(), {topic: FilterExpression()}).startup()
    if not first.wait(FIRST_WITHIN_S):
        failures.append(f"no message within {FIRST_WITHIN_S} s")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main(role: str, endpoint: str, topic: str, group: str, warm: str, seconds: str) -> None:
    {"send": send, "consume": consume}[role](ClientConfiguration(endpoint, Credentials()), topic, group)
    say("ready")
    time.sleep(float(warm))
    say("begin")
    begun, since = len(counted), time.monotonic()
    time.sleep(float(seconds))
    ended, lasted = len(counted), time.monotonic() - since
    say(json.dumps({"seconds": lasted, "count": ended - begun, "all": ended, "p50_us": 0, "p99_us": 0}))
    if failures:
        print(failures[0], file=sys.stderr)
    os._exit(1 if failures else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
