"""One way to query name servers and to build a route, for asyncio, admin, cluster and Spark alike."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import orbitmq
from orbitmq.client.core.inquiry import Inquiry, route_inquiry
from orbitmq.client.core.routing import topic_route
from orbitmq.errors import NameServerError
from orbitmq.spark.cluster.routes import queue_addresses
from orbitmq.transport.errors import ConnectError
from orbitmq.wire.bodies.route import BrokerData, QueueData, TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command

ROUTE = TopicRouteData([QueueData("a", 1, 1, 6)], [BrokerData("c", "a", {0: "a:1"})])
SOURCE = Path(orbitmq.__file__).parent


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


def route(*addresses: str, clock: Clock | None = None, first: int = 0) -> Inquiry[TopicRouteData]:
    return route_inquiry("t", addresses, now_ms=clock or Clock(), first=first)


def answer(code: int = 0, body: bytes = b"") -> Command:
    return Command(code=code, remark="why", body=body)


def test_the_first_usable_answer_ends_the_question() -> None:
    inquiry = route("x:1", "y:1", "z:1", first=1)
    asked = []
    for address, _ in inquiry:
        asked.append(address)
        assert inquiry.command().ext == {"topic": "t", "acceptStandardJsonOnly": "true"}
        if address == "y:1":
            inquiry.failed(address, ConnectError("refused", address))
        else:
            inquiry.answered(address, answer(body=ROUTE.encode()))
    assert asked == ["y:1", "z:1"]
    assert inquiry.result() == ROUTE
    assert inquiry.answered_by == 2


def test_every_server_gets_a_share_of_the_time_that_is_left() -> None:
    clock = Clock()
    inquiry = route("x:1", "y:1", "z:1", clock=clock)
    shares = []
    for address, timeout_ms in inquiry:
        shares.append(timeout_ms)
        clock.now_ms += timeout_ms if address == "x:1" else 0  # y refuses at once
        inquiry.failed(address, ConnectError("gone", address))
    assert shares == [1000, 1000, 2000]


@pytest.mark.parametrize(
    "unusable", [answer(ResponseCode.SYSTEM_ERROR), answer(body=b"{"), answer(body=b"[]")]
)
def test_unknown_means_that_all_who_answered_do_not_know_it(unusable: Command) -> None:
    inquiry = route("x:1", "y:1")
    for address, _ in inquiry:
        inquiry.answered(address, answer(ResponseCode.TOPIC_NOT_EXIST) if address == "x:1" else unusable)
    assert inquiry.result() is None
    inquiry = route("x:1", "y:1")
    for address, _ in inquiry:
        inquiry.answered(address, unusable)
    with pytest.raises(NameServerError, match=r"x:1.*y:1") as caught:
        inquiry.result()
    assert [address for address, _ in caught.value.tried] == ["x:1", "y:1"]


def test_without_a_name_server_there_is_nobody_to_ask() -> None:
    with pytest.raises(NameServerError, match="no name server is configured"):
        list(route())


def test_spark_writes_to_masters_and_reads_from_whom_is_there() -> None:
    data = TopicRouteData(
        [QueueData("a", 1, 1, 6), QueueData("b", 1, 1, 6), QueueData("gone", 1, 1, 6)],
        [BrokerData("c", "a", {0: "a:1", 1: "a:2"}), BrokerData("c", "b", {2: "b:2", 1: "b:1"})],
    )
    route = topic_route("t", data)
    addresses = queue_addresses(route)
    assert {queue.broker_name: address for queue, address in addresses.readable.items()} == {
        "a": "a:1",
        "b": "b:1",
    }
    assert {queue.broker_name: address for queue, address in addresses.writable.items()} == {"a": "a:1"}
    assert addresses.masters == {"a:1"}
    assert set(addresses.writable) == set(route.publish)


def test_nobody_else_asks_name_servers_or_reads_routes() -> None:
    """Code that all clients share is in client.core; the other users of routes are servers, codecs, and the
    tables of the right that each request needs.
    """
    used: dict[str, set[str]] = {"GET_ROUTEINFO_BY_TOPIC": set(), "GET_BROKER_CLUSTER_INFO": set()}
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0]
        if room in ("wire", "nameserver", "gateway", "testing", "auth"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = node.attr if isinstance(node, ast.Attribute) else None
            if name in used:
                used[name].add(path.relative_to(SOURCE).as_posix())
    assert used == {
        "GET_ROUTEINFO_BY_TOPIC": {"client/core/inquiry.py"},
        "GET_BROKER_CLUSTER_INFO": {"client/core/inquiry.py"},
    }
