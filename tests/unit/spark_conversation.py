"""Conversations with scripted brokers, which answer whole groups of requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from orbitmq.wire.command import Command


class ScriptedConversation:
    """Gives requests to ``ask`` of the brokers at once; ``order`` chooses the response that comes next."""

    def __init__(self, brokers: Any, address: str) -> None:
        self._brokers, self._address = brokers, address
        self._answers: list[tuple[int, Command]] = []
        self._number = 0

    def send(self, commands: Sequence[Command]) -> list[int]:
        answers = self._brokers.ask(self._address, commands)
        numbers = list(range(self._number, self._number + len(commands)))
        self._number += len(commands)
        self._answers += zip(numbers, answers, strict=True)
        return numbers

    def receive(self) -> tuple[int, Command, memoryview]:
        number, answer = self._answers.pop(self._brokers.order(len(self._answers)))
        return number, answer, memoryview(answer.body)

    def close(self) -> None:
        self._brokers.unanswered += len(self._answers)
