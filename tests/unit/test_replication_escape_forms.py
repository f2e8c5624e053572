"""The form of escaping messages, and their targets."""

from __future__ import annotations

from random import Random

import pytest

from orbitmq.broker.transactions.forms import is_prepared
from orbitmq.message import sysflag
from orbitmq.message.properties import encode_properties
from orbitmq.replication.escape.forms import Target, choose, outward, request, targets
from orbitmq.store import NewMessage
from orbitmq.wire.bodies.route import BrokerData, QueueData, TopicRouteData


def data(name: str, **addresses: str) -> BrokerData:
    return BrokerData("c", name, {int(number[1:]): address for number, address in addresses.items()})


def queues(name: str, perm: int = 6, count: int = 4) -> QueueData:
    return QueueData(name, 4, count, perm)


@pytest.mark.behaviour("ES-04")
@pytest.mark.behaviour("ES-05")
def test_only_other_masters_that_take_messages_are_targets() -> None:
    route = TopicRouteData(
        [queues("own"), queues("good"), queues("reads", perm=4), queues("none", count=0), queues("slave")],
        [
            data("own", n0="1:1"),
            data("good", n0="2:1", n1="2:2"),
            data("reads", n0="3:1"),
            data("none", n0="4:1"),
            data("slave", n1="5:1"),
        ],
    )
    assert targets(route, "own") == [Target("good", "2:1", 4)]


def test_another_master_is_tried_each_time() -> None:
    both = [Target("a", "1:1", 1), Target("b", "2:1", 1)]
    for seed in range(20):
        assert choose(both, "a", Random(seed)).broker_name == "b"
    assert {choose(both, "", Random(seed)).broker_name for seed in range(20)} == {"a", "b"}
    assert choose(both[:1], "a", Random(0)).broker_name == "a"


@pytest.mark.behaviour("ES-03")
def test_what_a_message_waited_by_is_gone_and_what_it_is_stays() -> None:
    properties = {
        "DELAY": "3",
        "REAL_TOPIC": "T",
        "REAL_QID": "7",
        "TIMER_DELIVER_MS": "9",
        "TIMER_OUT_MS": "9",
        "UNIQ_KEY": "u",
        "TAGS": "x",
        "WAIT": "true",
    }
    message = NewMessage(
        "T", 7, b"b", encode_properties(properties), 5, 1, born_timestamp=77, reconsume_times=2
    )
    sent = request(*outward(message, properties), Target("b", "2:1", 4), "inner", 16, 11)
    assert sent.properties == "UNIQ_KEY\x01u\x02TAGS\x01x\x02"
    assert (sent.topic, sent.queue_id, sent.producer_group, sent.broker_name) == ("T", 3, "inner", "b")
    assert (sent.default_topic, sent.default_topic_queue_nums) == ("TBW102", 8)
    assert (sent.flag, sent.sys_flag, sent.born_timestamp) == (5, 1, 77)
    assert (sent.reconsume_times, sent.max_reconsume_times) == (2, 16)
    assert (
        request(message, {"PGROUP": "mine"}, Target("b", "2:1", 4), "inner", None, 0).producer_group == "mine"
    )


@pytest.mark.behaviour("ES-13")
@pytest.mark.parametrize(
    ("state", "deliveries", "half"),
    [
        (sysflag.TRANSACTION_PREPARED, 0, True),
        (sysflag.TRANSACTION_COMMIT, 0, False),
        (sysflag.TRANSACTION_COMMIT, 1, False),
    ],
)
def test_a_message_of_a_committed_transaction_does_not_begin_one_anew(
    state: int, deliveries: int, half: bool
) -> None:
    """Seeds 30 and 39: a message that has failed at a consumer must not become a half message again."""
    properties = {"TRAN_MSG": "true", "PGROUP": "shop", "DELAY": "3"}
    encoded = encode_properties(properties)
    message = NewMessage("T", 0, b"b", encoded, sys_flag=state, reconsume_times=deliveries)
    sent, kept = outward(message, properties)
    assert is_prepared(sent, kept) == half
    assert kept["PGROUP"] == "shop"


@pytest.mark.behaviour("ES-11")
@pytest.mark.parametrize(
    ("asked", "at"),
    [
        ({}, "6000"),
        ({"TIMER_DELAY_SEC": "9"}, "6000"),
        ({"TIMER_DELIVER_MS": "5400"}, "5400"),
        ({"TIMER_DELIVER_MS": "6000"}, "6000"),
        ({"TIMER_DELIVER_MS": "5000"}, "6000"),
        ({"TIMER_DELIVER_MS": "soon"}, "6000"),
    ],
)
def test_a_timer_message_that_would_wait_on_is_what_its_producer_sent(asked: dict[str, str], at: str) -> None:
    """It is sent with its own time, not with that of its slot, which is up to a second earlier."""
    properties = {
        **asked,
        "REAL_TOPIC": "T",
        "REAL_QID": "3",
        "TIMER_OUT_MS": "5000",
        "TIMER_ROLL_TIMES": "2",
        "k": "v",
    }
    message, changed = outward(NewMessage("rmq_sys_wheel_timer", 0, b"b", b""), properties)
    assert (message.topic, message.queue_id) == ("T", 3)
    assert changed == {"k": "v", "TIMER_DELIVER_MS": at}


@pytest.mark.behaviour("TX-04")
def test_a_half_message_keeps_its_delay() -> None:
    properties = {"REAL_TOPIC": "T", "REAL_QID": "3", "DELAY": "2", "TRAN_PREPARED_QUEUE_OFFSET": "9"}
    _, changed = outward(NewMessage("T", 0, b"b", b"", sys_flag=4), properties)
    assert changed == {"DELAY": "2"}
