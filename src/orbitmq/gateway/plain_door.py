"""The plain sends of all connections: when they may be taken, and when their answers may go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from orbitmq.broker.events import QuotasChanged, SettingsChanged, TopicChanged
from orbitmq.broker.extension import Host
from orbitmq.broker.fast_path import layout
from orbitmq.broker.role import RoleChanged
from orbitmq.gateway import schema
from orbitmq.gateway.authorization import authorization
from orbitmq.gateway.call import CallError
from orbitmq.gateway.framing import prefixed, timeout_ms
from orbitmq.gateway.incoming import RESERVED
from orbitmq.gateway.messages import new
from orbitmq.gateway.names import TYPE_ATTRIBUTE, GrpcTopics, accepted_types
from orbitmq.gateway.plain_sends import PlainSends, PlainTopic
from orbitmq.gateway.quotas import CallQuotas
from orbitmq.gateway.schema import MessageType
from orbitmq.gateway.sends import lost, unsafe
from orbitmq.gateway.status import RefusalError
from orbitmq.gateway.unary import ok
from orbitmq.message import reserved
from orbitmq.store import PutStatus, StoreClosedError
from orbitmq.wire.bodies.topic import TopicFilterType

if TYPE_CHECKING:
    from orbitmq.gateway.clients import GrpcClients


class PlainCalls:
    """Sends of one chunk that wait until their messages are safe.

    Attributes:
        streams, answers: of each call, the answer with gRPC's prefix.
        timeouts_ms: how long its client waits; 0: no limit.
        timer: of the first of these times.
    """

    __slots__ = ("answers", "streams", "timeouts_ms", "timer")

    def __init__(self, streams: list[int], answers: list[bytes], timeouts_ms: list[int]) -> None:
        self.streams = streams
        self.answers = answers
        self.timeouts_ms = timeouts_ms
        self.timer: asyncio.TimerHandle | None = None


class PlainDoor:
    """Lets connections hand plain sends to :class:`~orbitmq.gateway.plain_sends.PlainSends`."""

    def __init__(self, host: Host, topics: GrpcTopics, clients: GrpcClients, quotas: CallQuotas) -> None:
        s = host.services
        self._quotas = quotas
        self._config = s.config
        self._role = s.role
        self._store = s.store
        self._durability = s.durability
        self._counters = s.counters
        self._topics = topics
        self._sends = PlainSends(
            s.store.appender,
            self._find,
            self._make_room,
            s.runtime.random.randrange,
            clients.seen,
            _may_pass,
            _timeout_ms,
            reserved=RESERVED,
            head=new(schema.SendMessageResponse, status=ok()).SerializeToString(),
            entry=new(schema.SendResultEntry, status=ok()).SerializeToString(),
        )
        s.events.subscribe(RoleChanged, lambda _event: self._sends.topics.clear())
        s.events.subscribe(TopicChanged, lambda _event: self._sends.topics.clear())
        s.events.subscribe(QuotasChanged, lambda _event: self._sends.topics.clear())
        s.events.subscribe(SettingsChanged, lambda _event: self._set())
        self._set()

    def _set(self) -> None:
        """Take over the settings."""
        config = self._config
        texts = layout.texts(
            region=config.region_id,
            trace_on=config.trace_on,
            cluster=config.broker_cluster_name,
            store_host=self._store.appender.host,
        )
        self._sends.added = texts.added
        self._sends.max_body = config.body_limit
        self._sends.topics.clear()

    def _find(self, name: bytes) -> PlainTopic | None:
        """The topic, if plain messages may be sent to it."""
        try:
            text = name.decode()
        except UnicodeDecodeError:
            return None
        config = self._topics.known(text)
        found = self._store.find_topic(text)
        if (
            config is None
            or found is None
            or not config.perm & self._config.broker_permission & reserved.PERM_WRITE
        ):
            return None
        slots = list(found.slots)[: config.write_queue_nums]
        if (
            config.topic_filter_type is TopicFilterType.MULTI_TAG
            or config.attributes.keys() - {TYPE_ATTRIBUTE}
            or MessageType.NORMAL not in accepted_types(config)
            or text in reserved.FORBIDDEN_SEND_TOPICS
            or text.startswith((reserved.RETRY_PREFIX, reserved.DLQ_PREFIX))
            or self._quotas.limits_topic(text)
            or not slots
            or len(slots) < config.write_queue_nums
            or min(slots) < 0
        ):
            return None
        return PlainTopic(name, slots)

    def _make_room(self, reason: int, slot: int) -> bool:
        try:
            self._store.make_room(reason, slot)
        except StoreClosedError:
            return False
        return True

    def open(self, born: bytes, address: bytes, room: int) -> PlainSends | None:
        """Prepare for what a client sent next; None: the ordinary way gives the reason.

        Args:
            born, address: of the client; as a record has them, and as text.
            room: how many calls it may begin.
        """
        refused = self._store.write_gate.refusal is not None or self._durability.refusal is not None
        if refused or not self._role.takes_messages or not self._config.writable or not born:
            return None
        self._store.update_clock()
        self._sends.begin(born, address, room)
        return self._sends

    def close(self, answer: Callable[[PlainCalls], object]) -> PlainCalls | None:
        """The calls that were taken since :meth:`open`; ``answer`` is called when they may be answered."""
        if not self._sends.taken:
            return None
        calls = PlainCalls(*self._sends.end())
        self._counters.handled_in += len(calls.streams)
        self._durability.when_safe(
            self._store.appender.end, answer, calls, _late, lambda: answer(_lost(calls))
        )
        self._store.schedule()
        return calls


def _late(calls: PlainCalls, status: PutStatus) -> PlainCalls:
    calls.answers = [prefixed(unsafe(status))] * len(calls.streams)
    return calls


def _lost(calls: PlainCalls) -> PlainCalls:
    calls.answers = [prefixed(lost())] * len(calls.streams)
    return calls


def _may_pass(headers: Mapping[str, str]) -> bool:
    """Whether the key of a call can be read; nothing more is asked of it."""
    try:
        authorization(headers)
    except RefusalError:
        return False
    return True


def _timeout_ms(value: str) -> int:
    try:
        return timeout_ms(value)
    except CallError:
        return -1
