"""Long responses to pulls are sent from the log's own memory: the same bytes, whole frames, in their
order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from tests.conversation.broker_peer import pull_request, send_request
from tests.conversation.fast_path_streams import Wire

from orbitmq.broker.broker import Broker
from orbitmq.runtime.seam import Buffer
from orbitmq.store import MessageStore
from orbitmq.testing import SimulatedLoop
from orbitmq.transport.connection import Connection
from orbitmq.wire.command import Command, Serialization
from orbitmq.wire.frame import FrameDecoder, encode_frame
from orbitmq.wire.headers.pull import PullMessageResponse

ALL = 512 << 10
SOME = 100_000
KIB = 1024


class Talk:
    """A connection to a broker whose fast path knows topic T and its reader.

    Attributes:
        in_place: the number of stretches of each response that was sent from the log.
    """

    def __init__(self, broker: Broker, format: Serialization, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store: MessageStore = broker.services.store
        self.in_place: list[int] = []
        self._format = format
        self._broker = broker
        self._opaque = 0
        write_parts = Connection.write_parts

        def noted(connection: Connection, parts: Sequence[Buffer]) -> None:
            self.in_place.append(len(parts) - 1)
            write_parts(connection, parts)

        monkeypatch.setattr(Connection, "write_parts", noted)

    def frame(self, command: Command) -> bytes:
        self._opaque += 1
        command.opaque = self._opaque
        command.serialization = self._format
        return encode_frame(command)

    def send(self, size: int = KIB, queue_id: int = 0) -> bytes:
        return self.frame(
            send_request(queue_id=queue_id).command(self._opaque.to_bytes(4, "big") * (size // 4))
        )

    def pull(self, offset: int = 0, max_bytes: int = ALL, count: int = 1000, **values: int) -> bytes:
        return self.frame(pull_request(offset, max_msg_bytes=max_bytes, max_msg_nums=count, **values))

    async def begin(self) -> None:
        """Connect, and pull until the topic exists and the reader is permitted."""
        self._wire = Wire(self._broker)
        await self.say(self.send())
        await self.say(self.pull())

    async def say(self, *frames: bytes) -> list[Command]:
        """Deliver the frames as one chunk; returns the responses in order."""
        self._wire.raw.clear()
        self._wire.deliver(b"".join(frames))
        await asyncio.sleep(1)
        decoder = FrameDecoder()
        decoder.feed(bytes(self._wire.raw))
        answers = list(decoder.commands())
        assert decoder.buffered_bytes == 0
        return answers

    def check(self, answer: Command, offset: int, max_bytes: int = ALL, count: int = 1000) -> None:
        """Check that the response equals the copy that the store returns."""
        read = self.store.get("T", 0, offset, count, max_bytes=max_bytes)
        assert (answer.code, answer.remark) == (0, "FOUND")
        assert answer.body == read.body
        header = PullMessageResponse.from_ext(answer.ext)
        assert header.next_begin_offset == read.next_offset
        assert (header.min_offset, header.max_offset) == (read.min_offset, read.max_offset)


@pytest.fixture(params=list(Serialization))
def talk(
    request: pytest.FixtureRequest,
    broker: Broker,
    orbitmq_loop: SimulatedLoop,
    monkeypatch: pytest.MonkeyPatch,
) -> Talk:
    talk = Talk(broker, request.param, monkeypatch)
    orbitmq_loop.run(talk.begin())
    return talk


async def test_records_side_by_side_go_out_in_one_stretch_of_each_file(talk: Talk) -> None:
    for _ in range(4):
        await talk.say(*(talk.send() for _ in range(100)))
    for max_bytes, stretches in ((ALL, 3), (SOME, 1)):
        (answer,) = await talk.say(talk.pull(max_bytes=max_bytes))
        talk.check(answer, 0, max_bytes)
        assert talk.in_place.pop() in (stretches, stretches - 1)
    (answer,) = await talk.say(talk.pull(7, count=90))
    talk.check(answer, 7, count=90)
    assert talk.in_place == [1]


async def test_records_between_those_of_other_queues_go_out_in_stretches(talk: Talk) -> None:
    for run in range(30):
        await talk.say(*(talk.send(queue_id=run % 3) for _ in range(20)))
    (answer,) = await talk.say(talk.pull())
    talk.check(answer, 0)
    assert talk.in_place[0] >= 10


async def test_records_that_lie_each_by_itself_are_copied(talk: Talk) -> None:
    for _ in range(4):
        await talk.say(*(talk.send(queue_id=number % 2) for number in range(100)))
    (answer,) = await talk.say(talk.pull())
    talk.check(answer, 0)
    assert talk.in_place == []


async def test_a_short_answer_is_copied_however_much_was_asked_for(talk: Talk) -> None:
    await talk.say(talk.send(20 * KIB), *(talk.send(100) for _ in range(50)))
    (answer,) = await talk.say(talk.pull(1))
    talk.check(answer, 1)
    assert talk.in_place == []


async def test_one_long_message_goes_out_as_it_is(talk: Talk) -> None:
    await talk.say(talk.send(100 * KIB))
    (answer,) = await talk.say(talk.pull(1, max_bytes=64 * KIB))
    talk.check(answer, 1)
    assert talk.in_place == [1]


async def test_answers_keep_the_order_of_their_requests(talk: Talk) -> None:
    for _ in range(2):
        await talk.say(*(talk.send() for _ in range(100)))
    frames = [
        talk.pull(count=1), talk.pull(), talk.pull(3, count=2), talk.pull(SOME), talk.pull(5), talk.pull(6)
    ]  # fmt: skip
    first = talk._opaque - len(frames) + 1
    answers = await talk.say(*frames)
    assert [answer.opaque for answer in answers] == list(range(first, first + len(frames)))
    assert len(talk.in_place) == 3
    for place, (offset, count) in enumerate([(0, 1), (0, 1000), (3, 2), (-1, 0), (5, 1000), (6, 1000)]):
        if count:
            talk.check(answers[place], offset, count=count)


async def test_what_is_not_written_yet_is_not_shown(talk: Talk) -> None:
    await talk.say(*(talk.send() for _ in range(100)))
    end = talk.store.max_offset("T", 0)
    frames = [talk.send(), talk.pull(), talk.send()]
    answers = await talk.say(*frames)
    (pulled,) = (answer for answer in answers if answer.remark == "FOUND")
    assert talk.in_place == [1]
    assert PullMessageResponse.from_ext(pulled.ext).max_offset == end
    assert pulled.body == talk.store.get("T", 0, 0, end, max_bytes=ALL).body
    assert talk.store.max_offset("T", 0) == end + 2


async def test_a_pull_that_waited_is_answered_so_too_and_commits_once(talk: Talk, broker: Broker) -> None:
    waiting = await talk.say(talk.pull(1, sys_flag=7, commit_offset=1, suspend_timeout_millis=10_000))
    assert (waiting, len(broker.services.long_polling)) == ([], 1)
    assert broker.services.offsets.query("cg", "T", 0) == 1
    broker.services.offsets.commit("cg", "T", 0, 0)
    answers = await talk.say(*(talk.send() for _ in range(100)))
    (pulled,) = (answer for answer in answers if answer.remark == "FOUND")
    talk.check(pulled, 1)
    assert talk.in_place == [1]
    assert broker.services.offsets.query("cg", "T", 0) == 0


async def test_it_commits_and_counts_as_any_other(talk: Talk, broker: Broker) -> None:
    await talk.say(*(talk.send() for _ in range(100)))
    fast_path = broker.doors.fast_path
    assert fast_path is not None
    found, out = fast_path.pulls_found, fast_path.messages_out
    await talk.say(talk.pull(1, sys_flag=5, commit_offset=1))
    assert talk.in_place == [1]
    assert (fast_path.pulls_found - found, fast_path.messages_out - out) == (1, 100)
    assert broker.services.offsets.query("cg", "T", 0) == 1
