"""Fencing: an attempt registers at the brokers, which then refuse messages of earlier attempts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from orbitmq.runtime.side_by_side import side_by_side
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.cluster.brokers import Brokers
from orbitmq.spark.errors import SinkStateError, UnreachableError
from orbitmq.spark.write.task import TaskId
from orbitmq.transport.blocking import BlockingConnection
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.writer import BindWriterRequest

# RocketMQ's brokers cannot fence. A request from a broken connection may still be in their send queue, which
# drops it after 0.2 s (waitTimeMillsInSendQueue).
LATE_REQUEST_S = 0.3
# The range of turn numbers of one attempt: after lost answers an attempt begins a new turn, which fences its
# previous one.
TURNS_OF_AN_ATTEMPT = 1 << 16


class Fencing:
    """The epoch of one attempt at the brokers.

    Args:
        brokers: the brokers of the cluster.
        task: the attempt.
    """

    def __init__(self, brokers: Brokers, task: TaskId) -> None:
        self._brokers = brokers
        self._task = task
        self._turn = task.attempt * TURNS_OF_AN_ATTEMPT

    def next_turn(self) -> None:
        """Begin a new turn because answers were lost: brokers then refuse messages of earlier turns."""
        self._turn += 1

    def bind(self, connection: BlockingConnection) -> None:
        """Register the attempt on a connection, before the first send.

        Raises:
            SinkStateError: a later attempt has taken over.
            UnreachableError: the broker refuses temporarily.
            TransportError: the broker does not answer.
        """
        self._judge(connection.address, connection.request(self._request(fence=False)))

    def end_earlier(self, addresses: Iterable[str]) -> None:
        """Fence all earlier attempts at these brokers. Raises as :meth:`bind`."""
        request = partial(self._request, fence=True)
        known = sorted(addresses)
        calls = [partial(self._brokers.ask, address, [request()]) for address in known]
        fenced = True
        for address, outcome in zip(known, side_by_side(calls) if calls else (), strict=True):
            if isinstance(outcome, Exception):
                raise outcome
            fenced &= self._judge(address, outcome[0])
        if not fenced:
            this_worker().pause(LATE_REQUEST_S)

    def _request(self, *, fence: bool) -> Command:
        task = self._task
        return BindWriterRequest(
            writer=task.query_id, run=task.run_number, part=task.partition, turn=self._turn, fence=fence
        ).command()

    def _judge(self, address: str, answer: Command) -> bool:
        """Check the answer to a registration; returns whether the broker can fence."""
        if answer.code == ResponseCode.SUCCESS:
            return True
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return False
        if answer.code == ResponseCode.ILLEGAL_OPERATION:
            raise SinkStateError(
                f"{self._task.text}: another attempt has taken over at {address}: {answer.remark}. When no "
                f"other driver runs this query, the clock of this one is behind that of the run before: wait "
                f"until it has passed it"
            )
        raise UnreachableError(f"{address} answers {answer.code}: {answer.remark}")
