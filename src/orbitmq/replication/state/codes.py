"""Copies the tables of a RocketMQ broker, which sends them in answers to requests (SlaveSynchronize)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from orbitmq.broker.change_feed import (
    DELAYS,
    FORBIDDEN,
    GROUPS,
    OFFSETS,
    REQUEST_MODES,
    TIMERS,
    TOPICS,
    ChangeFeed,
    FeedEntry,
)
from orbitmq.broker.metadata.topics import TopicConfigs
from orbitmq.broker.timers.progress import decode_file
from orbitmq.message.reserved import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.replication.members.ports import ExchangeError
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.bodies.group import SubscriptionGroupWrapper
from orbitmq.wire.bodies.pop import MessageRequestModeSerializeWrapper
from orbitmq.wire.bodies.stats import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
from orbitmq.wire.bodies.topic import DataVersion, TopicConfigAndMappingSerializeWrapper
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import WireError

log = logging.getLogger(__name__)

ASK_TIMEOUT_MS = 3000
# Pieces of a table's changes: each is a key with its plain value; ``None``: the key is gone.
Pieces = Iterable[tuple[str, object]]


class TableCodes:
    """Requests another broker's tables, one request code for each.

    Args:
        takes: whether this broker still copies another one's tables; called when an answer has come. By then
            this broker may lead, and its clients may have made more changes.
    """

    def __init__(
        self,
        client: RemotingClient,
        feed: ChangeFeed,
        topics: TopicConfigs,
        takes: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client = client
        self._feed = feed
        self._topics = topics
        self._takes = takes

    async def offsets(self, address: str, *, always: bool) -> None:
        """Take the committed offsets; those of queues that the other broker does not name stay (PO-09).

        Args:
            always: whether to take them even when the version is the same, as the version changes only now
                and then.
        """
        body = ConsumerOffsetSerializeWrapper.decode(
            await self._ask(address, RequestCode.GET_ALL_CONSUMER_OFFSET)
        )
        pieces = (
            (f"{key}@{queue_id}", offset)
            for key, queues in body.offset_table.items()
            for queue_id, offset in queues.items()
        )
        self._take(OFFSETS, body.data_version, pieces, always=always)

    async def delays(self, address: str) -> None:
        """Take the progress of the delay levels."""
        body = await self._delays_of(address)
        self._take(DELAYS, body.data_version, ((str(lv), offset) for lv, offset in body.offset_table.items()))

    async def delays_ahead(self, address: str) -> None:
        """Take the progress of delay levels in which the other broker is further, whatever the versions are.

        Two brokers of one name deliver out of one log, so a delivery by either of them is done; but RocketMQ
        raises the version only with every 200th delivery.
        """
        body, known = await self._delays_of(address), self._feed.tables()[DELAYS]
        if known.items is None or known.versioned is None:
            return
        own = {key: known.plain(place)[0] for key, place in known.items()}
        ahead = [
            (str(lv), offset) for lv, offset in body.offset_table.items() if offset > own.get(str(lv), 0)
        ]
        version, there = known.versioned.version, body.data_version
        newer = version if there is None or version.is_newer_than(there) else there
        self._take(DELAYS, newer, ahead, always=True)

    async def _delays_of(self, address: str) -> DelayOffsetSerializeWrapper:
        return DelayOffsetSerializeWrapper.decode(await self._ask(address, RequestCode.GET_ALL_DELAY_OFFSET))

    async def timers(self, address: str) -> None:
        """Take the progress of timer messages."""
        found = decode_file(await self._ask(address, RequestCode.GET_TIMER_CHECK_POINT))
        if found is not None:
            check, progress = found
            self._take(TIMERS, check.version, [("progress", progress.plain())])

    async def topics(self, address: str) -> None:
        """Make this broker's topics those of the other broker, plus its own system topics."""
        body = TopicConfigAndMappingSerializeWrapper.decode(
            await self._ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)
        )
        table = body.topic_config_table
        gone = [
            topic.topic_name
            for topic in self._topics
            if topic.topic_name not in table and not self._topics.is_system(topic.topic_name)
        ]
        pieces = [(name, config.to_plain()) for name, config in table.items()]
        self._take(TOPICS, body.data_version, [*pieces, *((name, None) for name in gone)], unequal=True)

    async def groups(self, address: str) -> None:
        """Make this broker's subscription groups those of the other, with the topics they may not read."""
        body = SubscriptionGroupWrapper.decode(
            await self._ask(address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        )
        pieces = [(name, config.to_plain()) for name, config in body.subscription_group_table.items()]
        forbidden = [
            (f"{group}@{topic}", value)
            for group, topics in body.forbidden_table.items()
            for topic, value in topics.items()
        ]
        version = body.data_version
        if self._take(GROUPS, version, [*self._gone(GROUPS, pieces), *pieces], unequal=True):
            self._take(FORBIDDEN, version, [*self._gone(FORBIDDEN, forbidden), *forbidden], always=True)

    async def modes(self, address: str) -> None:
        """Take over the message request modes of groups; this table has no version."""
        body = MessageRequestModeSerializeWrapper.decode(
            await self._ask(address, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        )
        told = {
            f"{topic}@{group}": mode.to_plain()
            for topic, modes in body.message_request_mode_map.items()
            for group, mode in modes.items()
        }
        items = self._feed.tables()[REQUEST_MODES].items
        known = {} if items is None else {key: mode.to_plain() for key, mode in items()}
        new = [(key, plain) for key, plain in told.items() if known.get(key) != plain]
        self._take(REQUEST_MODES, DataVersion(), new, always=True)

    def _gone(self, table: str, pieces: Iterable[tuple[str, object]]) -> list[tuple[str, None]]:
        there = {key for key, _ in pieces}
        items = self._feed.tables()[table].items
        return [] if items is None else [(key, None) for key, _ in items() if key not in there]

    async def take_back(self, address: str) -> None:
        """In pre-online, fetch the tables of the broker that acted for this master (PO-08).

        Raises:
            ExchangeError: the broker refuses, or its answer cannot be read.
            TransportError: the broker did not answer.
        """
        try:
            await self.delays_ahead(address)
            await self.offsets(address, always=False)
            await self.timers(address)
            if not self._has_topics():
                # This broker's disk is new. The other broker, once it follows, deletes all that this one does
                # not have.
                await self.topics(address)
                await self.groups(address)
                await self.modes(address)
        except WireError as error:
            raise ExchangeError(f"the tables of {address}: {error}") from error

    def _has_topics(self) -> bool:
        """Whether a person or program made a topic; retry topics do not count, since heartbeats make them."""
        return any(
            not self._topics.is_system(name) and not name.startswith((RETRY_PREFIX, DLQ_PREFIX))
            for name in (topic.topic_name for topic in self._topics)
        )

    async def _ask(self, address: str, code: RequestCode) -> bytes:
        answer = await self._client.request(address, Command(code), ASK_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise ExchangeError(f"{address} refuses {code.name}: code {answer.code}, {answer.remark}")
        return bytes(answer.body)

    def _take(
        self,
        table: str,
        version: DataVersion | None,
        pieces: Pieces,
        *,
        always: bool = False,
        unequal: bool = False,
    ) -> bool:
        """Make the changes if the other broker's table is not older than this one's; returns whether they
        were made.

        Args:
            unequal: whether to make them when the versions differ at all, as when this broker follows the
                other.
        """
        known = self._feed.tables().get(table)
        if known is None or version is None or not self._takes():
            return False
        own = known.versioned.version if known.versioned is not None else DataVersion()
        if not always and (own == version if unequal else own.is_newer_than(version)):
            return False
        stamp = (version.state_version, version.timestamp, version.counter)
        for key, value in pieces:
            try:
                self._feed.apply(FeedEntry(0, 0, table, key, value, stamp))
            except ValueError as error:
                log.warning("a change of another broker's table is left out: %s", error)
        if known.versioned is not None:
            known.versioned.version = version
        return True
