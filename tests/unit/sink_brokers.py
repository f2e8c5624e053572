"""Two brokers without sockets, for tests of the sink: they store the messages sent to them, and fail as
scripted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.unit.spark_conversation import ScriptedConversation

from orbitmq.message.batch import BatchItem, iter_batch
from orbitmq.message.model import MessageQueue
from orbitmq.message.record import Record, encode_record
from orbitmq.runtime.seam import Buffer
from orbitmq.spark.cluster.brokers import Brokers
from orbitmq.spark.cluster.routes import QueueAddresses
from orbitmq.spark.errors import UnreachableError
from orbitmq.spark.write import commit, fencing, in_flight, look, send
from orbitmq.transport.errors import ConnectionLostError
from orbitmq.wire.bodies.topic import KVTable
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.offset import GetMaxOffsetResponse
from orbitmq.wire.headers.pull import PullMessageRequest, PullMessageResponse
from orbitmq.wire.headers.send import SendMessageResponse, SendMessageV2Request
from orbitmq.wire.headers.writer import BindWriterRequest

QUEUES = [
    MessageQueue("t", "broker-a", 0),
    MessageQueue("t", "broker-a", 1),
    MessageQueue("t", "broker-b", 0),
]


class ScriptedBrokers(Brokers):
    """Stores the messages sent to it; each send uses up one of ``failures``."""

    def __init__(self) -> None:
        super().__init__(["n:1"], 100)
        self.stored: dict[MessageQueue, list[BatchItem]] = {queue: [] for queue in QUEUES}
        self.failures: list[str] = []
        self.codes: list[int] = []
        self.behind = [0]
        self.routes_away = 0
        self.slaves: set[str] = set()
        # Addresses shown in the place of a master, without write permission.
        self.acting: set[str] = set()
        self.read_only: set[str] = set()
        # Addresses that the name servers do not show any more.
        self.gone: set[str] = set()
        self.largest = 0
        # The offset of the first message of each queue that has not expired.
        self.first = 0
        self.sends = 0
        # Whether attempts that must not write any more are refused; RocketMQ's brokers do not do that.
        self.fences = True
        self.bound: list[BindWriterRequest] = []
        self.refused_writers = False
        self.before_send: Callable[[], None] = lambda: None
        self.unanswered = 0
        self.order: Callable[[int], int] = lambda count: 0
        # The addresses that answer no sends at present, and the number of requests waiting for a response, by
        # address.
        self.holding: set[str] = set()
        self.waiting: Counter[str] = Counter()

    def converse(self, address: str, allocate: Any = bytearray) -> Any:
        return ScriptedConversation(self, address)

    def route(self, topic: str, *, refresh: bool = False) -> QueueAddresses:
        if self.routes_away:
            self.routes_away -= 1
            raise UnreachableError("name server away")
        table = {q: at for q in QUEUES if (at := f"{q.broker_name}:1") not in self.gone}
        masters = frozenset(set(table.values()) - self.slaves)
        writable = masters - self.acting - self.read_only
        return self._routes.learn(
            topic, QueueAddresses(table, {q: a for q, a in table.items() if a in writable}, masters)
        )

    def ask(self, address: str, commands: Sequence[Command], **_: Any) -> list[Command]:
        return [self.answer(address, command) for command in commands]

    def answer(self, address: str, command: Command) -> Command:
        if command.code == RequestCode.GET_BROKER_RUNTIME_INFO:
            behind = self.behind.pop(0) if len(self.behind) > 1 else self.behind[0]
            return command.reply(body=KVTable({"dispatchBehindBytes": str(behind)}).encode())
        if command.code == RequestCode.GET_BROKER_CONFIG:
            role = "SLAVE" if address in self.acting else "ASYNC_MASTER"
            return command.reply(body=f"brokerRole={role}\n".encode())
        if command.code in (RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2):
            return self._take(address, command)
        if command.code == RequestCode.BIND_WRITER:
            return self._bind(command)
        queue = MessageQueue("t", address.partition(":")[0], int(command.ext["queueId"]))
        log = self.stored[queue]
        if command.code == RequestCode.GET_MAX_OFFSET:
            return GetMaxOffsetResponse(offset=len(log)).reply_to(command)
        if command.code == RequestCode.GET_MIN_OFFSET:
            return GetMaxOffsetResponse(offset=self.first).reply_to(command)
        assert command.code == RequestCode.PULL_MESSAGE
        low = PullMessageRequest.from_ext(command.ext).queue_offset
        body = b"".join(
            encode_record(
                Record("t", item.body, item.properties, queue_offset=low + i, queue_id=queue.queue_id)
            )
            for i, item in enumerate(log[low : low + 32])
        )
        header = PullMessageResponse(
            suggest_which_broker_id=0, next_begin_offset=low, min_offset=self.first, max_offset=len(log)
        )
        if low < self.first:
            return header.reply_to(command, code=ResponseCode.PULL_OFFSET_MOVED)
        return header.reply_to(command, body=body)

    def _bind(self, command: Command) -> Command:
        if not self.fences:
            return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 31004 not supported")
        if self.refused_writers:
            return command.reply(ResponseCode.ILLEGAL_OPERATION, "was ended by run 9")
        self.bound.append(BindWriterRequest.from_ext(command.ext))
        return command.reply()

    def _take(self, address: str, command: Command) -> Command:
        header = SendMessageV2Request.from_ext(command.ext)
        self.sends += 1
        self.before_send()
        if self.codes:
            return command.reply(self.codes.pop(0), "scripted")
        self.largest = max(self.largest, len(command.body))
        alone = command.code == RequestCode.SEND_MESSAGE_V2
        items = [BatchItem(0, command.body, (header.properties or "").encode())]
        items = items if alone else list(iter_batch(command.body))
        if any(len(item.body) > 5000 for item in items):
            return command.reply(ResponseCode.MESSAGE_ILLEGAL, "limit maxMessageSize 5000 bytes")
        failure = self.failures.pop(0) if self.failures else ""
        if failure == "busy":
            return command.reply(ResponseCode.SYSTEM_BUSY, "full")
        if failure == "refuse":
            return command.reply(ResponseCode.INVALID_PARAMETER, "read only")
        log = self.stored[MessageQueue("t", address.partition(":")[0], header.queue_id)]
        if failure != "lose request":
            log += items
        if failure.startswith("lose"):
            raise ConnectionLostError(f"{address}: cut", address)
        code = ResponseCode.FLUSH_DISK_TIMEOUT if failure == "late" else ResponseCode.SUCCESS
        answer = SendMessageResponse(msg_id="0" * 32, queue_id=header.queue_id, queue_offset=len(log))
        made = answer.reply_to(command)
        made.code = code
        return made

    def messages(self) -> list[BatchItem]:
        return [item for log in self.stored.values() for item in log]

    def bodies(self) -> list[int]:
        return sorted(int(item.body) for item in self.messages())


class ScriptedConnection:
    """A connection to the scripted brokers; responses come with the poll after the submit."""

    usable = True

    def __init__(self, brokers: ScriptedBrokers, address: str) -> None:
        self._brokers = brokers
        self.address = address
        self._posted: dict[int, tuple[Command, Buffer]] = {}
        self._number = 0

    def request(self, command: Command) -> Command:
        return self._brokers.answer(self.address, command)

    def submit(self, command: Command, body: Buffer | None = None) -> int:
        self._number += 1
        self._brokers.waiting[self.address] += 1
        self._posted[self._number] = command, command.body if body is None else body
        return self._number

    def poll(self, _timeout_s: float = 0.0) -> dict[int, Command]:
        if self.address in self._brokers.holding:
            return {}
        posted, self._posted = self._posted, {}
        self._brokers.waiting[self.address] -= len(posted)
        for command, body in posted.values():
            # A socket reads the body at this point; it must not have changed since.
            command.body = bytes(body)
        return {
            number: self._brokers.answer(self.address, command) for number, (command, _) in posted.items()
        }

    def close(self) -> None:
        self._posted.clear()


def scripted(patch: pytest.MonkeyPatch) -> ScriptedBrokers:
    """Scripted brokers, which the sink finds instead of real ones."""
    made = ScriptedBrokers()
    for module in (send, commit, look):
        patch.setattr(module, "Brokers", lambda *_: made)
    patch.setattr(in_flight, "BlockingConnection", lambda address, **_: ScriptedConnection(made, address))
    patch.setattr(in_flight, "AVOIDED_S", 0.0)
    patch.setattr(fencing, "LATE_REQUEST_S", 0.0)
    return made
