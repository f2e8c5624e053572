"""A scripted cluster in memory: as much of a name server and of brokers as clients need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Any

from orbitmq.broker.change_feed import ChangeFeed
from orbitmq.broker.clients.queue_locks import QueueLocks
from orbitmq.message.batch import iter_batch
from orbitmq.message.record import Record, encode_record
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.transport.server import RemotingServer
from orbitmq.wire.bodies.client import (
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from orbitmq.wire.bodies.route import BrokerData, QueueData, TopicRouteData
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

Answer = Command | Awaitable[Command | None] | None


class ScriptedBroker:
    """Stores messages in lists. ``script`` may answer a request before the broker does."""

    def __init__(self, world: ClientWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.port = 0
        self.seen: list[Command] = []
        self.heard: list[tuple[float, Command]] = []
        self.queues: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.heartbeats: dict[str, HeartbeatData] = {}
        self.connections: dict[str, Any] = {}
        self.locks = QueueLocks(world.runtime.clock, ChangeFeed())
        self.script: Callable[[Command], Answer | str] | None = None
        self._server = RemotingServer(world.runtime, self._handle)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self.port = await self._server.start("127.0.0.1", self.port)

    async def stop(self) -> None:
        await self._server.stop()

    def requests(self, code: int) -> list[Command]:
        return [command for command in self.seen if command.code == code]

    def times(self, code: int) -> list[float]:
        """The times of the requests of this code, in seconds of virtual time, with those cleared from
        ``seen``.
        """
        return [when for when, command in self.heard if command.code == code]

    def store(
        self, topic: str, body: bytes, queue_id: int = 0, properties: bytes = b"", **fields: Any
    ) -> int:
        queue = self.queues[topic, queue_id]
        record = Record(
            topic,
            body,
            properties,
            queue_id,
            queue_offset=len(queue),
            physical_offset=1000 * len(self.seen) + len(queue),
            born_host=("127.0.0.1", 1),
            store_host=("127.0.0.1", self.port),
            **fields,
        )
        queue.append(encode_record(record))
        return len(queue) - 1

    def _handle(self, connection: Any, command: Command) -> Answer:
        self.seen.append(command)
        self.heard.append((self.world.runtime.clock.monotonic(), command))
        if self.script is not None:
            answer = self.script(command)
            if answer != "default":
                return answer  # type: ignore[return-value]
        handler = getattr(self, f"_on_{RequestCode(command.code).name.lower()}", None)
        if handler is None:
            return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not scripted")
        result: Answer = handler(connection, command)
        return result

    def _on_send_message_v2(self, connection: Any, command: Command) -> Command:
        ext = command.ext
        self.world.topics.setdefault(ext["b"], {name: int(ext["d"]) for name in self.world.brokers})
        offset = self.store(
            ext["b"], command.body, int(ext["e"]), ext.get("i", "").encode(), sys_flag=int(ext["f"])
        )
        found = {"msgId": "0" * 32, "queueId": ext["e"], "queueOffset": str(offset)}
        return command.reply(0, ext=found)

    def _on_send_batch_message(self, connection: Any, command: Command) -> Command:
        ext = command.ext
        items = list(iter_batch(command.body))
        offsets = [self.store(ext["b"], item.body, int(ext["e"]), item.properties) for item in items]
        found = {"msgId": "0" * 32, "queueId": ext["e"], "queueOffset": str(offsets[0])}
        return command.reply(0, ext=found)

    async def _on_pull_message(self, connection: Any, command: Command) -> Command:
        ext = command.ext
        queue = self.queues[ext["topic"], int(ext["queueId"])]
        offset = int(ext["queueOffset"])
        if int(ext["sysFlag"]) & 1:
            self.offsets[ext["consumerGroup"], ext["topic"], int(ext["queueId"])] = int(ext["commitOffset"])
        waited = 0.0
        while offset == len(queue) and waited * 1000 < int(ext["suspendTimeoutMillis"]):
            await self.world.runtime.clock.sleep(0.01)
            waited += 0.01
        batch = queue[offset : offset + int(ext["maxMsgNums"])]
        code = ResponseCode.SUCCESS if batch else ResponseCode.PULL_NOT_FOUND
        if offset > len(queue):
            code, offset = ResponseCode.PULL_OFFSET_MOVED, len(queue)
        found = {
            "suggestWhichBrokerId": "0",
            "nextBeginOffset": str(offset + len(batch)),
            "minOffset": "0",
            "maxOffset": str(len(queue)),
        }
        return command.reply(code, ext=found, body=b"".join(batch))

    _on_lite_pull_message = _on_pull_message

    def _on_heart_beat(self, connection: Any, command: Command) -> Command:
        data = HeartbeatData.decode(command.body)
        before = self._members()
        self.heartbeats[data.client_id] = data
        self.connections[data.client_id] = connection
        if self._members() != before:
            self._notify(data.client_id)
        return command.reply()

    def _members(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for client_id, data in self.heartbeats.items():
            for consumer in data.consumer_data_set:
                found[consumer.group_name].add(client_id)
        return found

    def _notify(self, cause: str) -> None:
        for group, clients in self._members().items():
            for client_id in clients - {cause}:
                command = Command(code=RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext={"consumerGroup": group})
                self.connections[client_id].oneway(command)

    def _on_unregister_client(self, connection: Any, command: Command) -> Command:
        if self.heartbeats.pop(command.ext["clientID"], None) is not None:
            self._notify(command.ext["clientID"])
        return command.reply()

    def _on_get_consumer_list_by_group(self, connection: Any, command: Command) -> Command:
        members = sorted(self._members().get(command.ext["consumerGroup"], ()))
        if not members:
            return command.reply(ResponseCode.SYSTEM_ERROR, "no consumer for this group")
        return command.reply(body=GetConsumerListByGroupResponseBody(members).encode())

    def _key(self, command: Command) -> tuple[str, str, int]:
        ext = command.ext
        return ext["consumerGroup"], ext["topic"], int(ext["queueId"])

    def _on_query_consumer_offset(self, connection: Any, command: Command) -> Command:
        offset = self.offsets.get(self._key(command))
        if offset is None:
            return command.reply(ResponseCode.QUERY_NOT_FOUND, "not found")
        return command.reply(ext={"offset": str(offset)})

    def _on_update_consumer_offset(self, connection: Any, command: Command) -> Command:
        self.offsets[self._key(command)] = int(command.ext["commitOffset"])
        return command.reply()

    def _on_get_max_offset(self, connection: Any, command: Command) -> Command:
        queue = self.queues[command.ext["topic"], int(command.ext["queueId"])]
        return command.reply(ext={"offset": str(len(queue))})

    def _on_get_min_offset(self, connection: Any, command: Command) -> Command:
        return command.reply(ext={"offset": "0"})

    def _on_search_offset_by_timestamp(self, connection: Any, command: Command) -> Command:
        return command.reply(ext={"offset": "1"})

    def _on_lock_batch_mq(self, connection: Any, command: Command) -> Command:
        body = LockBatchRequestBody.decode(command.body)
        held = self.locks.lock(body.consumer_group, body.client_id, sorted(body.mq_set))
        return command.reply(body=LockBatchResponseBody(set(held)).encode())

    def _on_unlock_batch_mq(self, connection: Any, command: Command) -> Command:
        body = UnlockBatchRequestBody.decode(command.body)
        self.locks.unlock(body.consumer_group, body.client_id, sorted(body.mq_set))
        return command.reply()

    def _on_consumer_send_msg_back(self, connection: Any, command: Command) -> Command:
        return command.reply()


class ClientWorld:
    """One scripted name server and some scripted brokers on a simulated runtime.

    ``topics`` maps a topic to the number of queues per broker; ``down`` names brokers that the name server
    leaves out of its routes. ``members`` names the brokers of a broker group by id where it has more than a
    master, and ``perms`` the brokers' permissions.
    """

    def __init__(self, *names: str, runtime: SimulatedRuntime, auto_create: bool = True) -> None:
        self.runtime = runtime
        self.brokers = {name: ScriptedBroker(self, name) for name in names}
        self.topics: dict[str, dict[str, int]] = {}
        self.down: set[str] = set()
        self.members: dict[str, dict[int, ScriptedBroker]] = {}
        self.perms: dict[str, int] = {}
        self.route_queries: list[str] = []
        self.script: Callable[[Command], Command] | None = None
        if auto_create:
            self.topics["TBW102"] = dict.fromkeys(names, 8)
        self._server = RemotingServer(self.runtime, self._handle)
        self.name_servers = ""

    async def __aenter__(self) -> ClientWorld:
        port = await self._server.start("127.0.0.1", 9876)
        self.name_servers = f"127.0.0.1:{port}"
        for broker in self.brokers.values():
            await broker.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        members = [broker for group in self.members.values() for broker in group.values()]
        for broker in {*self.brokers.values(), *members}:
            await broker.stop()
        await self._server.stop()

    async def stop_name_server(self) -> None:
        await self._server.stop()

    def _handle(self, connection: Any, command: Command) -> Command:
        if self.script is not None:
            return self.script(command)
        if command.code != RequestCode.GET_ROUTEINFO_BY_TOPIC:
            return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not scripted")
        topic = command.ext["topic"]
        self.route_queries.append(topic)
        queues = {name: n for name, n in self.topics.get(topic, {}).items() if name not in self.down}
        if not queues:
            return command.reply(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info for {topic}")
        perm = 7 if topic == "TBW102" else 6
        route = TopicRouteData(
            [QueueData(name, count, count, self.perms.get(name, perm)) for name, count in queues.items()],
            [BrokerData("c", name, self._addresses(name)) for name in queues],
        )
        return command.reply(body=route.encode())

    def _addresses(self, name: str) -> dict[int, str]:
        members = self.members.get(name, {0: self.brokers[name]})
        return {number: broker.address for number, broker in members.items()}
