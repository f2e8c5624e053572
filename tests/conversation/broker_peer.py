"""The client of a real broker in memory, for tests that speak RocketMQ's protocol themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Self

from orbitmq.broker.config import BrokerConfig
from orbitmq.message.properties import properties_text
from orbitmq.message.record import Record, iter_records
from orbitmq.runtime.seam import Runtime, Segment
from orbitmq.testing.machine.simulated import SimulatedRuntime
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import PullMessageRequest
from orbitmq.wire.headers.send import SendMessageResponse, SendMessageV2Request

KIB = 1024
ADDRESS = "127.0.0.1:10911"
REQUEST_TIMEOUT_MS = 60_000
HANGS_S = 30.0


def broker_config(**changes: Any) -> BrokerConfig:
    """The settings of a broker with small files: the simulated disk is memory."""
    values: dict[str, Any] = {
        "listen_port": 10911,
        "store_path_root_dir": "/store",
        "mapped_file_size_commit_log": 256 * KIB,
        "mapped_file_size_consume_queue": 6000,
    }
    return BrokerConfig(**{**values, **changes})


def hang(runtime: SimulatedRuntime) -> None:
    """From now on each flush takes half a minute."""
    sync = runtime.threads.sync

    def later(segments: Sequence[Segment], done: Callable[[BaseException | None], object]) -> None:
        loop = asyncio.get_running_loop()
        sync(segments, lambda error: loop.call_later(HANGS_S, done, error))

    runtime.threads.sync = later  # type: ignore[method-assign]


def send_request(topic: str = "T", queue_id: int = 0, **values: Any) -> SendMessageV2Request:
    properties: dict[str, str] = values.pop("properties", None) or {}
    header: dict[str, Any] = {
        "producer_group": "pg",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": queue_id,
        "sys_flag": 0,
        "born_timestamp": 5,
        "flag": 9,
        "properties": properties_text(properties),
    }
    return SendMessageV2Request(**{**header, **values})


def pull_request(offset: int = 0, **values: Any) -> Command:
    header: dict[str, Any] = {
        "consumer_group": "cg",
        "topic": "T",
        "queue_id": 0,
        "queue_offset": offset,
        "max_msg_nums": 32,
        "sys_flag": 4,
        "commit_offset": 0,
        "suspend_timeout_millis": 15_000,
        "sub_version": 0,
        "subscription": "*",
        "expression_type": "TAG",
    }
    return PullMessageRequest(**{**header, **values}).command()


def records(response: Command) -> list[Record]:
    return list(iter_records(response.body))


class BrokerPeer:
    """A client of the broker, on a connection of its own; ``notices`` are the requests that the broker sends
    to it.
    """

    def __init__(self, runtime: Runtime, address: str = ADDRESS, *, client_id: str = "client") -> None:
        self.runtime = runtime
        self.address = address
        self.client_id = client_id
        self.notices: list[Command] = []
        self.client = RemotingClient(runtime, handle=self._note)

    def _note(self, _connection: object, command: Command) -> Command | None:
        self.notices.append(command)
        return None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    async def leave(self) -> None:
        """Close the connection, and let time pass until the broker has noticed."""
        await self.client.close()
        await asyncio.sleep(0.1)

    def now(self) -> int:
        return self.runtime.clock.now_ms()

    async def ask(self, command: Command) -> Command:
        return await self.client.request(self.address, command, REQUEST_TIMEOUT_MS)

    async def call(self, code: int, body: bytes = b"", /, **ext: str | int) -> Command:
        return await self.ask(Command(code, {name: str(value) for name, value in ext.items()}, body))

    async def ok(self, code: int, body: bytes = b"", /, **ext: str | int) -> Command:
        answer = await self.call(code, body, **ext)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer

    async def send(
        self, body: bytes = b"hello", *, topic: str = "T", queue_id: int = 0, **values: Any
    ) -> Command:
        return await self.ask(send_request(topic, queue_id, **values).command(body))

    async def sent(self, body: bytes = b"hello", **values: Any) -> SendMessageResponse:
        """Send a message that the broker has to accept; the response says where it is stored."""
        answer = await self.send(body, **values)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return SendMessageResponse.from_ext(answer.ext)

    async def pull(self, offset: int = 0, **values: Any) -> Command:
        return await self.ask(pull_request(offset, **values))

    async def create(self, topic: str | int = "T", **ext: str | int) -> Command:
        """Make or change a topic as an administrator does."""
        fields: dict[str, str | int] = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": 2,
            "writeQueueNums": 2,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "order": "false",
        }
        return await self.call(RequestCode.UPDATE_AND_CREATE_TOPIC, **{**fields, **ext})
