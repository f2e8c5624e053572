"""The linked brokers of this broker's name, as the other parts of replication see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from orbitmq.replication.link.stream import FrameKind
from orbitmq.runtime.listeners import call_all


class PeerLink(Protocol):
    """A link to another OrbitMQ broker that is up: both sides have greeted each other.

    Attributes:
        broker_id, address: the peer's.
        is_master: whether this broker copies the peer's log; else the peer copies this broker's.
        sealed: whether both sides have proved that they have the keys, and tables are sent encrypted.
    """

    @property
    def broker_id(self) -> int: ...

    @property
    def address(self) -> str: ...

    @property
    def is_master(self) -> bool: ...

    @property
    def sealed(self) -> bool: ...

    def send(self, kind: FrameKind, payload: bytes) -> None:
        """Send a frame behind everything that was sent before. A link whose buffer overflows is closed."""
        ...


Receiver: TypeAlias = Callable[[PeerLink, bytes], object]
Watcher: TypeAlias = Callable[[PeerLink, bool], object]
# Called with broker id, address, end of the log and term of a broker that asks to follow.
Greeting: TypeAlias = Callable[[int, str, int, int], object]


class Peers:
    """The links that are up. Frames of one link reach their receivers in the order of sending."""

    def __init__(self) -> None:
        self._links: tuple[PeerLink, ...] = ()
        self._receivers: dict[FrameKind, Receiver] = {}
        self._watchers: list[Watcher] = []
        self._greetings: list[Greeting] = []
        self._longer: list[Callable[[int, str], object]] = []

    @property
    def links(self) -> tuple[PeerLink, ...]:
        return self._links

    def on(self, kind: FrameKind, receiver: Receiver) -> None:
        """Call ``receiver(link, payload)`` with each frame of ``kind``; a second call replaces the first.

        A ``LinkError`` that it raises ends the link.
        """
        self._receivers[kind] = receiver

    def on_change(self, watcher: Watcher) -> None:
        """Call ``watcher(link, up)`` when a link comes up or goes down."""
        self._watchers.append(watcher)

    def on_greeting(self, listener: Greeting) -> None:
        """Call ``listener(broker_id, address, log_end, term)`` when a broker asks to follow this one."""
        self._greetings.append(listener)

    def on_longer(self, listener: Callable[[int, str], object]) -> None:
        """Call ``listener(broker_id, address)`` when a broker connects whose log continues this one's."""
        self._longer.append(listener)

    # -- for the two ends of a link --------------------------------------------------------------------

    def greeted(self, broker_id: int, address: str, log_end: int, term: int) -> None:
        """Report a broker that asks to follow this one; whether it may is not decided yet."""
        call_all(self._greetings, broker_id, address, log_end, term)

    def longer(self, broker_id: int, address: str) -> None:
        """Report a broker that asks to follow this one and has all of its log, and more."""
        call_all(self._longer, broker_id, address)

    def opened(self, link: PeerLink) -> None:
        """Add a link that came up."""
        self._links += (link,)
        call_all(self._watchers, link, True)

    def closed(self, link: PeerLink) -> None:
        """Remove a link that went down; a link that never came up is ignored."""
        if link in self._links:
            self._links = tuple(other for other in self._links if other is not link)
            call_all(self._watchers, link, False)

    def received(self, link: PeerLink, kind: FrameKind, payload: bytes) -> None:
        """Pass on a frame that is not about the link itself; without a receiver it is ignored."""
        receiver = self._receivers.get(kind)
        if receiver is not None:
            receiver(link, payload)
