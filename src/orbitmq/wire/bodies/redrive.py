"""Sending dead letters again; requests and answers of OrbitMQ's own, which RocketMQ does not have."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from orbitmq.wire.bodies.base import Body

__all__ = ["Redrive", "RedriveAction", "RedriveRequest", "RedriveState"]


class RedriveState(StrEnum):
    """Where a redrive is."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    DONE = "DONE"
    FAILED = "FAILED"


class RedriveAction(StrEnum):
    """What can be done to a redrive."""

    PAUSE = "PAUSE"
    RESUME = "RESUME"
    STOP = "STOP"


@dataclass(slots=True)
class RedriveRequest(Body):
    """Send the dead letters of a group again.

    Attributes:
        to_topic: where to, ``None``: each to the topic it came from.
        sql: only those that this SQL92 expression matches.
        begin_ms, end_ms: only those that became dead letters in this time, epoch milliseconds.
        rate: messages a second, ``None``: as fast as it goes.
        limit: at most so many, ``None``: all.
        max_redrives: a dead letter that was sent again so often stays.
        dry_run: only count.
        only: only the dead letters at these queue offsets, as pairs of first and behind last, in order;
            ``None``: all. They are those of one broker.
    """

    group: str = ""
    to_topic: str | None = None
    sql: str | None = None
    begin_ms: int | None = None
    end_ms: int | None = None
    rate: int | None = None
    limit: int | None = None
    max_redrives: int = 3
    dry_run: bool = False
    only: list[list[int]] | None = None


@dataclass(slots=True)
class Redrive(Body):
    """A redrive, as the broker keeps it.

    Attributes:
        request: the options of the command that began it.
        position, end: offset of the dead letter to look at next, and the one to end at.
        log_offset: where in the commit log what was sent behind ``position`` begins.
        sent, too_often, without_topic, too_large, filtered: dead letters sent again; left because of
            ``max_redrives``; because their topic is not there; because their properties have no room for the
            mark; passed over by the filter, or because an earlier redrive has sent them.
        missing_topic: the last topic that was not there.
        done: offsets that this redrive and those before it have sent again, as pairs of first and behind
            last.
        complete: with ``dry_run``: whether all were counted in time.
        problem: why it waits or has failed.
    """

    request: RedriveRequest = field(default_factory=RedriveRequest)
    state: RedriveState = RedriveState.RUNNING
    broker_name: str = ""
    started_ms: int = 0
    ended_ms: int = 0
    position: int = 0
    end: int = 0
    log_offset: int = 0
    sent: int = 0
    too_often: int = 0
    without_topic: int = 0
    too_large: int = 0
    filtered: int = 0
    missing_topic: str | None = None
    problem: str | None = None
    complete: bool = True
    done: list[list[int]] = field(default_factory=list)
