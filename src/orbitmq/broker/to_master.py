"""Requests that a slave passes on to its master, because the clients' routes do not show the master yet.

RocketMQ's clients fetch routes every 30 s, and send the acknowledgement of a popped message only once. If a
slave that has just ceased to act as master refused it, the message would be delivered again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from orbitmq.wire.command import Command

AskMaster: TypeAlias = Callable[[Command, str], Awaitable[Command] | None]


class ToMaster:
    """Passes requests on to this broker's master.

    Attributes:
        ask: passes on a request of the client at a host, and returns the master's answer; ``None``: this
            broker has to answer itself; replication sets it.
        keeps_users: whether this broker is a slave with users and rules of its own, since it does not
            get those of its master; replication sets it.
    """

    def __init__(self) -> None:
        self.ask: AskMaster = lambda _request, _host: None
        self.keeps_users: Callable[[], bool] = lambda: False
