"""Transactions and requests for programs without asyncio, on real sockets."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from orbitmq import Message, ReceivedMessage, TransactionState
from orbitmq.client.model import ConsumeFrom
from orbitmq.cluster.local import LocalCluster
from orbitmq.runtime.system import system_runtime
from orbitmq.sync import Consumer, Producer, TransactionProducer

COMMIT = TransactionState.COMMIT


def test_a_program_without_asyncio_commits_asks_and_answers(tmp_path: Path) -> None:
    async def main() -> None:
        settings = {"transactionTimeOut": "100"}
        async with LocalCluster(
            system_runtime(), brokers=1, root=str(tmp_path), settings=settings
        ) as cluster:
            await asyncio.to_thread(_program, cluster.name_server)

    asyncio.run(main())


def _program(name_servers: str) -> None:
    bodies: list[bytes] = []
    checked = threading.Event()

    def check(message: ReceivedMessage) -> TransactionState:
        assert message.body == b"checked"
        checked.set()
        return COMMIT

    def listen(message: ReceivedMessage) -> None:
        if message.body == b"question":
            answering.reply(message, b"answer")
        else:
            bodies.append(message.body)

    with (
        TransactionProducer("pg", check=check, name_servers=name_servers) as producer,
        Producer("answerers", name_servers=name_servers) as answering,
        Consumer("cg", name_servers=name_servers, consume_from=ConsumeFrom.FIRST) as consumer,
    ):
        result = producer.send_in_transaction(Message("Orders", b"one"), lambda _message: COMMIT)
        assert result.state is COMMIT
        with producer.transaction(Message("Orders", b"two")) as transaction:
            assert transaction.message.message_id
        with (
            pytest.raises(ZeroDivisionError),
            producer.transaction(Message("Orders", b"checked")),
        ):
            _ = 1 / 0
        assert checked.wait(60)
        consumer.subscribe("Orders")
        thread = threading.Thread(target=consumer.run, args=(listen,))
        thread.start()
        reply = producer.request(Message("Orders", b"question"), timeout=60)
        assert reply.body == b"answer"
        consumer.close()
        thread.join(60)
        assert sorted(set(bodies)) == [b"checked", b"one", b"two"]
