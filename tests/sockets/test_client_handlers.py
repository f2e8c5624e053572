"""Handlers in real threads and processes: as many as asked for, settling from any thread, signals."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq import ConsumeFrom, Consumer, Message, Producer, ReceivedMessage, Settled
from orbitmq import sync as blocking
from orbitmq.errors import ClientStateError
from orbitmq.runtime.system import system_runtime
from orbitmq.testing import running_cluster

HANDLERS = 20
WAIT_S = 60


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(str(tmp_path_factory.mktemp("cluster")), brokers=1) as cluster:
        yield cluster.name_server


def sent(name_server: str, topic: str, count: int) -> None:
    with blocking.Producer("pg", name_servers=name_server) as producer:
        for number in range(count):
            producer.send(Message(topic, b"%d" % number))


def test_plain_handlers_run_as_many_as_asked_for_and_hold_up_nothing_else(name_server: str) -> None:
    sent(name_server, "pool", HANDLERS)

    async def work() -> None:
        # All of them are inside at one time, or the barrier breaks.
        together = threading.Barrier(HANDLERS + 1)
        leave = threading.Event()

        def handler(message: ReceivedMessage) -> None:
            together.wait(WAIT_S)
            leave.wait(WAIT_S)

        runtime = system_runtime()
        options = {"name_servers": name_server, "runtime": runtime}
        async with (
            Consumer("pool", consume_from=ConsumeFrom.FIRST, concurrency=HANDLERS, **options) as consumer,
            Producer("pg", **options) as producer,
        ):
            consumer.subscribe("pool")
            running = asyncio.create_task(consumer.run(handler))
            await asyncio.get_running_loop().run_in_executor(None, together.wait, WAIT_S)
            # A body that is compressed in the runtime's own threads, and work of those.
            await asyncio.wait_for(producer.send(Message("else", bytes(200_000))), WAIT_S)
            assert await asyncio.wait_for(runtime.threads.run(lambda: 7), WAIT_S) == 7
            leave.set()
            await consumer.close()
            await running

    asyncio.run(asyncio.wait_for(work(), 3 * WAIT_S))


def test_handlers_in_threads_settle_their_messages(name_server: str) -> None:
    sent(name_server, "threads", 30)
    told: list[Settled] = []
    bodies: dict[bytes, int] = {}
    enough = threading.Event()

    def handler(batch: list[ReceivedMessage]) -> None:
        for message in batch:
            if message.body == b"3" and message.reconsume_times == 0:
                told.extend([message.retry(delay_level=1), message.ack()])
            else:
                told.append(message.ack())
            bodies[message.body] = message.reconsume_times
        if len(bodies) == 30 and bodies[b"3"] == 1:
            enough.set()

    consumer = blocking.Consumer("threads", name_servers=name_server, consume_from=ConsumeFrom.FIRST)
    consumer.on("threads")(handler)
    with consumer:
        runner = threading.Thread(target=consumer.run, kwargs={"batch": 8})
        runner.start()
        assert enough.wait(WAIT_S)
        consumer.close()
        runner.join(WAIT_S)
    assert told.count(Settled.ALREADY) == 1
    assert set(told) == {Settled.DONE, Settled.ALREADY}


@pytest.mark.behaviour("CR-29")
def test_a_blocking_consumer_subscribes_when_the_handler_is_known(name_server: str) -> None:
    """Messages that came between were sent back: their handler was not known yet."""
    sent(name_server, "early", 3)
    sent(name_server, "later", 3)
    got: dict[bytes, int] = {}
    early, later = threading.Event(), threading.Event()

    def handler(message: ReceivedMessage) -> None:
        got[message.body] = message.reconsume_times
        if len(got) == 3:
            later.set()

    consumer = blocking.Consumer("later", name_servers=name_server, consume_from=ConsumeFrom.FIRST)
    consumer.on("early")(lambda message: early.set())
    with consumer:
        runner = threading.Thread(target=consumer.run)
        runner.start()
        assert early.wait(WAIT_S)
        register = consumer.on("later")
        time.sleep(1)
        register(handler)
        assert later.wait(WAIT_S)
        consumer.close()
        runner.join(WAIT_S)
    assert set(got.values()) == {0}


@pytest.mark.behaviour("MO-26")
def test_the_last_poll_of_a_blocking_consumer_is_done_when_its_block_is_left(name_server: str) -> None:
    sent(name_server, "polled", 6)
    options = {"name_servers": name_server, "consume_from": ConsumeFrom.FIRST}
    seen: list[bytes] = []
    with contextlib.suppress(RuntimeError), blocking.PullConsumer("polled", **options) as consumer:
        consumer.subscribe("polled")
        assert consumer.poll(2, timeout=WAIT_S)
        raise RuntimeError("what was polled is not done")
    while len(seen) < 6:
        with blocking.PullConsumer("polled", **options) as consumer:
            consumer.subscribe("polled")
            seen += [message.body for message in consumer.poll(4, timeout=WAIT_S)]
    assert sorted(seen) == [b"%d" % number for number in range(6)]


@pytest.mark.behaviour("CR-02")
def test_a_plain_handler_that_exits_or_stops_iterating_has_failed_and_costs_no_thread(
    name_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    sent(name_server, "exits", 6)
    got: set[bytes] = set()
    enough = threading.Event()

    def handler(message: ReceivedMessage) -> None:
        if message.reconsume_times == 0 and int(message.body) < 4:
            next(number for number in (1, 2, 3) if number == int(message.body))  # none is 0: StopIteration
            raise SystemExit(1) if int(message.body) % 2 else asyncio.CancelledError
        got.add(message.body)
        if len(got) == 2:
            enough.set()

    consumer = blocking.Consumer(
        "exits", name_servers=name_server, consume_from=ConsumeFrom.FIRST, concurrency=2
    )
    consumer.subscribe("exits")
    with consumer:
        runner = threading.Thread(target=consumer.run, args=(handler,))
        runner.start()
        assert enough.wait(WAIT_S)
        consumer.close()
        runner.join(WAIT_S)
        assert not runner.is_alive()
    assert got == {b"4", b"5"}
    assert "handler raised SystemExit(1) in its thread" in caplog.text
    assert "handler raised StopIteration() in its thread; give next() a default" in caplog.text


@pytest.mark.behaviour("SH-05")
@pytest.mark.parametrize("kind", [blocking.Consumer, blocking.SimpleConsumer])
def test_a_plain_handler_closes_its_consumer_and_its_message_is_done(
    name_server: str, kind: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The close waited for the handler that waited for it, 10 s, and the message came again."""
    topic = f"closing{kind.__name__}"
    sent(name_server, topic, 1)
    got: list[bytes] = []

    def handler(message: ReceivedMessage) -> None:
        got.append(message.body)
        consumer.close()

    consumer = kind(topic, name_servers=name_server, consume_from=ConsumeFrom.FIRST)
    consumer.subscribe(topic)
    with consumer:
        consumer.run(handler)
    assert "still run at close" not in caplog.text
    assert got == [b"0"]
    if kind is blocking.Consumer:
        with blocking.PullConsumer(topic, name_servers=name_server) as reader:
            assert sum(max(0, reader.committed(queue)) for queue in reader.queues(topic)) == 1


