"""The bodies of OrbitMQ's requests and answers about redrives, which send dead letters again."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from orbitmq.wire.bodies.base import Body

__all__ = ["Redrive", "RedriveAction", "RedriveRequest", "RedriveState"]


class RedriveState(StrEnum):
    """The state of a redrive."""

    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    DONE = "DONE"
    FAILED = "FAILED"


class RedriveAction(StrEnum):
    """The changes that can be made to a redrive."""

    PAUSE = "PAUSE"
    RESUME = "RESUME"
    STOP = "STOP"


@dataclass(slots=True)
class RedriveRequest(Body):
    """A request to send the dead letters of a group again.

    Attributes:
        to_topic: the topic that gets them; ``None``: each goes to its original topic.
        sql: send only dead letters that this SQL92 expression matches.
        begin_ms, end_ms: send only those that became dead letters in this time, epoch milliseconds.
        rate: messages a second; ``None``: without a limit.
        limit: the most dead letters to send; ``None``: all.
        max_redrives: leave dead letters that were sent again this often.
        dry_run: count the dead letters instead of sending them.
        only: send only the dead letters at these queue offsets of one broker, as ordered pairs of the first
            offset and the one behind the last; ``None``: all.
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
        position, end: the offset of the next dead letter, and the offset at which the redrive ends.
        log_offset: the end of the commit log when ``position`` was saved: messages sent later are behind it.
        sent: how many dead letters were sent again.
        too_often: how many were left because of ``max_redrives``.
        without_topic: how many were left because their topic does not exist.
        too_large: how many were left because their properties have no room for the mark.
        filtered: how many the filter excluded, or an earlier redrive has sent.
        missing_topic: the last topic that did not exist.
        done: the offsets that this redrive and earlier ones have sent again, as pairs of the first offset and
            the one behind the last.
        complete: with ``dry_run``, whether all dead letters were counted in time.
        problem: why the redrive waits or has failed.
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
