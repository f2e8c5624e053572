"""A filtered pull that skips consume queue files without a matching message ends in time."""

from __future__ import annotations

import logging

import pytest
from tests.conversation.broker_peer import pull_request, send_request
from tests.conversation.test_fast_path_in_place import Talk

from orbitmq.broker.broker import Broker
from orbitmq.testing import SimulatedLoop
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Serialization
from orbitmq.wire.headers.pull import PullMessageResponse

ENTRIES_OF_A_FILE = 300  # as in the settings of ``broker``
MESSAGES = 3000
MOST_MAPPED = 100


@pytest.fixture
def talk(broker: Broker, orbitmq_loop: SimulatedLoop, monkeypatch: pytest.MonkeyPatch) -> Talk:
    talk = Talk(broker, Serialization.JSON, monkeypatch)
    orbitmq_loop.run(talk.begin())
    mapped = []
    map_entries = talk.store.map_entries

    def counted(slot: int, offset: int) -> bool:
        mapped.append(offset)
        assert len(mapped) < MOST_MAPPED, "the same files are mapped again and again"
        return map_entries(slot, offset)

    monkeypatch.setattr(talk.store, "map_entries", counted)
    return talk


async def test_a_tag_that_no_message_of_several_files_has(
    talk: Talk, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(MESSAGES // 100):
        await talk.say(*(talk.send(32) for _ in range(100)))
    await talk.say(talk.frame(send_request(properties={"TAGS": "rare"}).command(b"the one")))
    offset, found = 0, b""
    with caplog.at_level(logging.ERROR):
        for _ in range(MESSAGES // ENTRIES_OF_A_FILE + 5):
            pull = pull_request(offset, subscription="rare", max_msg_nums=32)
            (answer,) = await talk.say(talk.frame(pull))
            offset = PullMessageResponse.from_ext(answer.ext).next_begin_offset
            if answer.code == ResponseCode.SUCCESS:
                found = bytes(answer.body)
                break
            assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY, answer.remark
    assert b"the one" in found
    assert caplog.records == []
