"""Checks that brokers can filter by an SQL92 expression, before anything is pulled with it.

If RocketMQ cannot parse the expression of a pull, it sends every message unfiltered.
"""

from __future__ import annotations

from orbitmq.message.reserved import SQL92
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.cluster.brokers import Brokers, is_busy
from orbitmq.spark.errors import OptionError, UnreachableError
from orbitmq.spark.options import ReadOptions
from orbitmq.wire.bodies.client import CheckClientRequestBody, SubscriptionData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers.client import CheckClientConfigRequest


class FilterCheck:
    """Checks the expression of the option sql once at each broker."""

    def __init__(self, brokers: Brokers, options: ReadOptions) -> None:
        self._brokers = brokers
        self._options = options
        self._checked: set[str] = set()

    def check(self, topic: str, address: str) -> None:
        """Check the expression at the broker at ``address``, unless that was done before.

        Raises:
            OptionError: the broker cannot filter by the expression; the text gives the reason.
            UnreachableError: the broker did not answer, or is busy.
        """
        sql = self._options.sql
        if sql is None or address in self._checked:
            return
        data = SubscriptionData(topic=topic, sub_string=sql, expression_type=SQL92)
        client_id = f"{this_worker().host.pid}@orbitmq-spark"
        body = CheckClientRequestBody(client_id, self._options.consumer_group, data).encode()
        (answer,) = self._brokers.ask(address, [CheckClientConfigRequest().command(body)])
        if is_busy(answer.code):
            raise UnreachableError(f"{address} is busy: {answer.remark}")
        if answer.code != ResponseCode.SUCCESS:
            raise OptionError(f"option sql={sql!r}: {address} cannot filter by it: {answer.remark}")
        self._checked.add(address)
