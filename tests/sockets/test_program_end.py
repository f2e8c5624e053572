"""Programs that end without closing their clients: submitted messages are sent, or their number is logged."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from orbitmq import ConsumeFrom
from orbitmq.sync import PullConsumer, Reader
from orbitmq.testing import RunningCluster, running_cluster

COUNT = 500


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(str(tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster


def run(text: str, name_server: str, topic: str, **environment: str) -> tuple[int, str]:
    """The exit code and the standard error of a program."""
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), name_server, topic],
        capture_output=True, text=True, timeout=180, env={**os.environ, **environment}, check=False,
    )  # fmt: skip
    return ended.returncode, ended.stderr


def stored(cluster: RunningCluster, topic: str) -> list[bytes]:
    with Reader(topic, name_servers=cluster.name_server) as reader:
        return [message.body for message in reader]


SYNC = """
    import sys
    from orbitmq import AutoBatch, Message
    from orbitmq.sync import Producer

    producer = Producer("g", name_servers=sys.argv[1], {options})
    producer.start()
    buffer = bytearray(4)
    for number in range(500):
        buffer[:] = b"%04d" % number
        producer.submit(Message(sys.argv[2], buffer))
    buffer[:] = b"late"
    {last}
"""


@pytest.mark.behaviour("AS-15")
@pytest.mark.parametrize("options", ["", "auto_batch=AutoBatch(linger=1)", "max_in_flight=10"])
def test_what_a_blocking_producer_submitted_is_sent_at_the_end(cluster: RunningCluster, options: str) -> None:
    topic = f"end-{len(options)}"
    assert run(SYNC.format(options=options, last="pass"), cluster.name_server, topic) == (0, "")
    assert sorted(stored(cluster, topic)) == [b"%04d" % number for number in range(COUNT)]


@pytest.mark.behaviour("AS-15")
@pytest.mark.parametrize("last", ["raise SystemExit(3)", "1 / 0"])
def test_so_it_is_when_the_program_fails(cluster: RunningCluster, last: str) -> None:
    topic = f"fails-{len(last)}"
    code, _ = run(SYNC.format(options="", last=last), cluster.name_server, topic)
    assert code == (3 if "Exit" in last else 1)
    assert len(stored(cluster, topic)) == COUNT


@pytest.mark.behaviour("AS-15")
def test_so_it_is_in_a_child_of_multiprocessing(cluster: RunningCluster) -> None:
    text = """
        import multiprocessing, sys
        from orbitmq import Message
        from orbitmq.sync import Producer

        def work():
            producer = Producer("g", name_servers=sys.argv[1])
            producer.start()
            for number in range(500):
                producer.submit(Message(sys.argv[2], b"%04d" % number))

        child = multiprocessing.get_context("fork").Process(target=work)
        child.start()
        child.join()
        sys.exit(child.exitcode)
    """
    assert run(text, cluster.name_server, "child") == (0, "")
    assert len(stored(cluster, "child")) == COUNT


@pytest.mark.behaviour("AS-15")
def test_so_it_is_on_asyncios_own_loop_with_servers_that_have_names(cluster: RunningCluster) -> None:
    text = "import sys\nsys.modules['uvloop'] = None\n" + textwrap.dedent(
        SYNC.format(options="", last="pass")
    )
    names = cluster.name_server.replace("127.0.0.1", "localhost")
    assert run(text, names, "named") == (0, "")
    assert len(stored(cluster, "named")) == COUNT


@pytest.mark.behaviour("AS-15")
def test_what_cannot_be_sent_is_told_with_its_number() -> None:
    # The server never answers, so no message fails before the end of the program.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"

        def end(timeout_s: int) -> tuple[int, str]:
            return run(SYNC.format(options=f"timeout={timeout_s}", last="pass"), address, "t")

        with ThreadPoolExecutor() as beside:
            refused, late = beside.map(end, (4, 60))
        code, told = refused
        assert code == 0
        assert "500 submitted messages of producer 'g' were not stored" in told
        assert "500 submitted messages" in late[1]


@pytest.mark.behaviour("AS-15")
def test_a_blocking_consumer_commits_and_acknowledges_at_the_end(cluster: RunningCluster) -> None:
    topic = "done"
    run(SYNC.format(options="", last="producer.close()"), cluster.name_server, topic)
    text = """
        import sys, threading, time
        from orbitmq import ConsumeFrom
        from orbitmq.sync import Consumer

        consumer = Consumer("done", name_servers=sys.argv[1], consume_from=ConsumeFrom.FIRST)
        consumer.subscribe(sys.argv[2])
        consumer.start()
        handled, lock = [], threading.Lock()
        def handle(message):
            with lock:
                handled.append(message.body)
        threading.Thread(target=consumer.run, args=(handle,), daemon=True).start()
        while len(handled) < 500:
            time.sleep(0.01)
    """
    assert run(text, cluster.name_server, topic) == (0, "")
    with PullConsumer("done", name_servers=cluster.name_server, consume_from=ConsumeFrom.FIRST) as again:
        again.subscribe(topic)
        assert again.poll(timeout=3) == []


@pytest.mark.behaviour("AS-15")
@pytest.mark.parametrize("options", ["", "auto_batch=AutoBatch(linger=1)"])
@pytest.mark.parametrize("runner", ["asyncio.run", "asyncio.new_event_loop().run_until_complete"])
def test_an_event_loop_that_ends_before_tells_how_many_are_unsent(
    cluster: RunningCluster, options: str, runner: str
) -> None:
    text = """
        import asyncio, sys
        from orbitmq import AutoBatch, Message, Producer

        async def main():
            global producer
            producer = Producer("g", name_servers=sys.argv[1], {options})
            await producer.start()
            for number in range(500):
                producer.submit(Message(sys.argv[2], b"x"))

        {runner}(main())
    """
    code, told = run(text.format(options=options, runner=runner), cluster.name_server, "unsent")
    assert code == 0
    assert "event loop of producer 'g' has ended, and with it the sending of 500 submitted messages" in told


@pytest.mark.behaviour("AS-15")
def test_a_producer_that_closes_says_nothing(cluster: RunningCluster) -> None:
    text = """
        import asyncio, sys
        from orbitmq import AutoBatch, Message, Producer

        async def main():
            for options in ({}, {"auto_batch": AutoBatch()}):
                async with Producer("g", name_servers=sys.argv[1], **options) as producer:
                    for number in range(250):
                        producer.submit(Message(sys.argv[2], b"x"))

        asyncio.run(main())
    """
    assert run(text, cluster.name_server, "closed") == (0, "")
    assert len(stored(cluster, "closed")) == COUNT
