"""Producers that wait."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Unpack

from orbitmq.client.keywords import shows_keywords
from orbitmq.client.model import SendResult
from orbitmq.client.producer import producer, transactional
from orbitmq.client.producer.callbacks import Done
from orbitmq.client.producer.faults import FaultItem
from orbitmq.client.producer.options import ProducerKeywords, ProducerOptions
from orbitmq.client.producer.queue_choice import Selector
from orbitmq.client.producer.taken import taken
from orbitmq.client.producer.transactional import Check, Execute, Transaction, TransactionResult
from orbitmq.durations import Duration
from orbitmq.message.model import Message, MessageQueue, ReceivedMessage
from orbitmq.sync.face import Face


class Producer(Face):
    """Sends messages, each call waiting for its answer; see :class:`orbitmq.Producer`.

    Takes the same arguments, and raises the same errors.
    """

    @shows_keywords(ProducerOptions)
    def __init__(self, group: str, **options: Unpack[ProducerKeywords]) -> None:
        super().__init__()
        self._core: producer.Producer = producer.Producer(group, **options)

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        ordering_key: object | None = None,
        selector: Selector | None = None,
        timeout: Duration | None = None,
    ) -> SendResult:
        """Send one message and wait until the broker has stored it.

        Raises:
            ValidationError, SendError, ClientStateError: as :meth:`orbitmq.Producer.send`.
        """
        return self._running().wait(
            self._core.send(
                message, queue=queue, ordering_key=ordering_key, selector=selector, timeout=timeout
            )
        )

    def submit(
        self,
        message: Message,
        done: Done | None = None,
        *,
        queue: MessageQueue | None = None,
        ordering_key: object | None = None,
        selector: Selector | None = None,
        timeout: Duration | None = None,
    ) -> concurrent.futures.Future[SendResult]:
        """Send without waiting; the future gives the result or the error, all errors included.

        Args:
            done: called with the result and None, or with None and the error: on the client's thread, which a
                slow one holds up, or in threads of their own with ``callback_threads``. Callbacks added to
                the future run on the client's thread.
        """

        as_now = taken(message)

        async def submitted() -> SendResult:
            return await self._core.submit(
                as_now,
                done,
                queue=queue,
                ordering_key=ordering_key,
                selector=selector,
                timeout=timeout,
            )

        return self._running().submit(submitted())

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        ordering_key: object | None = None,
        timeout: Duration | None = None,
    ) -> None:
        """Hand one message to a connection; there is no answer to say whether it was stored."""
        self._running().wait(
            self._core.send_oneway(message, queue=queue, ordering_key=ordering_key, timeout=timeout)
        )

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout: Duration | None = None,
    ) -> SendResult:
        """Send messages of one topic in one request."""
        return self._running().wait(self._core.send_batch(messages, queue=queue, timeout=timeout))

    def request(
        self,
        message: Message,
        *,
        timeout: Duration,
        queue: MessageQueue | None = None,
        ordering_key: object | None = None,
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of whoever consumes it."""
        return self._running().wait(
            self._core.request(message, timeout=timeout, queue=queue, ordering_key=ordering_key)
        )

    def reply(
        self, request: ReceivedMessage, body: bytes | str, *, timeout: Duration | None = None
    ) -> SendResult:
        """Answer a request."""
        return self._running().wait(self._core.reply(request, body, timeout=timeout))

    def recall(self, topic: str, handle: str, *, timeout: Duration | None = None) -> str:
        """Take back a message that waits for its time; its unique id."""
        return self._running().wait(self._core.recall(topic, handle, timeout=timeout))

    def queues(self, topic: str) -> list[MessageQueue]:
        """The queues of ``topic`` that can be written to now."""
        return self._running().wait(self._core.queues(topic))

    def fault_table(self) -> list[FaultItem]:
        """Latency, isolation and reachability noted of each broker."""
        return self._running().call(self._core.fault_table)


class TransactionProducer(Producer):
    """Sends transactions; see :class:`orbitmq.client.producer.transactional.TransactionProducer`.

    Takes the same arguments; ``check`` and ``execute`` run in threads of the runtime's pool.
    """

    @shows_keywords(ProducerOptions)
    def __init__(self, group: str, *, check: Check, **options: Unpack[ProducerKeywords]) -> None:
        Face.__init__(self)
        self._core: transactional.TransactionProducer = transactional.TransactionProducer(
            group, check=check, **options
        )

    def send_in_transaction(
        self, message: Message, execute: Execute, *, timeout: Duration | None = None
    ) -> TransactionResult:
        """Store ``message`` where no consumer sees it, do ``execute(message)``, and commit or roll back."""
        return self._running().wait(self._core.send_in_transaction(message, execute, timeout=timeout))

    @contextmanager
    def transaction(self, message: Message, *, timeout: Duration | None = None) -> Iterator[Transaction]:
        """The same as a block: consumers see ``message`` when it is left without an exception."""
        loop = self._running()
        block = self._core.transaction(message, timeout=timeout)
        under_way = loop.wait(block.__aenter__())
        try:
            yield under_way
        except Exception as error:
            loop.wait(block.__aexit__(type(error), error, error.__traceback__))
            raise
        loop.wait(block.__aexit__(None, None, None))
