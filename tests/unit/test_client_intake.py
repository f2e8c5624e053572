"""How much a consumer may fetch, and how much it holds in total."""

from __future__ import annotations

import pytest

from orbitmq import MessageQueue
from orbitmq.client.consumer.intake import FetchControl
from orbitmq.client.consumer.options import ConsumerOptions
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.puller import FlowLimits
from orbitmq.client.core.broker_calls import Filter
from orbitmq.errors import ValidationError
from orbitmq.message.model import ReceivedMessage


def test_a_paused_topic_is_not_wanted_and_does_not_count() -> None:
    intake = FetchControl({"a": Filter("x"), "b": Filter()})
    assert list(intake.topics()) == ["a", "b"]
    held = ProcessQueue(MessageQueue("a", "broker", 0), 0, intake.total_for("a"))
    message = ReceivedMessage("a", b"12345")
    message.queue_offset = 0
    held.add([message])
    assert intake.total.size_bytes == 5
    intake.pause({"a"})
    intake.count([held], "a")
    assert intake.total.size_bytes == 0
    assert intake.wanted("a") is None
    assert intake.wanted("b") == Filter()
    intake.pause(None)
    assert intake.wanted("b") is None
    intake.pause(())
    intake.count([held], "a")
    assert intake.total.size_bytes == 5
    assert intake.wanted("a") == Filter("x")


def test_limits_of_popping_are_checked() -> None:
    with pytest.raises(ValidationError, match="popped of the flow limits"):
        FlowLimits(popped=0)
    for wrong in ({"pop_batch_size": 33}, {"pop_batch_size": 0}):
        with pytest.raises(ValidationError, match="pop_batch_size must be 1 to 32"):
            ConsumerOptions("g", **wrong)
    for seconds in (4.9, 301):
        with pytest.raises(ValidationError, match="pop_invisible_for must be 5 to 300"):
            ConsumerOptions("g", pop_invisible_for=seconds)
