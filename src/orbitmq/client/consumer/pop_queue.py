"""The popped messages of one stored queue that a push consumer works on."""

from __future__ import annotations

from orbitmq.client.consumer.leases import AT_ONCE, Lease
from orbitmq.client.consumer.process_queue import OnSettled, ProcessQueue, TotalSize
from orbitmq.client.consumer.redelivery import DEAD_LETTER_LEVEL
from orbitmq.message.model import MessageQueue, ReceivedMessage
from orbitmq.message.settling import ACK, Ending, Verdict, open_delivery
from orbitmq.runtime.waiters import Waiters


class PopQueue(ProcessQueue):
    """A queue whose messages have leases: finished messages are acknowledged, not committed.

    Failed messages are not sent back: the client changes their invisible time, after which the broker
    delivers them again.

    Args:
        changes: shared by all queues of one pop loop.
        most_redeliveries: a message that fails after this many deliveries becomes a dead letter; None: after
            the number set for the group at the broker.
        ordered: the broker gives out no further message of the queue until all are done or their time is
            over. A message whose time is over is delivered again before later ones, so the leases of the
            later ones are lost, too.
    """

    __slots__ = ("_gone", "_leases", "_most_redeliveries", "_ordered")
    locked = False

    def __init__(
        self,
        queue: MessageQueue,
        total: TotalSize,
        on_settled: OnSettled,
        changes: Waiters,
        most_redeliveries: int | None,
        *,
        ordered: bool = False,
    ) -> None:
        super().__init__(queue, 0, total, on_settled, changes)
        self.redelivery = self
        self._most_redeliveries = most_redeliveries
        self._ordered = ordered
        self._leases: dict[int, Lease] = {}
        # Owner of messages that still wait for a handler after their lease ended: every verdict on them gets
        # GONE.
        self._gone = ProcessQueue(queue, 0)
        self._gone.drop()

    def admit(self, lease: Lease) -> bool:
        """Add a popped message; False if the queue holds it already."""
        if not self.add((lease.message,)):
            return False
        self._leases[lease.message.queue_offset] = lease
        return True

    def __contains__(self, offset: int) -> bool:
        lease = self._leases.get(offset)
        if lease is None or lease.over:
            return False
        return not self._ordered or not any(each.over for each in self._leases.values())

    def finish(self, offset: int) -> bool:
        """Finish a message and acknowledge it, unless it was given back or the consumer is closed."""
        if not self.released:
            self._end(offset, ACK)
        return super().finish(offset)

    async def send_back(
        self,
        message: ReceivedMessage,
        delay_level: int = 0,
        delay_s: float | None = None,
        reason: str = "",
    ) -> bool:
        """Have a message delivered again, with a delay that grows, or make it a dead letter. If the broker
        does not answer, the message is delivered again when its invisible time is over.
        """
        most = self._most_redeliveries
        if delay_level < 0 or (most is not None and message.reconsume_times >= most):
            verdict = Verdict(Ending.REJECT, DEAD_LETTER_LEVEL, reason=reason)
        else:
            verdict = Verdict(Ending.RETRY, delay_level, delay_s, reason)
        self._end(message.queue_offset, verdict)
        return True

    async def give_up(self, message: ReceivedMessage, *, dead: bool) -> bool:
        """Make a message a dead letter, so that later messages are delivered."""
        self._end(message.queue_offset, Verdict(Ending.REJECT, DEAD_LETTER_LEVEL))
        return True

    def forget_expired(self) -> None:
        """Give up messages whose invisible time is over: the broker delivers them again."""
        leases = list(self._leases.items())
        broken = self._ordered and any(lease.over for _, lease in leases)
        for offset, lease in leases:
            if lease.over or broken:
                del self._leases[offset]
                lease.leases.drop(lease)
                self._leave(offset, lease)
        if broken:
            # The broker delivers the remaining offsets once more, as new deliveries.
            self.line.clear()

    def give_back(self) -> None:
        """Give back messages that no handler has begun, so that other members get them."""
        for offset, lease in list(self._leases.items()):
            if offset not in self.begun:
                self._end(offset, AT_ONCE)
                self._leave(offset, lease)

    def _leave(self, offset: int, lease: Lease) -> None:
        if offset not in self.begun:
            open_delivery(lease.message, self._gone)
        super().finish(offset)

    def _end(self, offset: int, verdict: Verdict) -> None:
        lease = self._leases.pop(offset, None)
        if lease is not None:
            lease.settled(lease.message, verdict)
