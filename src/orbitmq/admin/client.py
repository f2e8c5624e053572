"""The operations library: asks name servers and brokers what an operator wants to know or change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from orbitmq.admin.answers import IncompleteError, LeftOut
from orbitmq.admin.asking import Asking
from orbitmq.admin.brokers import states
from orbitmq.admin.dead_letters import DeadLetterAdmin
from orbitmq.admin.groups import GroupAdmin
from orbitmq.admin.model import BrokerInfo, BrokerState, QueueStatus, RouteEntry
from orbitmq.admin.timers import TimerAdmin
from orbitmq.client.core.name_servers import NameServers, name_servers_of
from orbitmq.client.observe.trace_steps import TraceStep, steps
from orbitmq.errors import (
    BrokerError,
    MessageNotFoundError,
    TopicNotFoundError,
    ValidationError,
)
from orbitmq.message.errors import MessageFormatError
from orbitmq.message.ids import parse_offset_message_id
from orbitmq.message.model import ReceivedMessage
from orbitmq.message.numbers import check_time_ms
from orbitmq.message.record import decode_record, iter_records, readable
from orbitmq.message.reserved import AUTO_CREATE_TOPIC, TRACE_TOPIC
from orbitmq.runtime import Runtime, system_runtime
from orbitmq.settings import properties_text
from orbitmq.transport.client import RemotingClient
from orbitmq.transport.errors import TransportError
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.group import SubscriptionGroupConfig
from orbitmq.wire.bodies.stats import TopicStatsTable
from orbitmq.wire.bodies.topic import KVTable, TopicFilterType, TopicList
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import WireError

TIMEOUT_MS = 5000
MAX_TIME_MS = 2**63 - 1
# Header field that says: the key is a unique id (MixAll.UNIQUE_MSG_QUERY_FLAG).
UNIQUE_KEY_QUERY = "_UNIQUE_KEY_QUERY"


class Admin:
    """Operations on the cluster behind some name servers. Use it as an async context manager.

    Looking at a cluster changes nothing in it: no group is created, no offset moved. Several brokers are
    asked at the same time; when some of them refuse or do not answer, :class:`~orbitmq.admin.IncompleteError`
    has what the others told or did.

    Attributes:
        groups: what concerns consumer groups: members, lag, reset, clone.
        dead_letters: how many there are, and sending them again.
        timers: messages that wait for their time.

    Example::

        async with Admin("127.0.0.1:9876") as admin:
            await admin.create_topic("flights", queues=8)
            for status in await admin.topic_status("flights"):
                print(status.queue, status.count)
    """

    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        *,
        runtime: Runtime | None = None,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        """``name_servers``: "host:port;host:port" or such addresses, an address server's URL or
        ``dns://name:port``; without it what ``NAMESRV_ADDR`` says, else ``127.0.0.1:9876``. ``timeout_ms``:
        limit of each request.

        Raises:
            ValidationError: not an address.
        """
        text = name_servers if isinstance(name_servers, str | None) else ";".join(name_servers)
        used = runtime or system_runtime()
        source = name_servers_of(text, used.host)
        if not source:
            raise ValidationError("no name server is given; expected host:port;host:port")
        self._client = RemotingClient(used)
        self._name_servers = NameServers(self._client, source)
        self._timeout_ms = timeout_ms
        self._asking = Asking(self._client, self._name_servers, timeout_ms)
        self._ask, self._masters = self._asking.ask, self._asking.masters
        self.groups = GroupAdmin(self._asking)
        self.dead_letters = DeadLetterAdmin(self._asking)
        self.timers = TimerAdmin(self._asking, self._by_unique_id, used.clock.now_ms)

    async def __aenter__(self) -> Admin:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._name_servers.close()
        await self._client.close()

    # ---- clusters and brokers

    async def cluster_list(self) -> list[BrokerInfo]:
        """Every live broker, by cluster, name and id.

        Raises:
            NameServerError: no name server answers.
        """
        return await self._asking.brokers()

    async def broker_states(self) -> list[BrokerState]:
        """How every live broker does: its role, its log, how far it is behind; in the order of
        :meth:`cluster_list`. A broker that does not answer is in the list, with the reason.

        Raises:
            NameServerError: no name server answers.
        """

        async def told(broker: BrokerInfo) -> tuple[BrokerInfo, Mapping[str, str] | str]:
            try:
                answer = await self._ask(broker.address, Command(RequestCode.GET_BROKER_RUNTIME_INFO))
                return broker, KVTable.decode(answer.body).table
            except (BrokerError, TransportError, WireError) as error:
                return broker, str(error)

        return states(await asyncio.gather(*map(told, await self.cluster_list())))

    async def lost_masters(self, *, cluster: str | None = None) -> list[str]:
        """Names of which slaves are online and no master: what is made at the masters is not made there.

        Raises:
            NameServerError: no name server answers, or it knows no broker.
        """
        return [broker.name for broker in await self._asking.leaders(cluster) if not broker.is_master]

    async def broker_config(self, address: str) -> dict[str, str]:
        """Settings of the broker at ``address`` by RocketMQ's keys.

        Raises:
            BrokerError, TransportError: it refuses, or cannot be reached.
        """
        answer = await self._ask(address, Command(RequestCode.GET_BROKER_CONFIG))
        return dict(properties_text.parse(answer.body.decode()))

    async def update_broker_config(self, address: str, settings: Mapping[str, str]) -> None:
        """Change settings of the running broker at ``address``.

        Raises:
            BrokerError, TransportError: it refuses (the remark names the key), or cannot be reached.
        """
        body = properties_text.render(settings).encode()
        await self._ask(address, Command(RequestCode.UPDATE_BROKER_CONFIG, body=body))

    # ---- topics

    async def topic_list(self, *, cluster: str | None = None) -> list[str]:
        """Names of all topics, or of those with queues in ``cluster``; sorted.

        Raises:
            NameServerError: no name server answers.
        """
        if cluster is None:
            command: Callable[[], Command] = partial(Command, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        else:
            command = headers.GetTopicsByClusterRequest(cluster=cluster).command
        found = await self._name_servers.ask(command, TopicList.decode, self._timeout_ms)
        return sorted(found.topic_list)

    async def topic_route(self, topic: str) -> list[RouteEntry]:
        """Where the queues of ``topic`` are, by broker name.

        Raises:
            TopicNotFoundError: the name server does not know it.
            NameServerError: no name server answers.
        """
        route = await self._name_servers.topic_route(topic, self._timeout_ms)
        if route is None:
            raise TopicNotFoundError(topic, f"no broker has the topic {topic}")
        brokers = {data.broker_name: data for data in route.broker_datas}
        return [
            RouteEntry(
                broker_name=queues.broker_name,
                cluster=brokers[queues.broker_name].cluster,
                read_queues=queues.read_queue_nums,
                write_queues=queues.write_queue_nums,
                perm=queues.perm,
                addresses=dict(sorted(brokers[queues.broker_name].broker_addrs.items())),
            )
            for queues in sorted(route.queue_datas, key=lambda data: data.broker_name)
            if queues.broker_name in brokers
        ]

    async def create_topic(
        self,
        topic: str,
        queues: int = 8,
        perm: int = 6,
        *,
        cluster: str | None = None,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Create ``topic``, or change it, on every master of ``cluster`` (default: of all clusters).

        Args:
            queues: read and write queues on each broker group.
            perm: sum of read 4 and write 2.
            attributes: for example ``{"message.type": "FIFO"}``.

        Returns:
            Names of the brokers that have it now.

        Raises:
            ValidationError: the topic has more queues (see :meth:`would_hide`); no broker is asked.
            IncompleteError: some have it now, another refuses or does not answer.
            BrokerError, TransportError: none has it; of the first.
            NameServerError: no name server answers, or it knows no master.
        """
        masters = await self._masters(cluster)
        if hidden := await self.would_hide(topic, queues, cluster=cluster):
            raise ValidationError(hidden)
        header = headers.UpdateAndCreateTopicRequest(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=perm,
            topic_filter_type=TopicFilterType.SINGLE_TAG,
            topic_sys_flag=0,
            order=order,
            attributes=",".join(f"+{key}={value}" for key, value in (attributes or {}).items()) or None,
        )
        return await self._asking.tell_all(masters, header.command())

    async def would_hide(self, topic: str, queues: int, *, cluster: str | None = None) -> str:
        """A sentence that says which messages of ``topic`` a change to ``queues`` queues hides; empty: none.

        Raises:
            NameServerError: no name server answers, or it knows no master.
        """
        names = {broker.name for broker in await self._masters(cluster)}
        route = await self._name_servers.topic_route(topic, self._timeout_ms)
        for data in () if route is None else route.queue_datas:
            before = data.read_queue_nums
            if before > queues and data.broker_name in names:
                last = f"queues {queues} to {before - 1}" if queues < before - 1 else f"queue {queues}"
                return (
                    f"topic {topic} has {before} queues on {data.broker_name}; with {queues} no consumer "
                    f"gets the messages in {last} any more. Keep {before} queues, or send to a new topic "
                    "and delete this one when it is consumed"
                )
        return ""

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> list[str]:
        """Delete ``topic`` and its messages on every master of ``cluster`` (default: of all clusters).

        Returns:
            Names of the brokers that have deleted it.

        Raises:
            ValidationError: a broker group has no master now, with which it would come back; none is asked.
            IncompleteError: some have deleted it, another refuses or does not answer, and the name servers
                still show it everywhere; or a name server was not told. Deleting it again finishes that.
            BrokerError, TransportError: none has deleted it; of the first.
            NameServerError: no name server answers, or it knows no master.
        """
        masters = await self._asking.every_master(cluster)
        at_broker = headers.DeleteTopicInBrokerRequest(topic=topic)
        names = await self._asking.tell_all(masters, at_broker.command())
        at_name_server = headers.DeleteTopicInNamesrvRequest(topic=topic, cluster_name=cluster)
        untold = await self._asking.tell_name_servers(at_name_server.command())
        if untold:
            raise IncompleteError(names, untold)
        return names

    async def topic_status(self, topic: str, *, cluster: str | None = None) -> list[QueueStatus]:
        """Offsets of every queue of ``topic`` in ``cluster`` (default: in all), by broker and queue id.

        Raises:
            TopicNotFoundError: the name servers do not know it.
            IncompleteError: a broker refuses or does not answer; what the others told is in it.
            BrokerError, TransportError: none tells; of the first.
            NameServerError: no name server answers.
        """
        brokers = [broker for broker in await self._readers(topic) if cluster in (None, broker.cluster)]
        request = headers.GetTopicStatsInfoRequest(topic=topic).command()
        answers = await self._asking.ask_all(
            brokers,
            request,
            lambda _, answer: TopicStatsTable.decode(answer.body).offset_table,
            without=ResponseCode.TOPIC_NOT_EXIST,
        )
        found = [
            QueueStatus(queue, offsets.min_offset, offsets.max_offset, offsets.last_update_timestamp)
            for _, table in answers.told
            for queue, offsets in table.items()
        ]
        return answers.whole(sorted(found, key=lambda status: status.queue))

    async def _readers(self, topic: str) -> list[BrokerInfo]:
        """One broker of each group with queues of ``topic``, the one with the lowest id."""
        return [
            BrokerInfo(entry.cluster, entry.broker_name, broker_id, entry.addresses[broker_id])
            for entry in await self.topic_route(topic)
            for broker_id in sorted(entry.addresses)[:1]
        ]

    # ---- groups

    async def create_group(self, config: SubscriptionGroupConfig, *, cluster: str | None = None) -> list[str]:
        """Create a consumer group, or change it, on every master of ``cluster`` (default: of all clusters).

        Returns:
            Names of the brokers that have it now.

        Raises:
            IncompleteError: some have it now, another refuses or does not answer.
            BrokerError, TransportError: none has it; of the first.
            NameServerError: no name server answers, or it knows no master.
        """
        request = Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=config.encode())
        return await self._asking.tell_all(await self._masters(cluster), request)

    async def delete_group(
        self, group: str, *, clean_offsets: bool = False, cluster: str | None = None
    ) -> list[str]:
        """Delete a consumer group on every master of ``cluster`` (default: of all clusters).

        Args:
            clean_offsets: forget its progress, too.

        Returns:
            Names of the brokers that have deleted it.

        Raises:
            ValidationError: a broker group has no master now, with which it would come back; none is asked.
            IncompleteError: some have deleted it, another refuses or does not answer. Deleting it again
                finishes that.
            BrokerError, TransportError: none has deleted it; of the first.
            NameServerError: no name server answers, or it knows no master.
        """
        masters = await self._asking.every_master(cluster)
        header = headers.DeleteSubscriptiongroupRequest(group_name=group, clean_offset=clean_offsets)
        return await self._asking.tell_all(masters, header.command())

    # ---- messages

    async def message(self, message_id: str, *, topic: str | None = None) -> ReceivedMessage:
        """One stored message; no group's progress is touched.

        Args:
            message_id: the broker's id (``SendResult.offset_message_id``), which names broker and place; or
                with ``topic`` the sender's unique id (``SendResult.message_id``). Both are hexadecimal; an id
                whose address is not that of a registered broker is taken for a unique one.

        Raises:
            ValidationError: not an id, or a unique id without its topic.
            MessageNotFoundError: no broker has it (any more).
            TopicNotFoundError: no broker has ``topic``.
            IncompleteError: a broker refuses or does not answer, and no other one has it.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        try:
            host, port, offset = parse_offset_message_id(message_id)
        except MessageFormatError as error:
            if topic is None:
                raise ValidationError(str(error)) from error
        else:
            address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
            # Only registered brokers are asked: an id could name any host.
            names = {broker.address: broker.name for broker in await self.cluster_list()}
            if address in names:
                return await self._message_at(names[address], address, offset, message_id)
            if topic is None:
                raise ValidationError(
                    f"message id {message_id}: {address} is not the address of a broker; "
                    "a unique id needs its topic"
                )
        found = await self._by_unique_id(topic, message_id, count=1)
        if not found:
            raise MessageNotFoundError(f"no broker has a message with the unique id {message_id} in {topic}")
        return found[-1]

    async def find(
        self,
        topic: str,
        *,
        key: str,
        begin_ms: int = 0,
        end_ms: int = MAX_TIME_MS,
        max_messages: int = 64,
    ) -> list[ReceivedMessage]:
        """The messages of ``topic`` that have ``key`` among their keys, the oldest first.

        The brokers look in their message indexes, which hold what was stored some moments ago.

        Args:
            begin_ms, end_ms: stored in this time only, milliseconds since the epoch.
            max_messages: at most so many of each broker, its newest ones; a broker may give fewer, as its
                ``maxMsgsNumBatch`` (64) limits.

        Raises:
            ValidationError: the key is empty, or ``max_messages`` is below 1.
            TopicNotFoundError: no broker has ``topic``.
            IncompleteError: a broker refuses or does not answer; what the others have is in it.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        if not key or " " in key:
            raise ValidationError(f"one key is needed, not empty and without spaces, got {key!r}")
        if max_messages < 1:
            raise ValidationError(f"max_messages must be 1 or more, got {max_messages}")
        if begin_ms != 0:
            check_time_ms("begin_ms", begin_ms)
        if end_ms != MAX_TIME_MS:
            check_time_ms("end_ms", end_ms)
        return await self._query(
            topic, key, unique=False, begin_ms=begin_ms, end_ms=end_ms, count=max_messages
        )

    async def trace(self, message_id: str, *, trace_topic: str = TRACE_TOPIC) -> list[TraceStep]:
        """What clients with message trace told of a message: its sends and deliveries, the oldest first.

        Clients tell it a second later, and the brokers look in their message indexes: of each broker the
        newest 64 trace messages of the id count.

        Args:
            message_id: the sender's unique id (``SendResult.message_id``).
            trace_topic: where the clients put it.

        Raises:
            ValidationError: the id is empty or has spaces.
            MessageNotFoundError: nobody told anything of it.
            IncompleteError: a broker refuses or does not answer; what the others have is in it.
            BrokerError, TransportError, NameServerError: no broker or no name server answers.
        """
        told: list[ReceivedMessage] = []
        left_out: Sequence[LeftOut] = ()
        try:
            told = await self.find(trace_topic, key=message_id)
        except TopicNotFoundError:
            pass
        except IncompleteError as error:
            told, left_out = error.found, error.left_out
        texts = ((message.body.decode(errors="replace"), message.born_host) for message in told)
        found = steps(texts, message_id)
        if left_out:
            raise IncompleteError(found, left_out)
        if not found:
            raise MessageNotFoundError(
                f"there is no trace of message {message_id} in {trace_topic}: clients write one with "
                "trace=True, where brokers have the topic (traceTopicEnable)"
            )
        return found

    async def _by_unique_id(
        self, topic: str, unique_id: str, *, count: int = 32
    ) -> Sequence[ReceivedMessage]:
        """What is stored under a unique id. One broker has it: who else answers does not matter then."""
        try:
            return await self._query(
                topic, unique_id, unique=True, begin_ms=0, end_ms=MAX_TIME_MS, count=count
            )
        except IncompleteError as error:
            if not error.found:
                text = f"no broker that answers has {unique_id} in {topic}"
                raise IncompleteError(None, error.left_out, text) from error
            found: Sequence[ReceivedMessage] = error.found
            return found

    async def _message_at(self, name: str, address: str, offset: int, message_id: str) -> ReceivedMessage:
        try:
            answer = await self._ask(address, headers.ViewMessageByIdRequest(offset=offset).command())
        except BrokerError as error:
            if error.code == ResponseCode.SYSTEM_ERROR:
                raise MessageNotFoundError(f"message {message_id}: {error}") from error
            raise
        return readable(decode_record(answer.body), name)

    async def _query(
        self, topic: str, key: str, *, unique: bool, begin_ms: int, end_ms: int, count: int
    ) -> list[ReceivedMessage]:
        """What the brokers of ``topic`` have under a key or a unique id. One of each group is asked."""
        header = headers.QueryMessageRequest(
            topic=topic, key=key, max_num=count, begin_timestamp=begin_ms, end_timestamp=end_ms
        )

        command = header.command()
        command.ext[UNIQUE_KEY_QUERY] = str(unique).lower()

        def read(broker: BrokerInfo, answer: Command) -> list[ReceivedMessage]:
            return [readable(record, broker.name) for record in iter_records(answer.body)]

        answers = await self._asking.ask_all(
            await self._readers(topic), command, read, without=ResponseCode.QUERY_NOT_FOUND
        )
        # The index compares hashes only.
        found = [
            message
            for _, messages in answers.told
            for message in messages
            if message.topic == topic and (message.unique_key == key if unique else key in message.keys)
        ]
        return answers.whole(sorted(found, key=lambda message: message.store_timestamp_ms))
