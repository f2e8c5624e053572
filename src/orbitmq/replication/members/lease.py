"""The right to lead without name servers: the other brokers of the name give it over their links.

A master that no name server answers asks all other brokers of its name. One that no name server answers
either promises not to lead for the time after which a lost leader's right has surely run out; the master's
right lasts less long, counted from its question. All have to promise: whoever is not heard of may lead.

Pure, without a clock.
"""

from __future__ import annotations

from struct import Struct

from orbitmq.replication.link.errors import LinkError
from orbitmq.replication.members.questions import Questions

_QUESTION = Struct(">qq")
_ANSWER = Struct(">q")


def question(number: int, term: int) -> bytes:
    """A master's question: its number, and the state version of the master's tables."""
    return _QUESTION.pack(number, term)


def read_question(payload: bytes) -> tuple[int, int]:
    """Number and term.

    Raises:
        LinkError: it is no question.
    """
    if len(payload) != _QUESTION.size:
        raise LinkError(f"it asks for the lead in {len(payload)} bytes")
    number, term = _QUESTION.unpack(payload)
    return number, term


def answer(number: int) -> bytes:
    """A promise, by the number of the question."""
    return _ANSWER.pack(number)


def read_answer(payload: bytes) -> int:
    """The number of the question.

    Raises:
        LinkError: it is no promise.
    """
    if len(payload) != _ANSWER.size:
        raise LinkError(f"it leaves the lead to us in {len(payload)} bytes")
    (number,) = _ANSWER.unpack(payload)
    return int(number)


class Leases:
    """The promises that one broker holds.

    Args:
        needed: how many other brokers the name has (totalReplicas without this one); with none there is
            nobody to promise, and no right.
    """

    def __init__(self, needed: int) -> None:
        self._needed = needed
        self._questions = Questions()
        self._given: dict[int, float] = {}

    def ask(self, now_s: float) -> int:
        """The number of a question that is sent now."""
        return self._questions.ask(now_s)

    def given(self, broker_id: int, number: int) -> None:
        """A broker promised in answer to a question; one from before :meth:`withdraw` gives nothing."""
        sent_s = self._questions.sent_s(number)
        if sent_s is not None:
            self._given[broker_id] = max(sent_s, self._given.get(broker_id, sent_s))

    def withdraw(self) -> None:
        """Give back what was promised, and what is under way."""
        self._questions.withdraw()
        self._given.clear()

    @property
    def since_s(self) -> float | None:
        """When the question was sent that the last of all others has answered; ``None``: one has not."""
        if not 0 < self._needed <= len(self._given):
            return None
        return sorted(self._given.values(), reverse=True)[self._needed - 1]
