"""The plain calls of all connections: when connections may take them, and when their answers may be sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from orbitmq.broker.events import QuotasChanged, SettingsChanged, TopicChanged
from orbitmq.broker.extension import Host
from orbitmq.broker.fast_path import layout
from orbitmq.broker.pop.acknowledging import Acknowledging
from orbitmq.broker.role import RoleChanged
from orbitmq.gateway import schema
from orbitmq.gateway.acks import not_kept
from orbitmq.gateway.authorization import authorization
from orbitmq.gateway.call import CallError
from orbitmq.gateway.framing import PREFIX_BYTES, prefixed, timeout_ms
from orbitmq.gateway.incoming import RESERVED
from orbitmq.gateway.messages import new
from orbitmq.gateway.names import TYPE_ATTRIBUTE, GrpcTopics, accepted_types, group_name, topic_name
from orbitmq.gateway.plain_acks import PlainAcks
from orbitmq.gateway.plain_reader import PlainCalls, PlainReader
from orbitmq.gateway.plain_sends import PlainSends, PlainTopic
from orbitmq.gateway.quotas import CallQuotas
from orbitmq.gateway.saves import Saves
from orbitmq.gateway.schema import MessageType
from orbitmq.gateway.sends import lost, unsafe
from orbitmq.gateway.status import RefusalError
from orbitmq.gateway.unary import ok
from orbitmq.message import reserved
from orbitmq.message.message_types import START_DELIVER_TIME
from orbitmq.store import PutStatus, StoreClosedError
from orbitmq.wire.bodies.topic import TopicFilterType

if TYPE_CHECKING:
    from orbitmq.gateway.clients import GrpcClients


class PlainDoor:
    """Lets connections hand plain calls to :class:`~orbitmq.gateway.plain_reader.PlainReader`."""

    def __init__(
        self,
        host: Host,
        topics: GrpcTopics,
        clients: GrpcClients,
        quotas: CallQuotas,
        settling: Acknowledging,
        saves: Saves,
    ) -> None:
        s = host.services
        self._quotas = quotas
        self._config = s.config
        self._role = s.role
        self._store = s.store
        self._durability = s.durability
        self._counters = s.counters
        self._topics = topics
        self._settling = settling
        self._saves = saves
        self._sends = PlainSends(
            s.store.appender,
            self._find,
            self._make_room,
            s.runtime.random.randrange,
            reserved=RESERVED | {START_DELIVER_TIME},
            head=new(schema.SendMessageResponse, status=ok()).SerializeToString(),
            entry=new(schema.SendResultEntry, status=ok()).SerializeToString(),
        )
        self._acks = PlainAcks(
            self._place,
            self._acknowledge,
            s.config.broker_name.encode(),
            head=new(schema.AckMessageResponse, status=ok()).SerializeToString(),
            end=new(schema.AckMessageResultEntry, status=ok()).SerializeToString(),
        )
        self._reader = PlainReader(self._sends, self._acks, clients.seen, _may_pass, _timeout_ms)
        s.events.subscribe(RoleChanged, lambda _event: self._forget())
        s.events.subscribe(TopicChanged, lambda _event: self._forget())
        s.events.subscribe(QuotasChanged, lambda _event: self._forget())
        s.events.subscribe(SettingsChanged, lambda _event: self._set())
        self._set()

    def _set(self) -> None:
        """Set the properties that the broker adds, and its limits, from the settings."""
        config = self._config
        texts = layout.texts(
            region=config.region_id,
            trace_on=config.trace_on,
            cluster=config.broker_cluster_name,
            store_host=self._store.appender.host,
        )
        self._sends.added = texts.added
        self._sends.max_body = config.body_limit
        self._acks.broker = config.broker_name.encode()
        self._forget()

    def _forget(self) -> None:
        """Forget the topics that were looked up."""
        self._sends.topics.clear()
        self._acks.places.clear()

    def _place(self, topic: bytes, group: bytes) -> tuple[str, str, int] | None:
        """The topic and the group of plain acknowledgements, and how many queues the topic has; else None."""
        try:
            names = topic.decode(), group.decode()
            config = self._topics.known(topic_name(new(schema.Resource, name=names[0])))
            group_name(new(schema.Resource, name=names[1]))
        except (UnicodeDecodeError, RefusalError):
            return None
        return None if config is None else (*names, config.read_queue_nums)

    def _acknowledge(
        self, place: tuple[str, str, int], queue_id: int, offset: int, start: int, pop_time_ms: int
    ) -> bool:
        """End a message in flight; False, and nothing is done, if it is not in flight under this receipt."""
        topic, group, queues = place
        return queue_id < queues and self._settling.end(topic, group, queue_id, offset, (start, pop_time_ms))

    def _find(self, name: bytes) -> PlainTopic | None:
        """The topic of this name; None if it does not take plain messages."""
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

    def open(self, born: bytes, address: bytes, room: int) -> PlainReader | None:
        """Prepare for the next bytes of a client; None if all calls have to take the ordinary path now.

        Args:
            born, address: the client's address, as in a record, and as text.
            room: how many calls the client may begin.
        """
        refused = self._store.write_gate.refusal is not None or self._durability.refusal is not None
        if refused or not self._role.takes_messages or not self._config.writable or not born:
            return None
        self._store.update_clock()
        self._reader.begin(born, address, room)
        return self._reader

    def close(self, answer: Callable[[PlainCalls], object]) -> list[PlainCalls]:
        """The calls taken since :meth:`open`; ``answer`` is called with calls when they may be answered."""
        self._reader.end()
        found = []
        sent, acknowledged = self._reader.sent, self._reader.acknowledged
        if sent is not None:
            found.append(sent)
            self._durability.when_safe(
                self._store.appender.end, answer, sent, _late, lambda: answer(_lost(sent))
            )
            self._store.schedule()
        if acknowledged is not None:
            found.append(acknowledged)
            self._saves.add(self._settling.saved(), lambda error: answer(_kept(acknowledged, error)))
        self._counters.handled_in += sum(len(calls.streams) for calls in found)
        return found


def _kept(calls: PlainCalls, error: Exception | None) -> PlainCalls:
    """The acknowledgements; an error replaces their answers, because the disk may have lost them."""
    if error is not None:
        calls.answers = [prefixed(not_kept(answer[PREFIX_BYTES:], error)) for answer in calls.answers]
    return calls


def _late(calls: PlainCalls, status: PutStatus) -> PlainCalls:
    calls.answers = [prefixed(unsafe(status))] * len(calls.streams)
    return calls


def _lost(calls: PlainCalls) -> PlainCalls:
    calls.answers = [prefixed(lost())] * len(calls.streams)
    return calls


def _may_pass(headers: Mapping[str, str]) -> bool:
    """Whether the authorization header of a call can be read; its signature is not checked."""
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