def test_the_clients_own_thread_may_not_close_and_threads_that_close_wait_for_each_other(
    name_server: str,
) -> None:
    """The first left a client that could not be closed any more, in its group for ever."""
    refused: list[Exception | None] = []
    called = threading.Event()

    def done(result: object, error: Exception | None) -> None:
        try:
            producer.close()
        except ClientStateError as problem:
            refused.append(problem)
        called.set()

    producer = blocking.Producer("pg", name_servers=name_server)
    producer.start()
    producer.submit(Message("own-thread", b"x"), done).result(WAIT_S)
    assert called.wait(WAIT_S)
    assert "client's own thread" in str(refused[0])
    producer.send(Message("own-thread", b"y"))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for closing in [pool.submit(producer.close) for _ in range(4)]:
            closing.result(WAIT_S)
    with pytest.raises(ClientStateError):
        producer.send(Message("own-thread", b"z"))


def test_a_loop_without_asyncio_settles_pauses_and_takes_batches(name_server: str) -> None:
    sent(name_server, "loop", 12)
    options = {"name_servers": name_server, "consume_from": ConsumeFrom.FIRST}
    with blocking.Consumer("loop", **options) as consumer:
        consumer.subscribe("loop")
        seen = []
        for message in consumer.messages(auto_ack=False):
            with message.process():
                seen.append(message.body)
                if len(seen) == 2:
                    raise RuntimeError("comes again in 10 s")
            assert message.ack() is Settled.ALREADY
            if len(set(seen)) == 12:
                break
        consumer.pause()
        sent(name_server, "loop", 3)
        consumer.resume()
        later = 0
        for batch in consumer.batches(2):
            later += len([message for message in batch if message.reconsume_times == 0])
            if later >= 3:
                for message in batch:
                    message.ack()
                break
        consumer.commit()


