"""All input of a broker leads to a response or the end of the connection, and other clients stay served."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from tests.conversation.broker_peer import broker_config

from orbitmq.broker.broker import Broker
from orbitmq.broker.doors import Serving
from orbitmq.broker.handlers.router import Router
from orbitmq.message.batch import encode_batch
from orbitmq.message.model import Message
from orbitmq.testing import SimulatedRuntime
from orbitmq.testing.machine.simulated import run, simulated_runtime
from orbitmq.transport.client import RemotingClient
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, Serialization
from orbitmq.wire.errors import RemotingError
from orbitmq.wire.frame import encode_frame
from orbitmq.wire.headers.pull import PullMessageRequest
from orbitmq.wire.headers.send import SendMessageV2Request

KIB = 1024

# The test tries each request code that the router knows; these are the fields of all their headers.
FIELDS = (
    *("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "topic", "defaultTopic", "group"),
    *("consumerGroup", "producerGroup", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset"),
    *("suspendTimeoutMillis", "subscription", "expressionType", "subVersion", "offset", "timestamp"),
    *("readQueueNums", "writeQueueNums", "perm", "topicFilterType", "order", "attributes", "groupName"),
    *("clientID", "clientId", "isForce", "isOrder", "topicSeq", "groupSeq", "dataVersion", "msgId"),
    *("srcGroup", "destGroup", "bornTimestamp", "flag", "properties", "defaultTopicQueueNums", "readable"),
)
values = st.one_of(
    st.sampled_from(["T", "g", "0", "1", "-1", "4", "TBW102", "true", "SINGLE_TAG", "a || b", "*", "{}", ""]),
    st.sampled_from(["9" * 18, "9" * 30, "-" + "9" * 18, "%RETRY%g", "../x", "SQL92", "x" * 300]),
    st.text(max_size=6),
)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    *("clientID", "consumerDataSet", "producerDataSet", "groupName", "subscriptionDataSet"),
                    *("topic", "mqSet", "topicConfigList", "groupConfigList", "attributes"),
                    *("subscriptionData", "perm"),
                ]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)
bodies = st.one_of(
    st.binary(max_size=64),
    st.builds(lambda value: json.dumps(value).encode(), json_values),
    st.sampled_from([b"fileReservedTime=x", b"brokerPermission=6", encode_batch([Message("T", b"x")])]),
)


class Peer:
    """A stand-in for a connection."""

    def __init__(self) -> None:
        self.remote = ("127.0.0.1", 5)
        self.remote_address = "127.0.0.1:5"
        self.closed = False
        self.attributes: dict[str, Any] = {}

    def send(self, command: Command) -> None: ...

    def oneway(self, command: Command) -> None: ...

    def close(self) -> None: ...

    async def request(self, command: Command, timeout_ms: int) -> Command:
        return command.reply()


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[int, dict[str, str], bytes]]:
    count = draw(st.integers(1, 6))
    return [
        (
            draw(st.integers(0, 10_000)),
            draw(st.dictionaries(st.sampled_from(FIELDS), values, max_size=len(FIELDS))),
            draw(bodies),
        )
        for _ in range(count)
    ]


@effort(max_examples=150, deadline=None)
@given(histories())
def test_any_fields_and_any_body_are_answered(history: list[tuple[int, dict[str, str], bytes]]) -> None:
    async def main() -> None:
        async with Broker(simulated_runtime(), broker_config()) as broker:
            broker.services.topics.create_if_absent("T", 4)
            router = broker.part(Serving).router
            codes = sorted(router.codes)
            for number, ext, body in history:
                await _ask(router, Command(codes[number % len(codes)], ext, body))

    run(main())


async def _ask(router: Router, command: Command) -> None:
    connection: Any = Peer()
    refusal = None
    answer: Any = None
    try:
        given = router.handle(connection, command)
        answer = given if given is None or isinstance(given, Command) else await given
    except RemotingError as error:
        refusal = error
    assert refusal is None or (refusal.code != ResponseCode.SUCCESS and refusal.remark)
    assert answer is None or answer.code != ResponseCode.SYSTEM_ERROR or answer.remark


async def test_every_code_without_any_field_is_answered(runtime: SimulatedRuntime) -> None:
    async with Broker(runtime, broker_config()) as broker:
        router = broker.part(Serving).router
        for code in sorted(router.codes):
            await _ask(router, Command(code))


def frames() -> list[bytes]:
    """Valid frames of the kinds that the fast path decodes, in both header formats."""
    send = {"a": "pg", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "5", "h": "0"}
    send |= {"i": "TAGS\x01a\x02UNIQ_KEY\x01" + "A" * 32 + "\x02", "j": "0", "k": "false"}
    pull = PullMessageRequest(
        consumer_group="g",
        topic="T",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription="*",
    ).to_ext()
    found = []
    for form in Serialization:
        found.append(encode_frame(Command(RequestCode.SEND_MESSAGE_V2, send, b"x" * 50, serialization=form)))
        batch = encode_batch([Message("T", b"one", tags="a"), Message("T", b"two")])
        found.append(
            encode_frame(
                Command(RequestCode.SEND_BATCH_MESSAGE, {**send, "m": "true"}, batch, serialization=form)
            )
        )
        found.append(encode_frame(Command(RequestCode.PULL_MESSAGE, pull, serialization=form)))
    return found


def damaged(dice: random.Random, good: list[bytes]) -> bytes:
    """Some frames with a few bytes changed, cut, doubled or inserted."""
    data = bytearray(b"".join(dice.choices(good, k=dice.randrange(1, 5))))
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(data))
        kind = dice.randrange(4)
        if kind == 0:
            data[at] = dice.randrange(256)
        elif kind == 1:
            del data[at : at + dice.randrange(1, 20)]
        elif kind == 2:
            data[at:at] = dice.randbytes(dice.randrange(1, 20))
        else:
            data[at:at] = data[at : at + dice.randrange(1, 60)]
        if not data:
            break
    return bytes(data)


class Raw(asyncio.Protocol):
    """A client that sends bytes and collects the received ones."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport


@pytest.mark.parametrize("seed", range(8))
def test_damaged_frames_disturb_nobody_else(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        runtime = simulated_runtime(seed)
        dice = random.Random(seed)
        async with Broker(runtime, broker_config()) as broker:
            client = RemotingClient(runtime)
            header = SendMessageV2Request(
                producer_group="pg",
                topic="T",
                default_topic="TBW102",
                default_topic_queue_nums=4,
                queue_id=1,
                sys_flag=0,
                born_timestamp=0,
                flag=0,
            )
            for _ in range(40):
                _, raw = await runtime.network.connect(Raw, "127.0.0.1", broker.port)
                assert isinstance(raw, Raw)
                bad = damaged(dice, frames())
                cut = dice.randrange(len(bad) + 1)
                raw.transport.write(bad[:cut])
                await asyncio.sleep(0.01)
                raw.transport.write(bad[cut:])
                await asyncio.sleep(0.01)
                raw.transport.close()
                answer = await client.request(broker.address, header.command(b"x"), 3000)
                assert answer.code == ResponseCode.SUCCESS
            await client.close()

    with caplog.at_level(logging.ERROR):
        run(main())
    assert [record.getMessage() for record in caplog.records] == []
