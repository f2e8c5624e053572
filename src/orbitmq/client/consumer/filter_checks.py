"""Checks at the brokers that they can filter by an expression, before the first pull with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Mapping
from typing import Any

from orbitmq.client.consumer.membership import Membership, subscription_data
from orbitmq.client.core.broker_calls import Filter
from orbitmq.errors import ClientStateError, NameServerError, TopicNotFoundError
from orbitmq.message.reserved import TAG
from orbitmq.runtime.tasks import failed_itself
from orbitmq.transport.errors import TransportError
from orbitmq.wire.bodies.client import CheckClientRequestBody
from orbitmq.wire.headers.client import CheckClientConfigRequest

log = logging.getLogger("orbitmq.client")

CHECK_TIMEOUT_MS = 3000


class Checked:
    """The result of ``subscribe``. Awaiting it raises when a broker cannot filter by the expression."""

    __slots__ = ("_task",)

    def __init__(self, task: asyncio.Task[None] | None = None) -> None:
        self._task = task

    def __await__(self) -> Generator[Any, None, None]:
        if self._task is not None:
            yield from _end_of(self._task).__await__()


class FilterChecks:
    """The checks of one consumer (MQClientInstance.checkClientInBroker).

    A broker that cannot be reached delays nothing: it may be gone, and otherwise refuses the pull later with
    the same error.
    """

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        # The check of each topic's current subscription, and all running checks, those of former
        # subscriptions included.
        self._present: dict[str, asyncio.Task[None]] = {}
        self._under_way: set[asyncio.Task[None]] = set()

    async def check(self, topic: str, wanted: Filter) -> None:
        """Check the expression at every broker of the topic; tags need no check.

        Raises:
            BrokerError: a broker cannot filter by the expression; code 23 if its syntax is wrong.
        """
        if wanted.kind == TAG:
            return
        client = self._membership.client
        data = subscription_data(topic, wanted)
        body = CheckClientRequestBody(client.client_id, self._membership.group, data).encode()
        try:
            route = await client.find_route(topic, for_send=False)
        except (TopicNotFoundError, NameServerError) as error:
            log.info("filter of %s is not checked now: %s", topic, error)
            return

        async def ask(address: str) -> None:
            try:
                await client.invoke(address, CheckClientConfigRequest().command(body), CHECK_TIMEOUT_MS)
            except TransportError as error:
                log.warning("filter of %s is not checked at %s: %s", topic, address, error)

        await asyncio.gather(*(ask(members[min(members)]) for members in route.addresses.values()))

    async def check_all(self, filters: Mapping[str, Filter]) -> None:
        """Run :meth:`check` for every topic."""
        for topic, wanted in filters.items():
            await self.check(topic, wanted)

    def begin(self, topic: str, wanted: Filter) -> Checked:
        """Start a check in the background; :meth:`ended` raises its refusal."""
        self.forget(topic)
        if wanted.kind == TAG:
            return Checked()
        task = asyncio.create_task(self.check(topic, wanted), name=f"filter check of {topic}")
        self._under_way.add(task)
        task.add_done_callback(self._over)
        self._present[topic] = task
        return Checked(task)

    def _over(self, task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        if not task.cancelled():
            task.exception()  # mark the error as retrieved: only a caller that awaits the check gets it

    def forget(self, topic: str) -> None:
        """Drop the check of a topic whose subscription was changed or removed."""
        self._present.pop(topic, None)

    async def ended(self) -> None:
        """Wait for the checks of the current subscriptions.

        Raises:
            BrokerError: as :meth:`check`, for the first subscription that was refused.
            ClientStateError: the consumer was closed meanwhile.
        """
        for task in list(self._present.values()):
            await _end_of(task)

    def close(self) -> None:
        """Cancel the running checks."""
        for task in self._under_way:
            task.cancel()


async def _end_of(check: asyncio.Task[None]) -> None:
    """Return when the check has ended, or raise its error.

    Raises:
        ClientStateError: the consumer was closed meanwhile.
    """
    try:
        await asyncio.shield(check)
    except asyncio.CancelledError as error:
        if not failed_itself(error):
            raise
        raise ClientStateError("the consumer was closed while a subscription was checked") from None