def test_a_handler_that_blocks_for_ever_holds_up_neither_others_nor_the_close(
    name_server: str, caplog: pytest.LogCaptureFixture
) -> None:
    sent(name_server, "blocked", 10)
    leave = threading.Event()
    got: set[bytes] = set()

    def handler(message: ReceivedMessage) -> None:
        if message.body == b"3":
            leave.wait()
        got.add(message.body)

    options = {"name_servers": name_server, "consume_from": ConsumeFrom.FIRST}
    consumer = blocking.Consumer("blocked", concurrency=2, close_timeout=1, **options)
    consumer.subscribe("blocked")
    with consumer:
        runner = threading.Thread(target=lambda: _until_closed(consumer, handler), daemon=True)
        runner.start()
        begun = time.monotonic()
        while len(got) < 9 and time.monotonic() - begun < WAIT_S:
            time.sleep(0.01)
        assert got == {b"%d" % number for number in range(10)} - {b"3"}
        consumer.close()
    assert "1 handler calls of group blocked still run at close" in caplog.text
    # What it had is not done, so that it comes to the next member.
    with blocking.Consumer("blocked", **options) as other:
        other.subscribe("blocked")
        assert b"3" in {message.body for message in next(other.batches(10))}
    leave.set()
    runner.join(WAIT_S)


def _until_closed(consumer: blocking.Consumer, handler: Callable[[ReceivedMessage], None]) -> None:
    # The call that still runs at close has nobody to return to.
    with contextlib.suppress(concurrent.futures.CancelledError, RuntimeError):
        consumer.run(handler)


PROGRAM = """
import asyncio, sys, time
from orbitmq import ConsumeFrom, Consumer
from orbitmq.sync import Consumer as Blocking

name_server, kind = sys.argv[1:]
options = dict(name_servers=name_server, consume_from=ConsumeFrom.FIRST)

async def handler(message):
    print("begun", flush=True)
    await asyncio.sleep(1)
    print("ended", flush=True)

def plain(message):
    print("begun", flush=True)
    time.sleep(1)
    print("ended", flush=True)

async def main():
    async with Consumer("signal_async", **options) as consumer:
        consumer.subscribe("signal_async")
        await consumer.run(handler, stop_on_signals=True)

if kind == "async":
    asyncio.run(main())
else:
    with Blocking("signal_sync", **options) as consumer:
        consumer.subscribe("signal_sync")
        consumer.run(plain, stop_on_signals=True)
print("closed", flush=True)
"""


@pytest.mark.parametrize(("kind", "number"), [("async", signal.SIGTERM), ("sync", signal.SIGINT)])
def test_a_signal_lets_handlers_end_and_commits(name_server: str, kind: str, number: signal.Signals) -> None:
    sent(name_server, f"signal_{kind}", 1)
    source = str(Path(__file__).resolve().parents[2] / "src")
    command = [sys.executable, "-c", PROGRAM, name_server, kind]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": source}
    ) as program:
        assert program.stdout is not None
        try:
            assert program.stdout.readline() == "begun\n"
            program.send_signal(number)
            output = program.stdout.read()
            assert program.wait(WAIT_S) == 0
        finally:
            program.kill()
    assert output.split() == ["ended", "closed"]
    with blocking.PullConsumer(f"signal_{kind}", name_servers=name_server) as reader:
        assert sum(max(reader.committed(queue), 0) for queue in reader.queues(f"signal_{kind}")) == 1


def test_signals_are_for_the_main_thread(name_server: str) -> None:
    found: list[BaseException] = []

    def work() -> None:
        with blocking.Consumer("elsewhere", name_servers=name_server) as consumer:
            consumer.subscribe("signal")
            try:
                consumer.run(lambda message: None, stop_on_signals=True)
            except BaseException as error:
                found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(WAIT_S)
    assert "main thread" in str(found[0])
