"""Whether brokers can filter by an SQL92 expression, asked before anything is pulled with it.

RocketMQ sends every message, unfiltered, when it is asked to pull by an expression that it cannot parse.
"""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.message.reserved import SQL92
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.cluster.brokers import Brokers, Patience, is_busy
from orbitmq.spark.errors import OptionError, UnreachableError
from orbitmq.spark.options import ReadOptions
from orbitmq.wire.bodies.client import CheckClientRequestBody, SubscriptionData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers.client import CheckClientConfigRequest


class FilterCheck:
    """Asks each broker once about the expression of the option sql."""

    def __init__(self, brokers: Brokers, options: ReadOptions) -> None:
        self._brokers = brokers
        self._options = options
        self._checked: set[str] = set()

    def check(self, topic: str, addresses: Iterable[str]) -> None:
        """Ask the brokers at ``addresses``; waits for those that are away, as long as planning does.

        Raises:
            OptionError: one of them cannot filter by the expression; the text says why.
            UnreachableError: one of them did not answer in time.
        """
        if self._options.sql is None:
            return
        for address in sorted(set(addresses) - self._checked):
            patience = Patience(self._options.plan_timeout_ms)
            while not self._is_checked(topic, address, patience):
                patience.pause()
            self._checked.add(address)

    def _is_checked(self, topic: str, address: str, patience: Patience) -> bool:
        sql = self._options.sql or ""
        data = SubscriptionData(topic=topic, sub_string=sql, expression_type=SQL92)
        client_id = f"{this_worker().host.pid}@orbitmq-spark"
        body = CheckClientRequestBody(client_id, self._options.consumer_group, data).encode()
        try:
            (answer,) = self._brokers.ask(address, [CheckClientConfigRequest().command(body)])
        except UnreachableError:
            if patience.is_over:
                raise
            return False
        if is_busy(answer.code) and not patience.is_over:
            return False
        if answer.code != ResponseCode.SUCCESS:
            raise OptionError(f"option sql={sql!r}: {address} cannot filter by it: {answer.remark}")
        return True
