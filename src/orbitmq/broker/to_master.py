"""Requests of clients that do not know the new leader yet: a slave lets its master serve them.

RocketMQ's clients ask for routes every 30 s, and send the acknowledgement of a popped message once. If a
slave that acted until a moment ago refused that, the message would be delivered again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from orbitmq.wire.command import Command

AskMaster: TypeAlias = Callable[[Command, str], Awaitable[Command] | None]


class ToMaster:
    """The way to this broker's master.

    Attributes:
        ask: passes a request of a client at a host on and returns the master's answer; ``None``: this broker
            has to answer itself; replication sets it.
        keeps_users: whether this broker is a slave with users and rules of its own, since it does not
            get those of its master; replication sets it.
    """

    def __init__(self) -> None:
        self.ask: AskMaster = lambda _request, _host: None
        self.keeps_users: Callable[[], bool] = lambda: False
