"""Pulls that wait in the fast path: held at the end of their queue, answered when a message arrives."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.message.record import iter_records
from orbitmq.message.sysflag import PullFlag
from orbitmq.testing import SimulatedLoop
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import PullMessageRequest, PullMessageResponse
from orbitmq.wire.headers.send import SendMessageV2Request


def send() -> Command:
    return SendMessageV2Request(
        producer_group="pg",
        topic="T",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=5,
        flag=0,
    ).command(b"news")


def pull(offset: int, *, commit: int | None = None, wait_ms: int = 5000) -> Command:
    flags = PullFlag.SUBSCRIPTION | PullFlag.SUSPEND
    return PullMessageRequest(
        consumer_group="g",
        topic="T",
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=flags | PullFlag.COMMIT_OFFSET if commit is not None else flags,
        commit_offset=commit or 0,
        suspend_timeout_millis=wait_ms,
        subscription="*",
        sub_version=0,
        expression_type="TAG",
    ).command()


@pytest.fixture
def client(broker: Broker, orbitmq_loop: SimulatedLoop) -> RemotingClient:
    """Let group ``g`` pull the only message of topic T, so that the fast path knows both."""
    client = RemotingClient(broker.runtime)

    async def prepare() -> None:
        await client.request(broker.address, send(), 5000)
        answer = await client.request(broker.address, pull(0), 5000)
        assert answer.code == ResponseCode.SUCCESS
        await asyncio.sleep(1)

    orbitmq_loop.run(prepare())
    return client


def bodies(answer: Command) -> list[bytes]:
    return [record.body for record in iter_records(answer.body)]


async def test_a_waiting_pull_gets_the_next_message(broker: Broker, client: RemotingClient) -> None:
    waiting = asyncio.ensure_future(client.request(broker.address, pull(1), 10_000))
    await asyncio.sleep(1)
    assert len(broker.services.long_polling) == 1
    assert not waiting.done()
    await client.request(broker.address, send(), 5000)
    answer = await waiting
    assert (answer.code, bodies(answer)) == (ResponseCode.SUCCESS, [b"news"])
    assert PullMessageResponse.from_ext(answer.ext).next_begin_offset == 2
    assert len(broker.services.long_polling) == 0


async def test_a_pull_whose_time_is_over_learns_that_nothing_came(
    broker: Broker, client: RemotingClient
) -> None:
    answer = await client.request(broker.address, pull(1, wait_ms=2000), 10_000)
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert PullMessageResponse.from_ext(answer.ext).next_begin_offset == 1
    assert len(broker.services.long_polling) == 0


@pytest.mark.behaviour("FI-06")
async def test_a_reset_ends_the_wait_at_once(broker: Broker, client: RemotingClient) -> None:
    """The reset takes the group's permission for the fast path only after it has woken the pull, which must
    not wait again.
    """
    waiting = asyncio.ensure_future(client.request(broker.address, pull(1), 10_000))
    await asyncio.sleep(1)
    assert broker.doors.fast_path is not None
    assert broker.doors.fast_path.pulls_missed == 1
    broker.services.offsets.reset("g", "T", 0, 0)
    await asyncio.sleep(0.1)
    assert waiting.done()
    answer = await waiting
    assert answer.code == ResponseCode.PULL_OFFSET_MOVED
    assert PullMessageResponse.from_ext(answer.ext).next_begin_offset == 0


async def test_the_offset_counts_when_the_pull_comes_and_not_again(
    broker: Broker, client: RemotingClient
) -> None:
    offsets = broker.services.offsets
    waiting = asyncio.ensure_future(client.request(broker.address, pull(1, commit=1), 10_000))
    await asyncio.sleep(1)
    assert offsets.query("g", "T", 0) == 1
    offsets.commit("g", "T", 0, 7)
    await client.request(broker.address, send(), 5000)
    assert (await waiting).code == ResponseCode.SUCCESS
    assert offsets.query("g", "T", 0) == 7


async def test_a_waiting_pull_whose_topic_goes_is_told(broker: Broker, client: RemotingClient) -> None:
    waiting = asyncio.ensure_future(client.request(broker.address, pull(1, commit=1), 10_000))
    await asyncio.sleep(1)
    broker.services.topics.delete("T")
    assert (await waiting).code == ResponseCode.TOPIC_NOT_EXIST


async def test_a_client_that_left_is_forgotten(broker: Broker, client: RemotingClient) -> None:
    waiting = asyncio.ensure_future(client.request(broker.address, pull(1), 10_000))
    await asyncio.sleep(1)
    client.drop_connection(broker.address)
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.sleep(6)
    assert len(broker.services.long_polling) == 0
