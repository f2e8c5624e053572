"""From a topic's route to queues, and the times at which the route is fetched again."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.core.routes import (
    EAGER_INTERVAL_MS,
    REFRESH_MS,
    WATCH_INTERVAL_MS,
    YOUNG_FOR_MS,
    RouteCache,
)
from orbitmq.client.core.routing import TopicRoute, topic_route
from orbitmq.message.model import MessageQueue
from orbitmq.wire.bodies.route import BrokerData, QueueData, TopicRouteData


def route_of(*names: str, **numbers: int) -> TopicRouteData:
    settings = {"read_queue_nums": 4, "write_queue_nums": 4, "perm": 6, **numbers}
    return TopicRouteData(
        [QueueData(name, **settings) for name in names],
        [BrokerData("c", name, {0: f"{name}:10911"}) for name in names],
    )


routes = st.builds(
    lambda entries, masters: TopicRouteData(
        [QueueData(*entry) for entry in entries],
        [BrokerData("c", entry[0], {0 if entry[0] in masters else 1: "h:1"}) for entry in entries],
    ),
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(0, 5), st.integers(0, 5), st.integers(0, 7)),
        unique_by=lambda entry: entry[0],
    ),
    st.sets(st.sampled_from("abcd")),
)


@pytest.mark.behaviour("RT-11")
def test_publish_queues_come_by_broker_name_then_queue_id() -> None:
    route = topic_route("t", route_of("b", "a", write_queue_nums=2))
    assert route.publish == tuple(MessageQueue("t", name, number) for name in "ab" for number in range(2))


@pytest.mark.behaviour("RT-11")
def test_a_broker_without_write_permission_is_left_out() -> None:
    data = route_of("a", "b", write_queue_nums=1)
    data.queue_datas[0].perm = 4
    assert [queue.broker_name for queue in topic_route("t", data).publish] == ["b"]


@pytest.mark.behaviour("RT-12")
@pytest.mark.behaviour("RT-13")
def test_a_broker_without_a_master_can_be_read_but_not_written() -> None:
    data = route_of("a", read_queue_nums=3)
    data.broker_datas[0].broker_addrs = {1: "slave:10921"}
    route = topic_route("t", data)
    assert route.publish == ()
    assert len(route.subscribe) == 3
    assert route.master("a") is None
    assert route.reader("a") == ("slave:10921", True)


@pytest.mark.behaviour("RT-13")
def test_unreadable_queues_are_not_subscribed() -> None:
    assert topic_route("t", route_of("a", perm=2)).subscribe == ()


@pytest.mark.behaviour("RT-14")
def test_order_conf_replaces_the_list_in_its_order() -> None:
    data = route_of("a", "b")
    data.order_topic_conf = "b:2;a:1;broken;c:x"
    assert topic_route("t", data).publish == (
        MessageQueue("t", "b", 0),
        MessageQueue("t", "b", 1),
        MessageQueue("t", "a", 0),
    )


@pytest.mark.behaviour("RT-03")
def test_the_default_route_gives_no_more_queues_than_asked_for() -> None:
    route = topic_route("new", route_of("a", read_queue_nums=8, write_queue_nums=8), default_queues=4)
    assert len(route.publish) == len(route.subscribe) == 4
    assert route.from_default
    small = topic_route("new", route_of("a", read_queue_nums=2, write_queue_nums=8), default_queues=4)
    assert len(small.publish) == 2


@pytest.mark.behaviour("RT-15")
def test_the_order_of_brokers_makes_no_difference() -> None:
    one, two = topic_route("t", route_of("a", "b")), topic_route("t", route_of("b", "a"))
    assert one.same_as(two)
    assert not one.same_as(topic_route("t", route_of("a")))
    assert not one.same_as(None)


@pytest.mark.behaviour("RT-15")
def test_an_unchanged_route_keeps_the_object() -> None:
    cache = RouteCache()
    first = topic_route("t", route_of("a", "b"))
    assert cache.put("t", first, 0)
    assert not cache.put("t", topic_route("t", route_of("b", "a")), 10)
    assert cache.get("t") is first


@given(routes)
def test_building_a_route_leaves_the_answer_alone_and_matches_its_parts(data: TopicRouteData) -> None:
    before = copy.deepcopy(data)
    route = topic_route("t", data)
    assert data == before
    for queue in route.publish:
        entry = next(e for e in data.queue_datas if e.broker_name == queue.broker_name)
        assert queue.queue_id < entry.write_queue_nums
        assert entry.perm & 2
        assert route.master(queue.broker_name)
    assert sum(route.write_queues.values()) == len(route.publish)


def _cached(data: TopicRouteData, now_ms: float = 0) -> RouteCache:
    cache = RouteCache()
    cache.watch("t")
    cache.put("t", topic_route("t", data), now_ms)
    return cache


@pytest.mark.behaviour("RT-05")
def test_a_route_is_asked_for_every_30_seconds() -> None:
    cache = _cached(route_of("a"))
    settled = 20_000
    cache.asked("t", settled)
    assert cache.due(settled + 29_999) == []
    assert cache.due(settled + 30_000) == ["t"]
    cache.asked("t", settled + 30_000)
    assert cache.due(settled + 30_000) == []


def test_a_route_that_just_changed_is_asked_for_each_second() -> None:
    cache = _cached(route_of("a"))
    assert cache.due(WATCH_INTERVAL_MS) == ["t"]
    cache.put("t", topic_route("t", route_of("a", "b")), 9000)
    assert cache.due(9000 + WATCH_INTERVAL_MS) == ["t"]
    cache.asked("t", 9000 + YOUNG_FOR_MS)
    assert cache.due(9000 + YOUNG_FOR_MS + WATCH_INTERVAL_MS) == []


@pytest.mark.behaviour("RT-05")
def test_a_topic_never_answered_is_asked_for_at_once() -> None:
    cache = RouteCache()
    cache.watch("t")
    assert cache.due(0) == ["t"]


def test_suspicion_asks_at_once_but_once_for_all_who_notice() -> None:
    cache = _cached(route_of("a"))
    assert cache.suspect("t", 1000)
    cache.asked("t", 1000)
    assert not cache.suspect("t", 1000 + EAGER_INTERVAL_MS - 1)
    assert cache.suspect("t", 1000 + EAGER_INTERVAL_MS)


def test_after_a_suspicion_the_switch_is_looked_for_often() -> None:
    cache = _cached(route_of("a"))
    cache.suspect("t", 1000)
    cache.asked("t", 1000)
    assert cache.due(1000 + WATCH_INTERVAL_MS - 1) == []
    assert cache.due(1000 + WATCH_INTERVAL_MS) == ["t"]


def test_a_missing_broker_is_looked_for_until_it_is_back() -> None:
    cache = _cached(route_of("a", "b"))
    cache.put("t", topic_route("t", route_of("a")), 50_000)
    assert cache.due(50_000 + WATCH_INTERVAL_MS) == ["t"]
    cache.put("t", topic_route("t", route_of("a", "b")), 52_000)
    cache.asked("t", 70_000)
    assert cache.due(75_000) == []
    assert cache.due(70_000 + REFRESH_MS) == ["t"]


@pytest.mark.behaviour("NR-11")
def test_a_route_that_lost_its_write_bit_is_watched_until_it_has_it_again() -> None:
    cache = _cached(route_of("a", "b"))
    acting = route_of("a", "b")
    acting.queue_datas[0].perm = 4
    cache.put("t", topic_route("t", acting), 50_000)
    cache.asked("t", 600_000)
    assert cache.due(600_000 + WATCH_INTERVAL_MS) == ["t"]
    cache.put("t", topic_route("t", route_of("a", "b")), 601_000)
    cache.asked("t", 620_000)
    assert cache.due(640_000) == []


def test_a_topic_that_was_never_writable_is_not_watched() -> None:
    cache = _cached(route_of("a", perm=4))
    cache.put("t", topic_route("t", route_of("a", perm=4, read_queue_nums=5)), 1000)
    cache.asked("t", 60_000)
    assert cache.due(75_000) == []


def test_a_route_may_be_asked_for_once_more() -> None:
    cache = _cached(route_of("a"))
    cache.asked("t", 60_000)
    cache.ask_soon("t")
    cache.ask_soon("unknown")
    assert cache.due(60_000 + EAGER_INTERVAL_MS) == ["t"]
    cache.asked("t", 60_500)
    assert cache.due(75_000) == []


def test_a_broker_that_fails_while_a_new_topic_has_the_default_route_is_looked_for_too() -> None:
    cache = RouteCache()
    cache.put("t", topic_route("t", route_of("a", "b"), default_queues=4), 0)
    cache.put("t", topic_route("t", route_of("a")), 1000)
    cache.asked("t", 60_000)
    assert cache.due(61_000) == [], "b may never have had the topic"
    cache = RouteCache()
    cache.put("t", topic_route("t", route_of("a", "b"), default_queues=4), 0)
    cache.suspect("t", 900)
    cache.put("t", topic_route("t", route_of("a")), 1000)
    cache.asked("t", 60_000)
    assert cache.due(60_000 + WATCH_INTERVAL_MS) == ["t"]


def test_a_broker_that_stays_away_is_given_up_after_a_while() -> None:
    cache = _cached(route_of("a", "b"))
    cache.put("t", topic_route("t", route_of("a")), 1000)
    cache.asked("t", 700_000)
    assert cache.due(705_000) == []


def test_forgetting_and_listing() -> None:
    cache = _cached(route_of("a"))
    assert cache.topics() == ["t"]
    cache.forget("t")
    assert cache.topics() == []
    assert cache.get("t") is None
    assert isinstance(topic_route("t", route_of("a")), TopicRoute)
