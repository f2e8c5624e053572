"""Heartbeats: they register this client and its groups at the brokers. A broker sends requests to registered
clients only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from typing import Any

from orbitmq.errors import BrokerError, NotPermittedError
from orbitmq.runtime.backoff import Backoff
from orbitmq.runtime.seam import Runtime
from orbitmq.runtime.tasks import Background, every
from orbitmq.transport.errors import ConnectError, TransportError
from orbitmq.wire.bodies.client import HeartbeatData, ProducerData
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.refusals import refuses_user

log = logging.getLogger("orbitmq.client")

HEARTBEAT_S = 30.0
# First pause before the next heartbeat to a broker after the end of its connection; the pause grows with each
# failure.
FIRST_PAUSE_S = 0.5


class Heartbeats:
    """Sends HEART_BEAT to the brokers in use: every 30 s, to new brokers at once, and again after a lost
    connection.

    A broker forgets a client when its connection ends. Until the next heartbeat it sends the client no
    transaction check and no notice of a change of members (Java: enableHeartbeatChannelEventListener).

    Args:
        invoke: one request to a broker and its answer; raises TransportError, BrokerError.
        brokers: returns the addresses of the brokers in use.
        producers, consumers: the groups of this client.

    Attributes:
        greeted: brokers that answered the last heartbeat on a connection that is still open.
        told: brokers that were sent a heartbeat on a connection that is still open, so they may have
            registered this client's groups.
    """

    def __init__(
        self,
        runtime: Runtime,
        background: Background,
        client_id: str,
        invoke: Callable[[str, Command], Awaitable[Command]],
        brokers: Callable[[], set[str]],
        producers: Mapping[str, int],
        consumers: Mapping[str, Any],
    ) -> None:
        self._runtime = runtime
        self._background = background
        self._client_id = client_id
        self._invoke = invoke
        self._brokers = brokers
        self._producers = producers
        self._consumers = consumers
        self.greeted: set[str] = set()
        self.told: set[str] = set()
        self._again: set[str] = set()
        self._refused: dict[str, BrokerError] = {}
        # The protocol versions of the brokers that answered a heartbeat.
        self._versions: dict[str, int] = {}
        self._turn = asyncio.Lock()

    def start(self) -> None:
        """Begin to send heartbeats in the background."""
        self._background.spawn(every(self._runtime.clock, HEARTBEAT_S, self.send), "heartbeat")

    async def send(self, *, only_new: bool = False) -> None:
        """Send HEART_BEAT to the brokers; returns when they have answered or failed.

        Args:
            only_new: leave out brokers that have had a heartbeat on their present connection.
        """
        if only_new and not self._brokers() - self.greeted and not self._turn.locked():
            return
        # A call during a heartbeat waits for its end: then the brokers have registered this client.
        async with self._turn:
            await self._send(only_new)

    async def _send(self, only_new: bool) -> None:
        brokers = self._brokers()
        self.greeted &= brokers
        wanted = brokers - self.greeted if only_new else brokers
        if not wanted or not (self._producers or self._consumers):
            return
        data = HeartbeatData(
            client_id=self._client_id,
            producer_data_set=[ProducerData(group_name=group) for group in sorted(self._producers)],
            consumer_data_set=[member.consumer_data() for _, member in sorted(self._consumers.items())],
        )
        body = data.encode()
        await asyncio.gather(*(self._send_to(address, body) for address in sorted(wanted)))

    async def _send_to(self, address: str, body: bytes) -> None:
        self.greeted.add(address)
        self.told.add(address)
        try:
            answer = await self._invoke(address, Command(code=RequestCode.HEART_BEAT, body=body))
            self._versions[address] = answer.version
            self._refused.pop(address, None)
        except (TransportError, BrokerError) as error:
            self.greeted.discard(address)
            if isinstance(error, ConnectError):
                self.told.discard(address)
            # A refusal (strictSubscription) is logged as a warning once, not with every heartbeat.
            new = False
            if isinstance(error, BrokerError):
                before = self._refused.get(address)
                new = before is None or before.remark != error.remark
                self._refused[address] = error
            log.log(logging.WARNING if new else logging.INFO, "heartbeat to %s failed: %s", address, error)

    def refusal(self) -> NotPermittedError | None:
        """The refusal if a broker refused the last heartbeat because of this client's keys or rights; else
        None.
        """
        brokers = self._brokers()
        for address, error in self._refused.items():
            if (
                address in brokers
                and isinstance(error, NotPermittedError)
                and refuses_user(error.code, error.remark)
            ):
                return copy(error)
        return None

    def version(self, address: str | None = None) -> int:
        """The protocol version of a broker, or the oldest of all brokers; 0 if it is not known yet."""
        if address is not None:
            return self._versions.get(address, 0)
        return min((self._versions.get(known, 0) for known in self._brokers()), default=0)

    def lost(self, address: str) -> None:
        """Handle the end of the connection to a broker: send it a heartbeat again, as long as a route names
        it.
        """
        if self.forget(address) and address not in self._again:
            self._again.add(address)
            self._background.spawn(self._greet_again(address), f"greet {address} again")

    def forget(self, address: str) -> bool:
        """Forget a broker whose connection ended, since it has forgotten this client; returns whether it had
        been greeted.
        """
        greeted = address in self.greeted
        self.greeted.discard(address)
        self.told.discard(address)
        return greeted

    async def _greet_again(self, address: str) -> None:
        pauses, tries = Backoff(FIRST_PAUSE_S, HEARTBEAT_S, self._runtime.random), 0
        try:
            while address not in self.greeted and address in self._brokers():
                tries += 1
                await self._runtime.clock.sleep(pauses.pause_s(tries))
                await self.send(only_new=True)
        finally:
            self._again.discard(address)
