"""Promises of other brokers that hold for a time, and the frames that ask for the right to lead.

A promise is the answer to a numbered question, and holds from when that question was sent: the broker that
promised counts from its answer, so for longer. A master that no name server answers asks all other brokers of
its name for the right to lead: a broker that no name server answers either promises not to lead for that
time, and all must promise. A slave asks only its leader whether it may rely on its copy of the queue locks,
see ``heir``.

Pure, without a clock.
"""

from __future__ import annotations

from collections import OrderedDict
from struct import Struct

from orbitmq.replication.link.errors import LinkError

# An answer is ignored if this many later questions were asked.
MAX_QUESTIONS = 16

_QUESTION = Struct(">qq")
_ANSWER = Struct(">q")


def question(number: int, term: int) -> bytes:
    """A master's question: its number, and the state version of the master's tables."""
    return _QUESTION.pack(number, term)


def read_question(payload: bytes) -> tuple[int, int]:
    """Number and term.

    Raises:
        LinkError: the payload is not a question.
    """
    if len(payload) != _QUESTION.size:
        raise LinkError(f"a request for the lead has {len(payload)} bytes")
    number, term = _QUESTION.unpack(payload)
    return number, term


def answer(number: int) -> bytes:
    """A promise, by the number of the question."""
    return _ANSWER.pack(number)


def read_answer(payload: bytes) -> int:
    """The number of the question.

    Raises:
        LinkError: the payload is not a promise.
    """
    if len(payload) != _ANSWER.size:
        raise LinkError(f"an answer to a request for the lead has {len(payload)} bytes")
    (number,) = _ANSWER.unpack(payload)
    return int(number)


class Lease:
    """The promises that one broker has from others.

    Args:
        needed: how many brokers have to promise; 0: there is no other broker, and so no right.
        lasts_s: how long a promise holds.
    """

    def __init__(self, needed: int, lasts_s: float) -> None:
        self._needed = needed
        self.lasts_s = lasts_s
        self._number = 0
        self._sent_s: OrderedDict[int, float] = OrderedDict()
        self._given: dict[int, float] = {}

    def new_request(self, now_s: float) -> int:
        """The number for a question that is sent now."""
        self._number += 1
        self._sent_s[self._number] = now_s
        if len(self._sent_s) > MAX_QUESTIONS:
            self._sent_s.popitem(last=False)
        return self._number

    def given(self, broker_id: int, number: int) -> None:
        """Note a promise in answer to a question; ignored if the question was asked before
        :meth:`withdraw`."""
        sent_s = self._sent_s.get(number)
        if sent_s is not None:
            self._given[broker_id] = max(sent_s, self._given.get(broker_id, sent_s))

    def withdraw(self) -> None:
        """End all promises, and ignore the answers to questions asked until now."""
        self._sent_s.clear()
        self._given.clear()

    @property
    def since_s(self) -> float | None:
        """When the oldest needed promise was asked for; ``None``: too few brokers have promised."""
        if not 0 < self._needed <= len(self._given):
            return None
        return sorted(self._given.values(), reverse=True)[self._needed - 1]

    def holds(self, now_s: float) -> bool:
        """Whether all needed promises were given and still hold."""
        since_s = self.since_s
        return since_s is not None and now_s < since_s + self.lasts_s
