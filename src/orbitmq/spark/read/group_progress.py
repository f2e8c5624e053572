"""Publishes the progress of a query as a consumer group's: for monitoring, never to resume from."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from orbitmq.errors import OrbitError
from orbitmq.message.model import MessageQueue
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.cluster.brokers import Brokers, by_address
from orbitmq.spark.errors import UnreachableError
from orbitmq.wire.bodies.client import ConsumerData, ConsumeType, HeartbeatData, SubscriptionData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.client import HeartBeatRequest, UnregisterClientRequest
from orbitmq.wire.headers.offset import UpdateConsumerOffsetRequest

log = logging.getLogger("orbitmq.spark")

WARNING_SECONDS = 60.0
# A broker that did not answer gets no requests for this time, so that it does not delay each trigger by
# requestTimeout.
PAUSE_SECONDS = 30.0


class GroupProgress:
    """Commits offsets for a consumer group. A broker's failure or refusal is a warning, never an error.

    Args:
        group: the group; ``None`` to publish nothing.
    """

    def __init__(self, brokers: Brokers, group: str | None) -> None:
        self._brokers = brokers
        self._group = group
        self._published: dict[MessageQueue, int] = {}
        self._registered: set[str] = set()
        self._left_until: dict[str, float] = {}
        self._warned = -WARNING_SECONDS

    def publish(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Publish that all messages below ``offsets`` are processed."""
        if self._group is None:
            return
        news = {queue: offset for queue, offset in offsets.items() if self._published.get(queue) != offset}
        if not news:
            return
        now = this_worker().clock.monotonic()
        for address, owned in by_address(self._masters(news)).items():
            if now < self._left_until.get(address, now):
                continue
            try:
                self._tell(address, self._group, {queue: news[queue] for queue in owned})
            except OrbitError as error:
                if isinstance(error, UnreachableError):
                    self._left_until[address] = this_worker().clock.monotonic() + PAUSE_SECONDS
                self._warn(error)

    def _masters(self, queues: Mapping[MessageQueue, int]) -> dict[MessageQueue, str]:
        writable: dict[MessageQueue, str] = {}
        for topic in {queue.topic for queue in queues}:
            try:
                route = self._brokers.route(topic)
            except OrbitError as error:  # the topic's only broker may be away
                self._warn(error)
                continue
            writable |= {queue: at for queue, at in route.readable.items() if at in route.masters}
        return {queue: writable[queue] for queue in queues if queue in writable}

    def _tell(self, address: str, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        if address not in self._registered:
            register(self._brokers, address, group, {queue.topic for queue in offsets})
            self._registered.add(address)
        tell_offsets(self._brokers, address, group, offsets)
        self._published.update(offsets)

    def _warn(self, error: OrbitError) -> None:
        now = this_worker().clock.monotonic()
        if now - self._warned >= WARNING_SECONDS:
            self._warned = now
            log.warning("the progress of group %s is not published: %s", self._group, error)


def register(brokers: Brokers, address: str, group: str, topics: set[str]) -> None:
    """Send one heartbeat, after which the broker creates the group's retry topic. Tools find the group by
    that topic.

    Raises:
        OrbitError: the broker did not answer, or refused.
    """
    client_id = f"{this_worker().host.pid}@orbitmq-spark#{group}"
    subscriptions = [SubscriptionData(topic=topic) for topic in sorted(topics)]
    consumer = ConsumerData(group, ConsumeType.CONSUME_ACTIVELY, subscription_data_set=subscriptions)
    body = HeartbeatData(client_id, consumer_data_set=[consumer]).encode()
    leaving = UnregisterClientRequest(client_id=client_id, consumer_group=group)
    _ask(brokers, address, [HeartBeatRequest().command(body)])
    _ask(brokers, address, [leaving.command()])


def tell_offsets(brokers: Brokers, address: str, group: str, offsets: Mapping[MessageQueue, int]) -> None:
    """Commit the offsets of a group in queues of one broker. Errors as with :func:`register`."""
    requests = [
        UpdateConsumerOffsetRequest(
            consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        ).command()
        for queue, offset in offsets.items()
    ]
    _ask(brokers, address, requests)


def _ask(brokers: Brokers, address: str, requests: list[Command]) -> None:
    for answer in brokers.ask(address, requests):
        if answer.code != ResponseCode.SUCCESS:
            raise OrbitError(f"{address} answers {answer.code} {answer.remark or ''}")
