"""The handler of calls with one request message and one response message, and the statuses of answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Generic, TypeVar

from orbitmq.gateway import schema
from orbitmq.gateway.call import Call, CallError, GrpcStatus, Reply
from orbitmq.gateway.caller import Caller, Callers
from orbitmq.gateway.messages import new, parse
from orbitmq.gateway.status import PORT_ERRORS, Code, RefusalError, refusal

Q = TypeVar("Q", bound=schema.Form)
A = TypeVar("A", bound=schema.Form)


def status(code: Code, message: str = "") -> schema.Status:
    """A status; its message is the code's name unless one is given."""
    return new(schema.Status, code=code, message=message or code.name)


def ok() -> schema.Status:
    return status(Code.OK)


def refused(error: RefusalError) -> schema.Status:
    """The status of a refusal."""
    return status(error.code, error.message)


async def request_of(call: Call, form: type[Q]) -> Q:
    """The request message of a call.

    Raises:
        CallError: the call has no message, or the message cannot be read.
    """
    data = await call.read()
    if data is None:
        raise CallError(GrpcStatus.INVALID_ARGUMENT, f"{call.method} came without a message")
    return parse(form, data)


class Unary(Generic[Q, A]):
    """The handler of one method. A refusal that the work raises becomes the status of the answer.

    Args:
        answer: the class of the response, which has a field ``status``.
        now: does the work without waiting, and so without a task. Returns None, and does nothing, if it would
            have to wait. Without this argument each call has a task.
    """

    def __init__(
        self,
        callers: Callers,
        question: type[Q],
        answer: type[A],
        work: Callable[[Caller, Q], Awaitable[A]],
        now: Callable[[Caller, Q], A | None] | None = None,
    ) -> None:
        self._callers = callers
        self._question = question
        self._answer = answer
        self._work = work
        if now is not None:
            self.begin = partial(self._begin, now)

    async def __call__(self, call: Call) -> None:
        request = await request_of(call, self._question)
        try:
            response = await self._work(self._callers.of(call, request), request)
        except RefusalError as error:
            response = new(self._answer, status=refused(error))
        except PORT_ERRORS as error:
            response = new(self._answer, status=refused(refusal(error)))
        await call.write(response.SerializeToString())

    def _begin(self, now: Callable[[Caller, Q], A | None], call: Call, message: bytes, reply: Reply) -> bool:
        """See :data:`~orbitmq.gateway.call.Begin`."""
        request = parse(self._question, message)
        response: A | None
        try:
            response = now(self._callers.of(call, request), request)
        except RefusalError as error:
            response = new(self._answer, status=refused(error))
        except PORT_ERRORS as error:
            response = new(self._answer, status=refused(refusal(error)))
        if response is None:
            return False
        reply(response.SerializeToString())
        return True
