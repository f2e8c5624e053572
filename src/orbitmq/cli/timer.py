"""``orbitmq timer``: messages that wait for their time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from orbitmq.cli.app import Yes, confirm, make_app
from orbitmq.cli.command import command
from orbitmq.cli.failures import UsageError
from orbitmq.cli.formats import body_of, shown
from orbitmq.cli.output import table
from orbitmq.cli.view import View, plain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from orbitmq.admin import Admin, BrokerTimers, TimerMessage

app = make_app(
    "timer",
    "Show messages that wait for their time, and recall them.",
    """
orbitmq send reminders 'Wake up' --delay 90
orbitmq timer list
orbitmq timer list --minutes 60 --json
orbitmq timer show 7F0000015E4B63947C6B4E1B3C4D0000
orbitmq timer cancel 7F0000015E4B63947C6B4E1B3C4D0000 --yes
""",
)


@app.command(name="list")
@command
async def list_timers(
    admin: Admin, /, *, minutes: Annotated[int, Parameter(name=["--minutes"])] = 10
) -> View:
    """Show how many messages wait: by topic, by the minute in which they are due, and the oldest late one.

    Parameters
    ----------
    minutes
        Minutes to list, the next ones first; the rest is one line. JSON has all of them.
    """
    if minutes < 1:
        raise UsageError(f"--minutes {minutes}: expected 1 or more")
    answer = await admin.timers.list()
    rows = [[one.broker_name, topic, n] for one in answer.found for topic, n in one.topics.items()]
    late = [(one.broker_name, one.oldest_late) for one in answer.found if one.oldest_late]
    return View(
        {"brokers": [{**plain(one), "waiting": one.total} for one in answer.found]},
        lines=[
            table(["broker", "topic", "waiting"], rows),
            *_minutes(answer.found, minutes),
            *(f"late at {name}: {m.message_id} of {m.topic}, due {shown(m.due)}" for name, m in late),
        ],
        left_out=answer.left_out,
        missing="messages that wait there are",
    )


def _minutes(brokers: Sequence[BrokerTimers], limit: int) -> list[str]:
    total: Counter[datetime] = Counter()
    for broker in brokers:
        total.update(broker.minutes or {})
    if not total:
        return []
    at = sorted(total)
    rows: list[list[object]] = [[_minute(minute), total[minute]] for minute in at[:limit]]
    if len(at) > limit:
        rows.append([f"later, until {_minute(at[-1])}", sum(total[minute] for minute in at[limit:])])
    return ["", table(["due in minute", "messages"], rows)]


def _minute(at: datetime) -> str:
    return f"{shown(at) or '':.16}Z"


@app.command
@command
async def show(admin: Admin, message_id: str, /) -> View:
    """Show one message that was sent for a later time, and whether it still waits.

    Parameters
    ----------
    message_id
        The message's unique id (message_id of 'orbitmq send') or its recall handle.
    """
    facts = _facts(await admin.timers.show(message_id))
    width = max(map(len, facts))
    lines = {**facts, "keys": " ".join(facts["keys"])}
    return View(facts, lines=[f"{name:<{width}}  {value or '-'}" for name, value in lines.items()])


def _facts(found: TimerMessage) -> dict[str, Any]:
    return {
        "topic": found.topic,
        "message_id": found.message_id,
        "state": found.state,
        "deliver_at": shown(found.deliver_at),
        "broker": found.stored.broker_name,
        "stored_at": shown(found.stored.stored_at),
        "tags": found.stored.tags,
        "keys": found.stored.keys,
        **body_of(found.stored),
        "recall_handle": found.handle,
    }


@app.command
@command
async def cancel(admin: Admin, message_id: str, /, *, yes: Yes = False) -> View:
    """Recall a message before it is delivered. The broker must allow it (recallMessageEnable=true).

    Parameters
    ----------
    message_id
        The message's unique id (message_id of 'orbitmq send') or its recall handle.
    yes
        Do not ask.
    """
    confirm("Recall", f"message {message_id}", yes=yes)
    recalled = await admin.timers.cancel(message_id)
    return View({"message_id": recalled, "recalled": True}, lines=[f"recalled {recalled}"])
