"""The handler of AckMessage. A call with one receipt handle, as push consumers send it, needs no task."""

from __future__ import annotations

import logging
from functools import partial
from inspect import isawaitable

from orbitmq.gateway import schema
from orbitmq.gateway.call import Call, Reply
from orbitmq.gateway.caller import Callers
from orbitmq.gateway.ends import Ends, unsettled
from orbitmq.gateway.messages import new, parse
from orbitmq.gateway.names import group_name, topic_name
from orbitmq.gateway.saves import Saves
from orbitmq.gateway.status import PORT_ERRORS, Code, RefusalError
from orbitmq.gateway.unary import Unary, ok, refused, status

log = logging.getLogger("orbitmq.gateway")


class AckMessage:
    """The handler of AckMessage.

    :mod:`orbitmq.gateway.plain_acks` handles acknowledgements with plain handles before they reach it.
    """

    def __init__(self, callers: Callers, ends: Ends, saves: Saves) -> None:
        self._callers = callers
        self._ends = ends
        self._saves = saves
        self._ordinary = Unary(callers, schema.AckMessageRequest, schema.AckMessageResponse, ends.acknowledge)

    async def __call__(self, call: Call) -> None:
        await self._ordinary(call)

    def begin(self, call: Call, message: bytes, reply: Reply) -> bool:
        """See :data:`~orbitmq.gateway.call.Begin`."""
        request = parse(schema.AckMessageRequest, message)
        if len(request.entries) != 1:
            return False
        entry = request.entries[0]
        try:
            self._callers.of(call, request)
            topic, group = topic_name(request.topic), group_name(request.group)
        except RefusalError as error:
            reply(new(schema.AckMessageResponse, status=refused(error)).SerializeToString())
            return True
        ended = self._ends.begin(topic, group, entry.receipt_handle)
        if isawaitable(ended):
            self._saves.add(ended, partial(_answer, entry, reply))
        else:
            _answer(entry, reply, ended)
        return True


def _answer(entry: schema.AckMessageEntry, reply: Reply, error: Exception | None) -> None:
    end = _status(error)
    done = new(
        schema.AckMessageResultEntry,
        message_id=entry.message_id,
        receipt_handle=entry.receipt_handle,
        status=end,
    )
    reply(new(schema.AckMessageResponse, status=end, entries=[done]).SerializeToString())


def not_kept(answer: bytes, error: Exception) -> bytes:
    """A good answer, changed to one for an acknowledgement that the disk may have lost."""
    response = parse(schema.AckMessageResponse, answer)
    end = _status(error)
    response.status.CopyFrom(end)
    for entry in response.entries:
        entry.status.CopyFrom(end)
    return response.SerializeToString()


def _status(error: Exception | None) -> schema.Status:
    if error is None:
        return ok()
    if isinstance(error, RefusalError):
        return refused(error)
    if isinstance(error, PORT_ERRORS):
        return refused(unsettled(error))
    log.error("AckMessage failed", exc_info=error)
    return status(Code.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
