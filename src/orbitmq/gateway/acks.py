"""AckMessage with one receipt handle, as push consumers send it: without a task for each call."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from inspect import isawaitable, iscoroutine

from orbitmq.gateway import schema
from orbitmq.gateway.call import Call, Reply
from orbitmq.gateway.caller import Callers
from orbitmq.gateway.ends import Ended, Ends
from orbitmq.gateway.messages import new, parse
from orbitmq.gateway.names import group_name, topic_name
from orbitmq.gateway.status import Code, RefusalError
from orbitmq.gateway.unary import ok, refused, status, unary
from orbitmq.runtime.tasks import Background

log = logging.getLogger("orbitmq.gateway")


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An acknowledgement that is done, and not on disk yet."""

    entry: schema.AckMessageEntry
    ended: Ended
    reply: Reply


class AckMessage:
    """The handler of AckMessage.

    One task answers what waits for the disk, for as long as the service runs. A task that ended with the last
    answer would leave a gap: its owner counts it until the event loop's next turn, and refuses another.
    """

    def __init__(self, callers: Callers, ends: Ends, background: Background) -> None:
        self._callers = callers
        self._ends = ends
        self._ordinary = unary(callers, schema.AckMessageRequest, schema.AckMessageResponse, ends.acknowledge)
        self._waiting: deque[_Waiting] = deque()
        self._came = asyncio.Event()
        self._done = asyncio.Event()
        self._done.set()
        self._ok = ok()
        background.spawn(self._answer_all(), "acknowledgements")

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
            self._waiting.append(_Waiting(entry, ended, reply))
            self._came.set()
            self._done.clear()
        else:
            reply(self._answer(entry, refused(ended) if isinstance(ended, RefusalError) else self._ok))
        return True

    async def stop(self, limit_s: float) -> None:
        """Answer the calls that wait for the disk, within this time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._done.wait()

    async def _answer_all(self) -> None:
        """Answer acknowledgements as they are on disk: one write there keeps all that were done before it."""
        try:
            while True:
                await self._came.wait()
                while self._waiting:
                    each = self._waiting.popleft()
                    each.reply(self._answer(each.entry, await self._result(each.ended)))
                self._came.clear()
                self._done.set()
        finally:
            for each in self._waiting:
                # The broker stops: whether they are on disk is not known in time.
                if iscoroutine(each.ended):
                    each.ended.close()

    async def _result(self, ended: Ended) -> schema.Status:
        try:
            return await self._ends.result(ended)
        except Exception as error:
            log.exception("AckMessage failed")
            return status(Code.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")

    def _answer(self, entry: schema.AckMessageEntry, end: schema.Status) -> bytes:
        done = new(
            schema.AckMessageResultEntry,
            message_id=entry.message_id,
            receipt_handle=entry.receipt_handle,
            status=end,
        )
        return new(schema.AckMessageResponse, status=end, entries=[done]).SerializeToString()
