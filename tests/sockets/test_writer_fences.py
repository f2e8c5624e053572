"""A broker that was frozen with requests in its socket: a writer that takes over is not doubled by them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest

from orbitmq.cluster.processes import ProcessCluster
from orbitmq.message.batch import encode_batch
from orbitmq.message.model import Message
from orbitmq.transport.blocking import BlockingConnection
from orbitmq.transport.errors import TransportError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.offset import GetMaxOffsetRequest, GetMaxOffsetResponse
from orbitmq.wire.headers.send import SendBatchMessageRequest
from orbitmq.wire.headers.writer import BindWriterRequest

TOPIC = "fenced"
BATCHES = 60
LATE_S = 1.0


def batch() -> Command:
    body = encode_batch([Message(TOPIC, b"x" * 1000) for _ in range(200)])
    request = SendBatchMessageRequest(
        producer_group="g", topic=TOPIC, default_topic="TBW102", default_topic_queue_nums=4, queue_id=0,
        sys_flag=0, born_timestamp=0, flag=0, properties="", batch=True,
    )  # fmt: skip
    return request.command(body)


def binding(run: int, *, fence: bool = False) -> Command:
    return BindWriterRequest(writer="w", run=run, part=0, turn=0, fence=fence).command()


def stored(connection: BlockingConnection) -> int:
    answer = connection.request(GetMaxOffsetRequest(topic=TOPIC, queue_id=0).command())
    return GetMaxOffsetResponse.from_ext(answer.ext).offset


@pytest.mark.behaviour("WF-01")
@pytest.mark.parametrize("fences", [True, False])
def test_nothing_of_an_earlier_attempt_is_stored_behind_a_fence(tmp_path: Path, fences: bool) -> None:
    seen, later = asyncio.run(frozen(tmp_path, fences=fences))
    if fences:
        assert later == seen
    else:
        assert later > seen, "without a fence this happens"


async def frozen(folder: Path, *, fences: bool) -> tuple[int, int]:
    """How many messages are stored when the broker has answered who takes over, and some time later."""
    async with ProcessCluster(brokers=1, root=str(folder)) as cluster:
        address, pid = cluster.brokers["broker-a"], cluster.processes["broker-a"].pid
        with BlockingConnection(address, 10_000) as late, BlockingConnection(address, 10_000) as taker:
            assert late.request(binding(1)).code == ResponseCode.SUCCESS
            assert late.request(batch()).code == ResponseCode.SUCCESS
            os.kill(pid, signal.SIGSTOP)
            try:
                for _ in range(BATCHES):
                    late.submit(batch())
                # As much as the socket takes; the rest would come when the broker reads.
                late.poll()
                waiting = asyncio.create_task(asyncio.to_thread(taker.request, binding(2, fence=fences)))
                await asyncio.sleep(0.2)
            finally:
                os.kill(pid, signal.SIGCONT)
            assert (await waiting).code == ResponseCode.SUCCESS
            seen = stored(taker)
            with contextlib.suppress(TransportError):
                late.poll(LATE_S)
            await asyncio.sleep(LATE_S)
            return seen, stored(taker)
