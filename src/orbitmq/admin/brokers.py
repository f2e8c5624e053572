"""Roles, logs and lags of brokers, computed from the brokerStatus of each. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from orbitmq.admin.model import BrokerInfo, BrokerState
from orbitmq.errors import BrokerError, OrbitError
from orbitmq.message.numbers import whole_number
from orbitmq.transport.address import parse_address
from orbitmq.wire.bodies.ha import HARuntimeInfo

Status = Mapping[str, str]
# The key of the runtime information that holds a master's slaves, as JSON.
FOLLOWERS = "followers"


@dataclass(frozen=True, slots=True)
class _Follower:
    behind_bytes: int
    behind: float | None
    in_sync: bool
    silent: float | None


def states(answers: Sequence[tuple[BrokerInfo, Status | OrbitError]]) -> list[BrokerState]:
    """The state of each broker. An answer is the broker's brokerStatus, or the error of its request."""
    alone = [_alone(broker, answer) for broker, answer in answers]
    followers = {
        (broker.cluster, broker.name): _followers(answer)
        for broker, answer in answers
        if not isinstance(answer, OrbitError) and answer.get("brokerActive") == "true"
    }
    return [
        _beside(state, alone, followers.get((state.broker.cluster, state.broker.name), {})) for state in alone
    ]


def _alone(broker: BrokerInfo, status: Status | OrbitError) -> BrokerState:
    role = "master" if broker.is_master else "slave"
    if isinstance(status, OrbitError):
        return BrokerState(broker, role, problem=str(status), refuses=isinstance(status, BrokerError))
    return BrokerState(
        broker,
        status.get("brokerRoleNow", role),
        log_end=_number(status.get("commitLogMaxOffset")),
        special_services={"true": True, "false": False}.get(status.get("brokerActive", "")),
        epoch=_number(status.get("brokerTerm")),
        disk_used=_share(status.get("commitLogDiskRatio")),
    )


def _beside(
    state: BrokerState, others: Sequence[BrokerState], followers: Mapping[str, _Follower]
) -> BrokerState:
    broker = state.broker
    host = parse_address(broker.address)[0]
    follower = followers.get(str(broker.broker_id)) or followers.get(host)
    if state.role == "master":
        return state
    if follower is not None:
        return replace(
            state,
            lag_bytes=follower.behind_bytes,
            lag=follower.behind,
            in_sync=follower.in_sync,
            silent=follower.silent,
        )
    ends = [
        other.log_end
        for other in others
        if (other.broker.cluster, other.broker.name) == (broker.cluster, broker.name)
        and other.log_end is not None
    ]
    if state.log_end is None or len(ends) < 2:
        return state
    return replace(state, lag_bytes=max(ends) - state.log_end)


def _followers(status: Status) -> dict[str, _Follower]:
    try:
        table: Any = msgspec.json.decode(status.get(FOLLOWERS, "{}"))
        return {
            str(key): _Follower(
                int(each["behindBytes"]),
                int(each["behindMs"]) / 1000 if "behindMs" in each else None,
                bool(each["inSync"]),
                int(each["silentMs"]) / 1000 if "silentMs" in each else None,
            )
            for key, each in table.items()
        }
    except (msgspec.DecodeError, LookupError, TypeError, ValueError, AttributeError):
        return {}


def followers_text(info: HARuntimeInfo) -> str:
    """The slaves of a RocketMQ master by host, in the form that OrbitMQ's masters use. Slaves that share a
    host are left out, since RocketMQ's answer does not distinguish them.
    """
    hosts = [one.addr.lstrip("/").rpartition(":")[0] for one in info.ha_connection_info]
    table = {
        host: {"behindBytes": max(0, one.diff), "inSync": one.in_sync}
        for host, one in zip(hosts, info.ha_connection_info, strict=True)
        if hosts.count(host) == 1
    }
    return msgspec.json.encode(table).decode()


def _share(text: str | None) -> float | None:
    """A ratio between 0 and 1; RocketMQ's brokers write -1 if they cannot determine it."""
    try:
        share = float(text or "")
    except ValueError:
        return None
    return share if 0 <= share <= 1 else None


def _number(text: str | None) -> int | None:
    return None if text is None else whole_number(text)
