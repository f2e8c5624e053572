"""The requests a name server answers: one small method for each request code."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import replace
from itertools import islice
from typing import cast
from weakref import WeakValueDictionary

from orbitmq.message.reserved import MEMBERS_SILENT_MS, SYNC_MEMBER_TOPIC_PREFIX
from orbitmq.nameserver.access import NameServerAccess
from orbitmq.nameserver.brokers import Admission, BrokerReport, MinBrokerIdChange, Registered
from orbitmq.nameserver.config import ConfigError, NameServerConfig
from orbitmq.nameserver.kv import NAMESPACE_ORDER_TOPIC, KvConfig, KvError
from orbitmq.nameserver.registration import (
    SHORT_BYTES,
    STORE_TOPICS,
    ZONE_NAME,
    digest,
    opened,
    read_long_registration,
    read_registration,
)
from orbitmq.nameserver.route_text import encode_route
from orbitmq.nameserver.routes import RouteTable
from orbitmq.nameserver.topics import GroupQueues
from orbitmq.runtime import Runtime
from orbitmq.runtime.log_levels import LogLevels
from orbitmq.settings import properties_text
from orbitmq.settings.typed import levels_of
from orbitmq.transport.server import ServerConnection
from orbitmq.wire import all_headers as headers
from orbitmq.wire.bodies.route import BrokerMemberGroup, GetBrokerMemberGroupResponseBody, TopicRouteData
from orbitmq.wire.bodies.topic import DataVersion, KVTable, TopicList
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.errors import RemotingError, WireError
from orbitmq.wire.versions import V4_9_4
from orbitmq.wording import counted

log = logging.getLogger("orbitmq.nameserver")

ZONE_MODE = "__ZONE_MODE"
_FAQ = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
# Keys that Apache's name server refuses, whatever its black list contains.
_NEVER_UPDATED = frozenset({"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"})

Answer = Command | Awaitable[Command]


class Handlers:
    """Decodes requests, calls the route table or the key-value table, and encodes the answers."""

    def __init__(
        self,
        runtime: Runtime,
        config: NameServerConfig,
        routes: RouteTable,
        kv: KvConfig,
        *,
        access: NameServerAccess | None = None,
        on_min_change: Callable[[MinBrokerIdChange], None] | None = None,
        on_work: Callable[[], None] | None = None,
        on_register: Callable[[], None] | None = None,
    ) -> None:
        """Make the handlers, which do no I/O themselves.

        Args:
            access: answers the requests about users and rules; None: no keys are required.
            on_min_change: called when the lowest broker id of a group changes.
            on_work: called when the route table has work to do in slices; None: all work is done at once.
            on_register: called when a broker registers that was unknown.
        """
        self.config = config
        self._runtime = runtime
        self._routes = routes
        self._kv = kv
        self._on_min_change = on_min_change
        self._on_work = on_work
        self._on_register = on_register
        # The locks of brokers whose long report is being read; an entry lives while a task waits for its
        # lock.
        self._registering: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self._started_ms = self._now_ms()
        self.registrations = 0
        self.route_queries = 0
        self._config_lock = asyncio.Lock()
        self.log_levels = LogLevels()
        self._by_code: dict[int, Callable[[Hashable, Command], Answer]] = {
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._kv_list,
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._member_group,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._unit_sub_ununit_topics,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
        }
        if access is not None:
            self._by_code.update(dict.fromkeys(access.answers.codes, _of_users(access)))

    @property
    def codes(self) -> frozenset[int]:
        """The codes of the requests that this name server answers."""
        return frozenset(self._by_code)

    def _now_ms(self) -> int:
        """Monotonic milliseconds: a step of the wall clock makes no broker dead."""
        return int(self._runtime.clock.monotonic() * 1000)

    def handle(self, connection: Hashable, command: Command) -> Answer:
        """Answer one request. ``connection`` identifies the sender.

        Raises:
            RemotingError: the answer is an error code with a remark.
        """
        handler = self._by_code.get(command.code)
        if handler is None:
            remark = f" request type {command.code} not supported"
            raise RemotingError(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        try:
            return handler(connection, command)
        except WireError as error:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}") from error

    # ---- brokers

    def _register(self, connection: Hashable, command: Command) -> Answer:
        header = headers.RegisterBrokerRequest.from_ext(command.ext)
        broker = (header.cluster_name, header.broker_addr)
        if len(command.body) > SHORT_BYTES or broker in self._registering:
            return self._register_in_turn(broker, connection, command)
        admission = self._admit(read_registration(command, connection))
        return self._registered(command, admission.answer)

    async def _register_in_turn(
        self, broker: tuple[str, str], connection: Hashable, command: Command
    ) -> Command:
        """Read and store a long report; the reports of one broker are stored in the order of their
        arrival."""
        lock = self._registering.setdefault(broker, asyncio.Lock())
        try:
            async with lock:
                answer = await self._register_long(broker, connection, command)
        except WireError as error:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}") from error
        return self._registered(command, answer)

    async def _register_long(
        self, broker: tuple[str, str], connection: Hashable, command: Command
    ) -> Registered:
        threads = self._runtime.threads
        mark = await threads.run(digest, command)
        if not self.config.delete_topic_with_broker_registration:
            # Java's brokers repeat their whole table every 30 s: an unchanged report is not read.
            known = self._routes.renewed(*broker, connection, mark, self._now_ms())
            if known is not None:
                return known
        registration = await read_long_registration(command, connection, threads)
        if isinstance(connection, ServerConnection) and connection.closed:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, "the broker has closed its connection")
        topics = iter(registration.topics.items())
        admission = self._admit(registration, store=False)
        while part := list(islice(topics, STORE_TOPICS)):
            if not self._routes.take(admission, part):
                break
            await asyncio.sleep(0)
        else:
            self._routes.remember(admission, mark)
        return admission.answer

    def _admit(self, registration: BrokerReport, *, store: bool = True) -> Admission:
        now_ms = self._now_ms()
        known = self._routes.version_of(registration.cluster, registration.address) is not None
        admission = self._routes.admit(
            registration, now_ms, drop_missing_topics=self.config.delete_topic_with_broker_registration
        )
        if admission is None:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, "register broker failed")
        if store:
            self._routes.take(admission, registration.topics.items())
        self._departed()
        if not known:
            log.info(
                "broker registered: %s id %d at %s (%s)",
                registration.group,
                registration.broker_id,
                registration.address,
                registration.cluster,
            )
            if self._on_register is not None:
                self._on_register()
        if admission.moved is not None:
            log.warning(
                "two living addresses claim to be %s id %d: %s and %s; this is logged once",
                registration.group,
                registration.broker_id,
                *admission.moved,
            )
        self._announce(admission.answer.change)
        return admission

    def _registered(self, command: Command, result: Registered) -> Command:
        self.registrations += 1
        body = b""
        if self.config.return_order_topic_config_to_broker:
            entries = self._kv.namespace(NAMESPACE_ORDER_TOPIC)
            body = b"" if entries is None else KVTable(table=dict(entries)).encode()
        answer = headers.RegisterBrokerResponse(
            ha_server_addr=result.ha_address, master_addr=result.master_address
        )
        return command.reply(ext=answer.to_ext(), body=body)

    def _unregister(self, connection: Hashable, command: Command) -> Command:
        header = headers.UnregisterBrokerRequest.from_ext(command.ext)
        known = self._routes.version_of(header.cluster_name, header.broker_addr) is not None
        change = self._routes.unregister(
            header.cluster_name, header.broker_name, header.broker_addr, opened=opened(connection)
        )
        self._departed()
        stays = self._routes.version_of(header.cluster_name, header.broker_addr) is not None
        what = "broker stays, it registered anew meanwhile" if stays else "broker unregistered"
        if known:
            log.info("%s: %s at %s", what, header.broker_name, header.broker_addr)
        self._announce(change)
        return command.reply()

    def _query_data_version(self, connection: Hashable, command: Command) -> Command:
        header = headers.QueryDataVersionRequest.from_ext(command.ext)
        theirs = DataVersion.decode(command.body)
        ours = self._routes.version_of(header.cluster_name, header.broker_addr)
        self._routes.touch(header.cluster_name, header.broker_addr, self._now_ms())
        answer = headers.QueryDataVersionResponse(changed=ours != theirs)
        return command.reply(ext=answer.to_ext(), body=b"" if ours is None else ours.encode())

    def _heartbeat(self, connection: Hashable, command: Command) -> Command:
        header = headers.BrokerHeartbeatRequest.from_ext(command.ext)
        self._routes.touch(header.cluster_name, header.broker_addr, self._now_ms())
        return command.reply()

    def _departed(self) -> None:
        if self._routes.has_work:
            (self._on_work or self._routes.settle)()

    def _announce(self, change: MinBrokerIdChange | None) -> None:
        if change is not None and self.config.notify_min_broker_id_changed and self._on_min_change:
            self._on_min_change(change)

    # ---- routes

    def _route(self, connection: Hashable, command: Command) -> Command:
        self.route_queries += 1
        header = headers.GetRouteinfoByTopicRequest.from_ext(command.ext)
        self._check_ready()
        zone = command.ext.get(ZONE_NAME) if command.ext.get(ZONE_MODE, "").lower() == "true" else None
        route = self._routes.route(header.topic, acting_master=self.config.support_acting_master, zone=zone)
        if route is None:
            remark = f"No topic route info in name server for the topic: {header.topic}{_FAQ}"
            raise RemotingError(ResponseCode.TOPIC_NOT_EXIST, remark)
        if self.config.order_message_enable:
            route.order_topic_conf = self._kv.get(NAMESPACE_ORDER_TOPIC, header.topic)
        standard = command.version >= V4_9_4 or bool(header.accept_standard_json_only)
        members_of = header.topic.removeprefix(SYNC_MEMBER_TOPIC_PREFIX)
        return command.reply(
            ext=self._silence(members_of) if members_of != header.topic else None,
            body=encode_route(route, standard=standard, version=command.version),
        )

    def _silence(self, group: str) -> dict[str, str]:
        """The field from which OrbitMQ's brokers see how long a member has been silent; RocketMQ's ignore
        it."""
        silent_ms = self._routes.silent_ms(group, self._now_ms())
        return {} if silent_ms is None else {MEMBERS_SILENT_MS: str(silent_ms)}

    @property
    def waits_for_brokers(self) -> bool:
        """Whether route queries are refused because brokers may not have registered yet."""
        if not self.config.need_wait_for_service:
            return False
        waited_ms = self._now_ms() - self._started_ms
        return waited_ms < self.config.wait_seconds_for_service * 1000

    def _check_ready(self) -> None:
        if self.waits_for_brokers:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, "name server not ready")

    def _cluster_info(self, connection: Hashable, command: Command) -> Command:
        return command.reply(body=self._routes.cluster_info().encode(java_keys=True))

    def _member_group(self, connection: Hashable, command: Command) -> Command:
        header = headers.GetBrokerMemberGroupRequest.from_ext(command.ext)
        group = BrokerMemberGroup(
            cluster=header.cluster_name,
            broker_name=header.broker_name,
            broker_addrs=self._routes.member_addresses(header.broker_name),
        )
        return command.reply(
            ext=self._silence(header.broker_name),
            body=GetBrokerMemberGroupResponseBody(broker_member_group=group).encode(java_keys=True),
        )

    def _wipe_write(self, connection: Hashable, command: Command) -> Command:
        header = headers.WipeWritePermOfBrokerRequest.from_ext(command.ext)
        count = self._routes.topics.wipe_write(header.broker_name)
        log.info("write permission of %s of %s taken away", counted(count, "topic"), header.broker_name)
        return command.reply(ext=headers.WipeWritePermOfBrokerResponse(wipe_topic_count=count).to_ext())

    def _add_write(self, connection: Hashable, command: Command) -> Command:
        header = headers.AddWritePermOfBrokerRequest.from_ext(command.ext)
        count = self._routes.topics.grant_read_write(header.broker_name)
        log.info("%s of %s made readable and writable", counted(count, "topic"), header.broker_name)
        return command.reply(ext=headers.AddWritePermOfBrokerResponse(add_topic_count=count).to_ext())

    # ---- topics

    def _delete_topic(self, connection: Hashable, command: Command) -> Command:
        header = headers.DeleteTopicInNamesrvRequest.from_ext(command.ext)
        self._routes.delete_topic(header.topic, header.cluster_name)
        return command.reply()

    def _register_topic(self, connection: Hashable, command: Command) -> Command:
        header = headers.RegisterTopicInNamesrvRequest.from_ext(command.ext)
        data = TopicRouteData.decode(command.body)
        queues = {
            q.broker_name: GroupQueues(q.read_queue_nums, q.write_queue_nums, q.perm, q.topic_sys_flag)
            for q in data.queue_datas
        }
        unknown = self._routes.register_topic(header.topic, queues)
        if unknown:
            remark = f"register topic {header.topic} failed: no live broker named {', '.join(unknown)}"
            raise RemotingError(ResponseCode.SYSTEM_ERROR, remark)
        return command.reply()

    def _all_topics(self, connection: Hashable, command: Command) -> Command:
        if not self.config.enable_all_topic_list:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, "disable")
        return _topic_list(command, self._routes.topics.names())

    def _topics_of_cluster(self, connection: Hashable, command: Command) -> Command:
        self._check_topic_list()
        header = headers.GetTopicsByClusterRequest.from_ext(command.ext)
        return _topic_list(command, self._routes.topics_of_cluster(header.cluster))

    def _system_topics(self, connection: Hashable, command: Command) -> Command:
        info = self._routes.cluster_info()
        names = set(info.cluster_addr_table)
        for groups in info.cluster_addr_table.values():
            names.update(groups)
        first = next(iter(info.broker_addr_table.values()), None)
        address = None if first is None else next(iter(first.broker_addrs.values()))
        return _topic_list(command, sorted(names), address)

    def _unit_topics(self, connection: Hashable, command: Command) -> Command:
        self._check_topic_list()
        return _topic_list(command, self._routes.unit_topics())

    def _unit_sub_topics(self, connection: Hashable, command: Command) -> Command:
        self._check_topic_list()
        return _topic_list(command, self._routes.unit_sub_topics())

    def _unit_sub_ununit_topics(self, connection: Hashable, command: Command) -> Command:
        self._check_topic_list()
        return _topic_list(command, self._routes.unit_sub_ununit_topics())

    def _check_topic_list(self) -> None:
        if not self.config.enable_topic_list:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, "disable")

    # ---- key-value table

    def _put_kv(self, connection: Hashable, command: Command) -> Answer:
        header = headers.PutKvConfigRequest.from_ext(command.ext)
        return _saved(command, self._kv.put(header.namespace, header.key, header.value))

    def _get_kv(self, connection: Hashable, command: Command) -> Command:
        header = headers.GetKvConfigRequest.from_ext(command.ext)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            remark = f"No config item, Namespace: {header.namespace} Key: {header.key}"
            raise RemotingError(ResponseCode.QUERY_NOT_FOUND, remark)
        return command.reply(ext=headers.GetKvConfigResponse(value=value).to_ext())

    def _delete_kv(self, connection: Hashable, command: Command) -> Answer:
        header = headers.DeleteKvConfigRequest.from_ext(command.ext)
        return _saved(command, self._kv.delete(header.namespace, header.key))

    def _kv_list(self, connection: Hashable, command: Command) -> Command:
        header = headers.GetKvlistByNamespaceRequest.from_ext(command.ext)
        entries = self._kv.namespace(header.namespace)
        if entries is None:
            remark = f"No config item, Namespace: {header.namespace}"
            raise RemotingError(ResponseCode.QUERY_NOT_FOUND, remark)
        return command.reply(body=KVTable(table=dict(entries)).encode())

    # ---- settings

    def _get_config(self, connection: Hashable, command: Command) -> Command:
        return command.reply(body=properties_text.render(self.config.to_properties()).encode())

    def _update_config(self, connection: Hashable, command: Command) -> Answer:
        try:
            text = command.body.decode()
        except UnicodeDecodeError as error:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, f"settings are not UTF-8: {error}") from error
        return self._change_config(command, properties_text.parse(text))

    async def _change_config(self, command: Command, settings: dict[str, str]) -> Command:
        async with self._config_lock:
            black = _NEVER_UPDATED.union(self.config.config_black_list.split(";"))
            if not black.isdisjoint(settings):
                raise RemotingError(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
            try:
                config = replace(self.config, **self.config.live_changes(settings))
            except ConfigError as error:
                raise RemotingError(ResponseCode.INVALID_PARAMETER, str(error)) from error
            if settings and config.config_store_path:
                await self._save_config(config.config_store_path, settings)
            self.config = config
            self.log_levels.apply(levels_of(config.logger_levels))
        return command.reply()

    async def _save_config(self, path: str, settings: dict[str, str]) -> None:
        try:
            await self._runtime.threads.run(self._merge_file, path, settings)
        except (OSError, ValueError) as error:
            remark = f"cannot save configStorePath={path}: {error}"
            raise RemotingError(ResponseCode.SYSTEM_ERROR, remark) from error

    def _merge_file(self, path: str, settings: dict[str, str]) -> None:
        files = self._runtime.files
        text = files.read_bytes(path).decode() if files.exists(path) else ""
        files.write_atomic(path, properties_text.amended(text, settings).encode())


async def _saved(command: Command, change: Awaitable[None]) -> Command:
    try:
        await change
    except KvError as error:
        raise RemotingError(ResponseCode.SYSTEM_ERROR, str(error)) from error
    return command.reply()


def _of_users(access: NameServerAccess) -> Callable[[Hashable, Command], Answer]:
    """The handler of the requests about users and rules. It gets the connections of a running server."""
    return lambda connection, command: access.answers.answer(cast("ServerConnection", connection), command)


def _topic_list(command: Command, topics: list[str], address: str | None = None) -> Command:
    return command.reply(body=TopicList(topic_list=set(topics), broker_addr=address).encode())
