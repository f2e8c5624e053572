"""``orbitmq timer``: messages that wait for their time."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from orbitmq.cli.app import Common, confirm, make_app, run_async
from orbitmq.cli.failures import EXIT_OK, UsageError
from orbitmq.cli.formats import body_of, date, shown
from orbitmq.cli.output import print_json, print_table
from orbitmq.cli.partial import plain_left_out, tell_not_shown, told

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from orbitmq.admin import LeftOut
    from orbitmq.admin.timers import BrokerTimers, TimerMessage

MESSAGES = "messages that wait there are"

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
def list_timers(
    *,
    minutes: Annotated[int, Parameter(name=["--minutes", "-m"])] = 10,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Show how many messages wait: by topic, by the minute in which they are due, and the oldest late one.

    Parameters
    ----------
    minutes
        How many minutes to list, the next ones first; the rest is one line. JSON has all of them.
    """
    if minutes < 1:
        raise UsageError(f"--minutes {minutes}: expected 1 or more")
    brokers, left_out = run_async(_pending(common))
    if common.json:
        print_json({"brokers": list(map(_broker_facts, brokers)), "leftOut": plain_left_out(left_out)})
        return tell_not_shown(left_out, MESSAGES)
    rows = [
        [broker.broker_name, topic, count] for broker in brokers for topic, count in broker.topics.items()
    ]
    print_table(["broker", "topic", "waiting"], rows)
    _print_minutes(brokers, minutes)
    for broker in brokers:
        if broker.oldest_late is not None:
            late = broker.oldest_late
            print(f"late at {broker.broker_name}: {late.message_id} of {late.topic}, due {shown(late.due)}")
    return tell_not_shown(left_out, MESSAGES)


def _print_minutes(brokers: Sequence[BrokerTimers], limit: int) -> None:
    total: Counter[datetime] = Counter()
    for broker in brokers:
        total.update(broker.minutes or {})
    if not total:
        return
    at = sorted(total)
    rows: list[list[object]] = [[(shown(minute) or "")[:16] + "Z", total[minute]] for minute in at[:limit]]
    if len(at) > limit:
        rows.append(
            [f"later, until {(shown(at[-1]) or '')[:16]}Z", sum(total[minute] for minute in at[limit:])]
        )
    print()
    print_table(["due in minute", "messages"], rows)


async def _pending(common: Common) -> tuple[Sequence[BrokerTimers], Sequence[LeftOut]]:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        return await told(admin.timers.list())


def _broker_facts(broker: BrokerTimers) -> dict[str, Any]:
    minutes = broker.minutes
    return {
        "brokerName": broker.broker_name,
        "address": broker.address,
        "waiting": broker.total,
        "topics": dict(broker.topics),
        "minutes": None if minutes is None else {shown(at): count for at, count in minutes.items()},
        "oldestLate": None if broker.oldest_late is None else asdict(broker.oldest_late),
    }


@app.command
def show(message_id: str, /, *, common: Common = Common()) -> int:  # noqa: B008 - immutable
    """Show one message that was sent for a later time, and whether it still waits.

    Parameters
    ----------
    message_id
        Its unique id (messageId of 'orbitmq send') or its recall handle.
    """
    found = run_async(_show(message_id, common))
    facts = _facts(found)
    if common.json:
        print_json(facts)
        return EXIT_OK
    facts["keys"] = " ".join(found.stored.keys)
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name:<{width}}  {value or '-'}")
    return EXIT_OK


async def _show(message_id: str, common: Common) -> TimerMessage:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        return await admin.timers.show(message_id)


def _facts(found: TimerMessage) -> dict[str, Any]:
    return {
        "topic": found.topic,
        "messageId": found.message_id,
        "state": found.state,
        "deliverAt": shown(found.deliver_at),
        "brokerName": found.stored.broker_name,
        "stored": date(found.stored.store_timestamp_ms),
        "tags": found.stored.tags,
        "keys": found.stored.keys,
        **body_of(found.stored),
        "recallHandle": found.handle,
    }


@app.command
def cancel(
    message_id: str,
    /,
    *,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative=())] = False,
    common: Common = Common(),  # noqa: B008 - immutable
) -> int:
    """Recall a message before it is delivered. The broker must allow it (recallMessageEnable=true).

    Parameters
    ----------
    message_id
        Its unique id (messageId of 'orbitmq send') or its recall handle.
    yes
        Do not ask.
    """
    confirm("Recall", f"message {message_id}", yes=yes)
    recalled = run_async(_cancel(message_id, common))
    if common.json:
        print_json({"recalled": recalled})
    else:
        print(f"recalled {recalled}")
    return EXIT_OK


async def _cancel(message_id: str, common: Common) -> str:
    from orbitmq.admin import Admin

    async with Admin(common.addresses) as admin:
        return await admin.timers.cancel(message_id)
