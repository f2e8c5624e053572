"""Requests of clients that do not know yet who leads: a slave lets its master serve them.

RocketMQ's clients ask for routes each 30 s, and send the acknowledgement of a popped message once. Refused by
a slave that acted until a moment ago, the message would come again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from orbitmq.wire.command import Command

AskMaster: TypeAlias = Callable[[Command], Awaitable[Command] | None]


class ToMaster:
    """The way to this broker's master.

    Attributes:
        ask: passes a request on and gives the master's answer to it, ``None`` when this broker has to answer
            itself; replication sets it.
    """

    def __init__(self) -> None:
        self.ask: AskMaster = lambda _request: None
