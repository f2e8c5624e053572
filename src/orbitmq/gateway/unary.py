"""Calls with one request message and one response message."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from orbitmq.gateway import schema
from orbitmq.gateway.call import Call, CallError, GrpcStatus, Handler
from orbitmq.gateway.caller import Caller, Callers
from orbitmq.gateway.messages import new, parse
from orbitmq.gateway.status import PORT_ERRORS, Code, RefusalError, refusal

Q = TypeVar("Q", bound=schema.Form)
A = TypeVar("A", bound=schema.Form)


def status(code: Code, message: str = "") -> schema.Status:
    """A status; without a message it says the name of its code."""
    return new(schema.Status, code=code, message=message or code.name)


def ok() -> schema.Status:
    return status(Code.OK)


def refused(error: RefusalError) -> schema.Status:
    """The status of a refusal."""
    return status(error.code, error.message)


async def request_of(call: Call, form: type[Q]) -> Q:
    """The request message of a call.

    Raises:
        CallError: there is none, or it cannot be read.
    """
    data = await call.read()
    if data is None:
        raise CallError(GrpcStatus.INVALID_ARGUMENT, f"{call.method} came without a message")
    return parse(form, data)


def unary(
    callers: Callers, question: type[Q], answer: type[A], work: Callable[[Caller, Q], Awaitable[A]]
) -> Handler:
    """The handler of a call: a refusal that ``work`` raises becomes the status of the answer.

    Args:
        answer: has a field ``status``.
    """

    async def handle(call: Call) -> None:
        request = await request_of(call, question)
        try:
            response = await work(callers.of(call, request), request)
        except RefusalError as error:
            response = new(answer, status=refused(error))
        except PORT_ERRORS as error:
            response = new(answer, status=refused(refusal(error)))
        await call.write(response.SerializeToString())

    return handle
