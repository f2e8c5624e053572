"""``orbitmq check``: one line and an exit code for monitoring systems, by the rules of their plugins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from orbitmq.cli.app import Group, OfTopic, make_app
from orbitmq.cli.command import command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.times import time_ms
from orbitmq.cli.tls_words import as_options
from orbitmq.cli.values import at_least
from orbitmq.cli.view import View, left_out_row
from orbitmq.durations import instant, since_1970_ms
from orbitmq.runtime.system import SystemClock
from orbitmq.wording import counted

if TYPE_CHECKING:
    from datetime import datetime

    from orbitmq.admin import Admin, BrokerState, LeftOut, ServerCertificate

app = make_app(
    "check",
    "Checks for monitoring systems: one line, and the exit code 0 (OK), 1 (WARNING), 2 (CRITICAL) or 3 "
    "(UNKNOWN). A check that cannot be made is UNKNOWN.",
    """
orbitmq check lag billing --warn 1000 --critical 100000
orbitmq check lag billing --topic orders --warn 1000 --critical 100000 --json
orbitmq check broker --at-least 4
orbitmq check dlq billing --since 1h
orbitmq check disk --warn 70 --critical 80
orbitmq check cert --context prod --warn 30 --critical 7
""",
)

MOST_NAMED = 3
_DAY_MS = 86_400_000
# Roles in which a broker accepts messages from producers.
TAKES_MESSAGES = {"master", "fenced master"}


class State(IntEnum):
    """The result of a check; its number is the exit code."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


