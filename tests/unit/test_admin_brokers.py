"""Roles, logs and lags of brokers, computed from their responses."""

from __future__ import annotations

from dataclasses import replace

from orbitmq.admin import BrokerInfo, BrokerState
from orbitmq.admin.brokers import followers_text, states
from orbitmq.cli.cluster import COLUMNS, _in_sync, _view
from orbitmq.cli.view import plain
from orbitmq.errors import NotPermittedError, OrbitError
from orbitmq.wire.bodies.ha import HAConnectionRuntimeInfo, HARuntimeInfo

A0 = BrokerInfo("c", "a", 0, "h0:1")
A1 = BrokerInfo("c", "a", 1, "h1:1")
FOLLOWERS = '{"1":{"behindBytes":60,"behindMs":250,"inSync":true}}'


def ours(role: str, end: int, **more: str) -> dict[str, str]:
    return {
        "brokerRoleNow": role,
        "brokerActive": "true" if role in ("master", "acting master") else "false",
        "brokerTerm": "3",
        "commitLogMaxOffset": str(end),
        **more,
    }


def test_a_slave_is_behind_by_what_its_master_says() -> None:
    found = states([(A0, ours("master", 100, followers=FOLLOWERS)), (A1, ours("slave", 50))])
    assert found == [
        BrokerState(A0, "master", log_end=100, special_services=True, epoch=3),
        BrokerState(A1, "slave", 50, 60, 0.25, True, False, 3),
    ]


def test_a_master_says_for_how_long_it_has_not_heard_a_slave() -> None:
    silent = FOLLOWERS.replace("true}", 'false,"silentMs":7300}')
    state = states([(A0, ours("master", 100, followers=silent)), (A1, ours("slave", 50))])[1]
    assert (state.in_sync, state.silent) == (False, 7.3)
    assert _in_sync(plain(state)) == "no, silent 7.3 s"
    assert _in_sync(plain(replace(state, silent=0))) == "no"
    assert _in_sync(plain(replace(state, silent=None, in_sync=True))) == "yes"


def test_a_follower_that_tells_no_id_is_known_by_its_host() -> None:
    master = ours("master", 100, followers=FOLLOWERS.replace('"1"', '"h1"'))
    assert states([(A0, master), (A1, ours("slave", 50))])[1].lag == 0.25


def test_slaves_of_a_rocketmq_master_are_known_by_the_host_of_their_connection() -> None:
    told = HARuntimeInfo(
        master=True,
        ha_connection_info=[
            HAConnectionRuntimeInfo(addr="/h1:4711", diff=60, in_sync=True),
            HAConnectionRuntimeInfo(addr="h2:1", diff=-5),
            HAConnectionRuntimeInfo(addr="h2:2", diff=7),
        ],
    )
    master = {"brokerActive": "true", "commitLogMaxOffset": "100", "followers": followers_text(told)}
    others = [(replace(A1, broker_id=at, address=f"h{at}:1"), {"commitLogMaxOffset": "50"}) for at in (1, 2)]
    first, second = states([(A0, master), *others])[1:]
    assert (first.lag_bytes, first.lag, first.in_sync) == (60, None, True)
    # The response does not say which of the two connections of a host belongs to which slave.
    assert (second.lag_bytes, second.in_sync) == (50, None)


def test_without_a_leader_that_knows_it_the_longest_log_counts() -> None:
    found = states([(A0, ours("fenced master", 100)), (A1, ours("slave", 30))])
    assert [state.lag_bytes for state in found] == [0, 70]
    (alone,) = states([(A1, ours("acting master", 30))])
    assert alone == BrokerState(A1, "acting master", 30, special_services=True, epoch=3)


def test_a_rocketmq_broker_shows_what_its_id_says() -> None:
    (state,) = states([(A1, {"brokerActive": "false", "commitLogMaxOffset": "7"})])
    assert state == BrokerState(A1, "slave", log_end=7, special_services=False)


def test_a_broker_that_does_not_answer_is_in_the_list() -> None:
    silent, other = states([(A0, OrbitError("no answer")), (A1, ours("slave", 50))])
    assert silent == BrokerState(A0, "master", problem="no answer")
    assert other.lag_bytes is None


def test_a_broker_that_refuses_is_not_one_that_does_not_answer() -> None:
    no_right = NotPermittedError("h0:1 does not permit it", address="h0:1")
    (refusing,) = states([(A0, no_right)])
    assert refusing == BrokerState(A0, "master", problem="h0:1 does not permit it", refuses=True)
    (row,) = _view([refusing]).as_json()["brokers"]
    assert row["refuses"]
    assert COLUMNS["role"](row) == "master, refuses"  # type: ignore[operator]
    assert COLUMNS["role"]({**row, "refuses": False}) == "master, does not answer"  # type: ignore[operator]


def test_what_cannot_be_read_is_left_out() -> None:
    for followers in ("[", "[1]", '{"1":{}}', '{"1":{"behindBytes":"x","behindMs":1,"inSync":true}}'):
        found = states([(A0, ours("master", 100, followers=followers)), (A1, ours("slave", 50))])
        assert found[1] == replace(BrokerState(A1, "slave", 50, 50), special_services=False, epoch=3)
