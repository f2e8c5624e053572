"""The table of request codes: one handler for a code, and the wrappers around it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily
from orbitmq.broker.handlers.router import Router
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

CONNECTION = cast(Any, None)
PULL = RequestCode.PULL_MESSAGE


class One(HandlerFamily):
    """Answers a code with its own name."""

    def __init__(self, name: str, code: RequestCode = PULL) -> None:
        self._name = name
        self._code = code

    def routes(self) -> dict[int, Handler]:
        return {self._code: lambda _connection, command: command.reply(remark=self._name)}


def remark(router: Router) -> str | None:
    answer = router.handle(CONNECTION, Command(PULL))
    assert isinstance(answer, Command)
    return answer.remark


def test_two_handlers_of_one_code_are_refused() -> None:
    with pytest.raises(ValueError, match="request code 11 has two handlers"):
        Router([One("first"), One("second")])


def test_a_handler_that_takes_the_place_of_another_says_so() -> None:
    router = Router([One("the broker's own")])
    router.replace([One("replication's")])
    assert remark(router) == "replication's"


def test_what_stands_around_a_handler_decides_whether_it_is_called() -> None:
    def around(code: int, handler: Handler) -> Handler:
        def refuse(connection: Any, command: Command) -> Answer:
            inner = handler(connection, command)
            assert isinstance(inner, Command)
            return command.reply(remark=f"{code} {inner.remark}")

        return refuse

    router = Router([One("inside")])
    router.wrap([PULL], around)
    assert remark(router) == "11 inside"
    with pytest.raises(KeyError):
        router.wrap([RequestCode.SEND_MESSAGE], around)
