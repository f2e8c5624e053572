"""Reconciles a replayed batch on the driver: compares the rows of its tasks with the stored messages."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping

from orbitmq.message import property_names
from orbitmq.message.batch import encode_batch
from orbitmq.message.model import Message
from orbitmq.message.properties import decode_properties
from orbitmq.spark.cluster.brokers import Brokers
from orbitmq.spark.errors import SinkStateError, UnreachableError
from orbitmq.spark.options import WriteOptions
from orbitmq.spark.write.fencing import Fencing
from orbitmq.spark.write.in_flight import InFlight, SendRequest
from orbitmq.spark.write.metrics import SendMetrics
from orbitmq.spark.write.replay import reconcile
from orbitmq.spark.write.scan import Found, StoredRows
from orbitmq.spark.write.task import DRIVER, SPARK_ID, Since, TaskId, id_mark, unique_key

log = logging.getLogger("orbitmq.spark")


class BatchReconciliation:
    """Reconciles one batch to which several attempts have sent parts.

    Args:
        driver: the task id for missing messages that the driver sends.
        begun: the offsets at which the search for messages of the batch begins, by topic.
        delayed: whether the data frame has a column that delays messages.
        remedy: the advice for a batch whose stored messages do not match its rows.
    """

    def __init__(
        self,
        options: WriteOptions,
        brokers: Brokers,
        driver: TaskId,
        begun: Mapping[str, Since],
        *,
        delayed: bool,
        remedy: str,
    ) -> None:
        self._options = options
        self._brokers = brokers
        self._driver = driver
        self._begun = begun
        self._delayed = delayed
        self._remedy = remedy
        self._fencing = Fencing(brokers, driver)
        self._stored = StoredRows(options, brokers, delayed=delayed, fencing=self._fencing)
        self._mark = id_mark(driver.query_id, driver.batch_id)

    def reconcile(self, successful: Mapping[int, str], matched: Iterable[int], rows: int) -> SendMetrics:
        """Compare rows and stored messages, and send missing messages; see :mod:`orbitmq.spark.write.replay`.

        Args:
            rows: the number of rows of the batch, for error texts.

        Raises:
            SinkStateError: messages without a row are stored; the text has the counts.
            UnreachableError: a broker was away for too long.
        """
        stored = (
            row for topic, since in self._begun.items() for row in self._stored.rows(topic, since, self._mark)
        )
        found = reconcile(stored, successful, matched)
        log.info(
            "batch %d is a replay: %d messages were stored earlier", self._driver.batch_id, found.earlier
        )
        if found.unmatched:
            raise SinkStateError(
                f"batch {self._driver.batch_id}: {found.unmatched} of the {found.earlier} messages that "
                f"earlier attempts stored fit none of its {rows} rows. Either a replay of the batch gives "
                f"other rows (rand(), uuid(), current_timestamp(), a changed source), or an attempt that "
                f"was thought dead has sent once more. {self._remedy}"
            )
        return self._send(found.missing)

    def _send(self, missing: Counter[int]) -> SendMetrics:
        """Send equal rows that no task has sent, because several tasks took one stored message for their own
        row.
        """
        metrics = SendMetrics()
        if not missing:
            return metrics
        if self._delayed:
            raise SinkStateError(
                f"batch {self._driver.batch_id}: {missing.total()} delayed rows are equal to others in other "
                f"partitions, so a replay cannot tell them apart: give each a key of its own. {self._remedy}"
            )
        flights = InFlight(self._brokers, self._options, metrics, 0, self._fencing)
        number = 0
        try:
            for topic, since in self._begun.items():
                for found in self._stored.messages(topic, since, self._mark):
                    for _ in range(missing.pop(found.row.digest, 0)):
                        flights.send(SendRequest(topic, self._copy(found, number), 1, found.queue))
                        number += 1
            flights.drain()
            if flights.failures:
                raise UnreachableError(
                    f"{len(flights.failures)} messages were not taken: {flights.failures[0].reason}"
                )
        finally:
            flights.close()
        return metrics

    def _copy(self, found: Found, number: int) -> bytes:
        properties = decode_properties(found.properties)
        properties[property_names.UNIQ_KEY] = unique_key(self._driver.key_prefix, number)
        digest = f"{found.row.digest:016x}"
        properties[SPARK_ID] = f"{self._driver.text}/{self._driver.attempt_text}/{number}/{digest}"
        return encode_batch([Message(found.queue.topic, found.body, properties=properties)])


def driver_task(query_id: str, batch_id: int, run: str) -> TaskId:
    """The task id of messages that the driver itself sends."""
    return TaskId(query_id, batch_id, DRIVER, run, 0)
