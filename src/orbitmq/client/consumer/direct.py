"""One message handled at an operator's request, outside the queues (CONSUME_MESSAGE_DIRECTLY, DQ-06)."""

from __future__ import annotations

import logging

from orbitmq.client.consumer.handling import Call
from orbitmq.message.model import ReceivedMessage
from orbitmq.message.settling import Ending, Settled, Verdict, open_delivery
from orbitmq.message.utf8 import for_people
from orbitmq.runtime.seam import Clock
from orbitmq.runtime.tasks import failed_itself
from orbitmq.wire.bodies.client import CMResult, ConsumeMessageDirectlyResult

log = logging.getLogger("orbitmq.client")


class _Asked:
    """Owner of the message: keeps the handler's verdict for the operator's answer and does nothing else."""

    def settled(self, message: ReceivedMessage, verdict: Verdict) -> Settled:
        return Settled.DONE


async def consume_directly(
    call: Call, message: ReceivedMessage, clock: Clock, *, in_batch: bool
) -> ConsumeMessageDirectlyResult:
    """Give one message to the handler and return the outcome.

    Args:
        in_batch: the handler takes lists.
    """
    open_delivery(message, _Asked())
    begun = clock.monotonic()
    result = ConsumeMessageDirectlyResult(consume_result=CMResult.CR_SUCCESS)
    try:
        await call([message] if in_batch else message)
    except BaseException as error:
        if not failed_itself(error):
            raise
        log.warning("handler failed on %s, consumed on request", message.message_id, exc_info=error)
        result.consume_result, result.remark = CMResult.CR_THROW_EXCEPTION, repr(error)
    verdict = message.verdict
    if verdict is not None and verdict.ending is not Ending.ACK:
        failed = verdict.error is not None
        result.consume_result = CMResult.CR_THROW_EXCEPTION if failed else CMResult.CR_LATER
        result.remark = repr(verdict.error) if failed else for_people(verdict.reason) or None
    result.spent_time_mills = int((clock.monotonic() - begun) * 1000)
    return result
