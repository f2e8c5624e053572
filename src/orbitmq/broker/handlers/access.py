"""Users and rules (AdminBrokerProcessor, 3001 to 3010), and the accounts of ACL 1.0 (50 to 54)."""

from __future__ import annotations

from orbitmq.broker.handlers.base import Answer, Handler, HandlerFamily
from orbitmq.transport.private_answers import PrivateAnswers


class AccessHandlers(HandlerFamily):
    """Changes and listings of users, rules and accounts."""

    def __init__(self, answers: PrivateAnswers[Answer]) -> None:
        self._answers = answers

    def routes(self) -> dict[int, Handler]:
        return dict.fromkeys(self._answers.codes, self._answers.answer)
