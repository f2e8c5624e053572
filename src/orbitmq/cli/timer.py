"""``orbitmq timer``: messages that wait for their time."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from orbitmq.cli.app import Yes, confirm, make_app
from orbitmq.cli.command import command
from orbitmq.cli.formats import body_of, shown
from orbitmq.cli.values import at_least
from orbitmq.cli.view import Table, View, listed, plain, same

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
async def list_timers(admin: Admin, /, *, minutes: int = 10) -> View:
    """Show how many messages wait: by topic, by the minute in which they are due, and the oldest late one.

    Args:
        minutes: Minutes to list, the next ones first; the rest is one line. JSON has all of them.
    """
    at_least(1, minutes=minutes)
    answer = await admin.timers.list()
    rows = [
        {"broker": one.broker_name, "topic": topic, "waiting": n}
        for one in answer.found
        for topic, n in one.topics.items()
    ]
    late = [(one.broker_name, one.oldest_late) for one in answer.found if one.oldest_late]
    return View(
        {"brokers": [{**plain(one), "waiting": one.total} for one in answer.found]},
        [Table("", rows, same("broker", "topic", "waiting")), _minutes(answer.found, minutes)],
        lines=[f"late at {name}: {m.message_id} of {m.topic}, due {shown(m.due)}" for name, m in late],
        left_out=answer.left_out,
        missing="messages that wait there are",
    )


def _minutes(brokers: Sequence[BrokerTimers], limit: int) -> Table:
    total: Counter[datetime] = Counter()
    for broker in brokers:
        total.update(broker.minutes or {})
    at = sorted(total)
    rows = [{"due_in_minute": _minute(minute), "messages": total[minute]} for minute in at[:limit]]
    if len(at) > limit:
        rest = sum(total[minute] for minute in at[limit:])
        rows.append({"due_in_minute": f"later, until {_minute(at[-1])}", "messages": rest})
    return Table("", rows, same("due in minute", "messages"), optional=True)


def _minute(at: datetime) -> str:
    return f"{shown(at) or '':.16}Z"


@app.command
@command
async def show(admin: Admin, message_id: str, /) -> View:
    """Show one message that was sent for a later time, and whether it still waits.

    Args:
        message_id: The message's unique id (message_id of 'orbitmq send') or its recall handle.
    """
    facts = _facts(await admin.timers.show(message_id))
    return View(facts, lines=listed(facts))


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

    Args:
        message_id: The message's unique id (message_id of 'orbitmq send') or its recall handle.
    """
    await confirm("Recall", f"message {message_id}", yes=yes)
    recalled = await admin.timers.cancel(message_id)
    return View({"message_id": recalled, "recalled": True}, lines=[f"recalled {recalled}"])