# The order in which one of several states counts: a known fault precedes an unknown state.
ORDER = (State.CRITICAL, State.WARNING, State.UNKNOWN, State.OK)
Warn = Annotated[int, Parameter(name=["--warn"])]
Critical = Annotated[int, Parameter(name=["--critical"])]
Name = Annotated[str | None, Parameter(help="Name of the brokers that are looked at. Default: all brokers.")]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number for the monitoring system to keep: its name, value, unit and limits."""

    name: str
    value: float
    unit: str = ""
    warn: float | None = None
    critical: float | None = None

    @property
    def state(self) -> State:
        """The state by the limits; a number equal to a limit is within it."""
        if self.critical is not None and self.value > self.critical:
            return State.CRITICAL
        return State.WARNING if self.warn is not None and self.value > self.warn else State.OK

    def __str__(self) -> str:
        limits = [_number(limit) for limit in (self.warn, self.critical)]
        return f"{self.name}={_number(self.value)}{self.unit};{';'.join(limits)}".rstrip(";")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.15g}"


def tell(_command: str, line: str, _code: int) -> int:
    """Report a check that could not be made on standard output, which monitoring systems read."""
    print(f"{State.UNKNOWN.name}: {_clean(line)}", flush=True)
    return State.UNKNOWN


TELL = tell


def _view(
    check: str,
    states: Sequence[State],
    text: str,
    figures: Sequence[Figure],
    left_out: Sequence[LeftOut] = (),
) -> View:
    """The check's line and exit code. Brokers without an answer make the state UNKNOWN, unless it is
    worse.
    """
    known = [*states, *(figure.state for figure in figures), *([State.UNKNOWN] if left_out else [])]
    state = next(each for each in ORDER if each in known or each is State.OK)
    texts = [text, *(f"{one}; not counted" for one in left_out)]
    shown = _clean("; ".join(filter(None, texts)))
    measured = f" | {' '.join(map(str, figures))}" if figures else ""
    facts: Mapping[str, object] = {
        "check": check,
        "state": state.name,
        "text": shown,
        "figures": {figure.name: figure.value for figure in figures},
        "left_out": [left_out_row(one) for one in left_out],
    }
    return View(facts, lines=[f"{state.name}: {shown}{measured}"], code=state)


def _clean(text: str) -> str:
    """The text as one line, without the stroke that would begin the figures."""
    return " ".join(as_options(text).split()).replace("|", "/")


def _limits(warn: float, critical: float | None, name: str = "") -> None:
    """Refuse limits that contradict each other.

    Raises:
        UsageError: the warning limit is above the critical one.
    """
    if critical is not None and warn > critical:
        raise UsageError(f"--warn{name} {warn:g} is more than --critical{name} {critical:g}")


@app.command
@command
async def lag(
    admin: Admin,
    group: Group,
    /,
    *,
    warn: Warn,
    critical: Critical,
    warn_age: float | None = None,
    critical_age: float | None = None,
    topic: OfTopic = None,
) -> View:
    """Check how far a group is behind.

    Args:
        warn: WARNING when more messages than this are not consumed.
        critical: CRITICAL when more messages than this are not consumed.
        warn_age: WARNING when the oldest of them is older than this many seconds.
        critical_age: CRITICAL when the oldest of them is older than this many seconds.
        topic: Count only this topic. Default: all topics that the group reads.
    """
    at_least(0, warn=warn, critical=critical)
    _limits(warn, critical)
    if warn_age is not None:
        _limits(warn_age, critical_age, "-age")
    answer = await admin.groups.lag(group, topic=topic)
    topics: dict[str, int] = {}
    for one in answer.found:
        topics[one.queue.topic] = topics.get(one.queue.topic, 0) + one.lag
    behind = sum(topics.values())
    age = max((one.age for one in answer.found), default=0.0)
    figures = [Figure("lag", behind, warn=warn, critical=critical)]
    text = f"{group} is {behind:,} behind{_where(topics)}"
    if warn_age is not None or critical_age is not None:
        figures.append(Figure("age", round(age), "s", warn_age, critical_age))
        text += f", for {age:,.0f} s"
    return _view("lag", [], text, figures, answer.left_out)


def _where(topics: Mapping[str, int]) -> str:
    """The topics in which a group is behind, the largest lag first."""
    worst = sorted(((count, topic) for topic, count in topics.items() if count), reverse=True)
    if len(worst) < 2:
        return "".join(f" in {topic}" for _, topic in worst)
    named = ", ".join(f"{topic} ({count:,})" for count, topic in worst[:MOST_NAMED])
    more = len(worst) - MOST_NAMED
    return f" in {named}" + (f" and {counted(more, 'other topic')}" if more > 0 else "")


@app.command
@command
async def broker(
    admin: Admin, name: Name = None, /, *, at_least: Annotated[int, Parameter(name=["--at-least"])] = 1
) -> View:
    """Check that brokers answer, that each name has a master, and that slaves are in sync.

    Args:
        at_least: CRITICAL when fewer brokers than this are registered.
    """
    if at_least < 0:
        raise UsageError(f"--at-least {at_least}: expected 0 or more")
    found = [state for state in await admin.brokers.states() if name in (None, state.broker.name)]
    problems = _problems(found)
    if len(found) < at_least:
        few = f"{counted(len(found), 'broker')} registered, {at_least} expected"
        problems.insert(0, (State.CRITICAL, few if name is None else f"{name}: {few}"))
    silent = sum(bool(state.problem) and not state.refuses for state in found)
    well = f"{counted(len(found), 'broker')} {'answers' if len(found) == 1 else 'answer'}"
    text = "; ".join(problem for _, problem in problems) or well
    figures = [Figure("brokers", len(found)), Figure("silent", silent)]
    return _view("broker", [state for state, _ in problems], text, figures)


def _problems(found: Sequence[BrokerState]) -> list[tuple[State, str]]:
    from orbitmq.admin.answers import placed

    problems: list[tuple[State, str]] = []
    for name in sorted({state.broker.name for state in found}):
        roles = {state.role for state in found if state.broker.name == name}
        if not roles & TAKES_MESSAGES:
            acts = "acting master" in roles
            text = f"{name} has no master" + (", a slave acts for it" if acts else "")
            problems.append((State.WARNING if acts else State.CRITICAL, text))
    for state in found:
        who = placed(
            f"{state.broker.name} (id {state.broker.broker_id})", state.broker.address, state.problem
        )
        if state.refuses:
            problems.append((State.UNKNOWN, f"{who} refuses: {state.problem}"))
        elif state.problem:
            problems.append((State.CRITICAL, f"{who} does not answer: {state.problem}"))
        elif state.in_sync is False:
            problems.append((State.WARNING, f"{who} is not in sync"))
    return problems


@app.command
@command
async def dlq(
    admin: Admin,
    group: str | None = None,
    /,
    *,
    warn: Warn = 0,
    critical: Annotated[int | None, Parameter(name=["--critical"])] = None,
    since: str | None = None,
) -> View:
    """Check the dead letters of a group, or of all groups.

    Args:
        group: Name of the consumer group. Default: all groups.
        warn: WARNING when there are more dead letters than this.
        critical: CRITICAL when there are more dead letters than this.
        since: Count only groups that got one since then, a time (2026-11-21T14:00, UTC, or milliseconds, 13
            digits) or so long ago (10m; s, m, h, d). Dead letters stay until they expire.
    """
    at_least(0, warn=warn, critical=critical)
    _limits(warn, critical)
    from_ms = None if since is None else time_ms(since, "--since")
    answer = await admin.dead_letters.list()
    kept = [
        one
        for one in answer.found
        if group in (None, one.group)
        and (from_ms is None or (one.newest is not None and since_1970_ms(one.newest) >= from_ms))
    ]
    letters = {one.group: one.count for one in kept}
    total = sum(letters.values())
    text = f"{counted(total, 'dead letter')}{_where(letters).replace(' in ', ' of ', 1)}"
    newest = max((one.newest for one in kept if one.newest is not None), default=None)
    text += "" if newest is None else f", the last one at {_minute(newest)}"
    return _view("dlq", [], text, [Figure("letters", total, "", warn, critical)], answer.left_out)


def _minute(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M}Z"


@app.command
@command
async def disk(admin: Admin, name: Name = None, /, *, warn: Warn = 75, critical: Critical = 85) -> View:
    """Check how full the disks of the brokers are.

    Args:
        warn: WARNING when more than this percentage of a disk is used.
        critical: CRITICAL when more than this percentage of a disk is used.
    """
    at_least(0, warn=warn, critical=critical)
    _limits(warn, critical)
    found = [state for state in await admin.brokers.states() if name in (None, state.broker.name)]
    figures: list[Figure] = []
    unknown: list[str] = [] if found else [f"no broker {name or ''}".rstrip() + " is registered"]
    for state in found:
        who = f"{state.broker.name}-{state.broker.broker_id}"
        if state.disk_used is None:
            dumb = "refuses" if state.refuses else "does not answer"
            why = dumb if state.problem else "does not say how full its disk is"
            unknown.append(f"{who} {why}")
        else:
            figures.append(Figure(who, round(state.disk_used * 100, 1), "%", warn, critical))
    fullest = max(figures, key=lambda figure: figure.value, default=None)
    texts = [f"the disk of {fullest.name} is {fullest.value:g} % full"] if fullest else []
    return _view("disk", [State.UNKNOWN] if unknown else [], "; ".join([*texts, *unknown]), figures)


@app.command
@command
async def cert(admin: Admin, /, *, warn: Warn = 30, critical: Critical = 7) -> View:
    """Check when the TLS certificates of the name servers and brokers end, and whether they are accepted.

    Args:
        warn: WARNING when one ends within this many days.
        critical: CRITICAL when one ends within this many days, or is not accepted.
    """
    at_least(0, warn=warn, critical=critical)
    if critical > warn:
        raise UsageError(f"--critical {critical} is more than --warn {warn}: days that are left")
    answer = await admin.brokers.certificates()
    now_ms = SystemClock().now_ms()
    states: list[State] = []
    texts: list[str] = []
    first: tuple[float, ServerCertificate] | None = None
    for one in answer.found:
        if one.ends is None:
            states.append(State.CRITICAL)
            texts.append(one.problem)
            continue
        days = (since_1970_ms(one.ends) - now_ms) / _DAY_MS
        states.append(State.CRITICAL if days < critical else State.WARNING if days < warn else State.OK)
        if first is None or days < first[0]:
            first = days, one
    figures: list[Figure] = []
    if first is not None:
        days, one = first
        ends = _minute(one.ends or instant(0))
        texts.insert(0, f"the certificate of {one.name} at {one.address} ends in {days:.0f} days, at {ends}")
        figures.append(Figure("days", round(days, 1)))
    return _view("cert", states, "; ".join(texts), figures, answer.left_out)
