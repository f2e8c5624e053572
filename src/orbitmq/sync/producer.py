"""Blocking producers."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from orbitmq.client.model import SendResult
from orbitmq.client.producer import producer, transactional
from orbitmq.client.producer.taken import taken
from orbitmq.client.producer.transactional import Transaction
from orbitmq.message.model import Message
from orbitmq.sync.blocking import GroupClient, blocking, made_as, on_loop, parameters_of

C = TypeVar("C", bound=producer.Producer)


class _Producer(GroupClient[C]):
    """The methods that producers with and without transactions have in common."""

    send = blocking(producer.Producer.send)
    send_batch = blocking(producer.Producer.send_batch)
    send_oneway = blocking(producer.Producer.send_oneway)
    request = blocking(producer.Producer.request)
    reply = blocking(producer.Producer.reply)
    flush = blocking(producer.Producer.flush)
    recall = blocking(producer.Producer.recall)
    queues = blocking(producer.Producer.queues)
    fault_table = on_loop(producer.Producer.fault_table)

    @parameters_of(producer.Producer.submit)
    def submit(self, message: Message, *args: Any, **options: Any) -> concurrent.futures.Future[SendResult]:
        """Send without waiting; the future gets the result or the error, whatever its kind.

        Args:
            done: called with the result and None, or with None and the error: on the client's thread, which a
                slow callback blocks, or with ``callback_threads`` in separate threads. Callbacks added to the
                future run on the client's thread.
        """
        as_now = taken(message)

        async def submitted() -> SendResult:
            return await self._core.submit(as_now, *args, **options)

        return self._running().submit(submitted())


class Producer(_Producer[producer.Producer]):
    """Sends messages, each call waiting for its answer; see :class:`orbitmq.Producer`.

    Takes the same arguments, and raises the same errors.
    """

    @made_as(producer.Producer)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(producer.Producer(*args, **options))


class TransactionProducer(_Producer[transactional.TransactionProducer]):
    """Sends transactions; see :class:`orbitmq.TransactionProducer`.

    Takes the same arguments; ``check`` and ``execute`` run in threads of the runtime's pool.
    """

    @made_as(transactional.TransactionProducer)
    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(transactional.TransactionProducer(*args, **options))

    send_in_transaction = blocking(transactional.TransactionProducer.send_in_transaction)

    @parameters_of(transactional.TransactionProducer.transaction)
    @contextmanager
    def transaction(self, message: Message, **options: Any) -> Iterator[Transaction]:
        """A transaction as a block: consumers see ``message`` if the block is left without an exception."""
        loop = self._running()
        block = self._core.transaction(message, **options)
        under_way = loop.wait(block.__aenter__())
        try:
            yield under_way
        except Exception as error:
            loop.wait(block.__aexit__(type(error), error, error.__traceback__))
            raise
        loop.wait(block.__aexit__(None, None, None))
