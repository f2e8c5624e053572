"""``orbitmq broker list | status | config | drain``: running brokers, and the draining of one before its
stop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from orbitmq.cli.app import DryRun, Flag, Yes, confirm, make_app
from orbitmq.cli.broker_config import BrokerName, brokers_named
from orbitmq.cli.broker_config import app as config
from orbitmq.cli.cluster import list_brokers
from orbitmq.cli.command import Views, command
from orbitmq.cli.values import at_least
from orbitmq.cli.view import Columns, Line, Table, View, listed, plain, same
from orbitmq.cli.where import Servers
from orbitmq.wording import counted

if TYPE_CHECKING:
    from orbitmq.admin import Admin, BrokerInfo, Reader

app = make_app(
    "broker",
    "Look at running brokers, change their settings, and empty one before it is stopped. "
    "'orbitmq broker --help' tells how to run one.",
    """
orbitmq broker list
orbitmq broker status broker-a
orbitmq broker config get broker-a autoCreateTopicEnable
orbitmq broker config set broker-a autoCreateTopicEnable=false
orbitmq broker config diff broker-a broker-b
orbitmq broker drain broker-a
orbitmq broker drain broker-a --undo
""",
)
app.command(list_brokers, name="list")
app.command(config, name="config")

# A broker is drained if no message arrived for this long; and the interval of the checks.
QUIET_S = 10.0
LOOK_S = 1.0
ARRIVED = "msgPutTotalTodayNow"
READERS: Columns = {**same("group", "members"), "unread": "lag"}


@app.command
@command
async def status(admin: Admin, broker: BrokerName, /) -> View:
    """Show what a broker reports of itself: version, log, rates, queues, disk.

    Of several brokers with this name the master is shown; without a master, the slave with the lowest id.
    """
    found = brokers_named(await admin.brokers.list(), broker)[0]
    report = dict(sorted((await admin.brokers.runtime(found.address)).items()))
    return View({**_facts(found), "status": report}, lines=listed({"address": found.address, **report}))


@app.command
@command
def drain(
    servers: Servers,
    broker: Annotated[str, Parameter(help="Name of the broker.")],
    /,
    *,
    undo: Flag = False,
    timeout: Annotated[int, Parameter()] = 300,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> Views:
    """Empty a broker before its stop: clients send to other brokers. Asks first.

    The command waits until no message has arrived for 10 s, and names the groups that still have messages to
    read. After that the broker can be stopped without a failed send. Groups continue to read from it
    meanwhile.

    Args:
        undo: Let clients read and write all topics of the broker again.
        timeout: Seconds after which waiting ends, with exit code 1.
    """
    at_least(1, timeout=timeout)
    return _drain(servers, broker, undo=undo, timeout=timeout, dry_run=dry_run, yes=yes)


async def _drain(servers: Servers, name: str, *, undo: bool, timeout: int, dry_run: bool, yes: bool) -> Views:
    from orbitmq.admin import Admin

    async with Admin(**servers.options) as admin:
        every = await admin.brokers.list()
        own = brokers_named(every, name, by_address=False)
        what = f"the write permission of {name}"
        others = sorted({one.name for one in every if one.cluster == own[0].cluster} - {name})
        facts = {"broker": name, "undo": undo, "dry_run": dry_run}
        notes = [] if others or undo else [f"{name} is the only one of its cluster: no client can send then"]
        if dry_run:
            line = f"would give {what} back" if undo else f"would take {what}"
            yield View({**facts, "topics": 0, "drained": False, "readers": []}, lines=[line], notes=notes)
            return
        plan = View({}, lines=notes) if notes else None
        await confirm("Give back" if undo else "Take", what, yes=yes, plan=plan)
        change = admin.brokers.give_writes if undo else admin.brokers.take_writes
        answer = await change(name)
        topics = counted(answer.found, "topic")
        if undo:
            yield View(
                {**facts, "topics": answer.found, "drained": False, "readers": []},
                lines=[f"clients read and write {topics} of {name} again"],
                left_out=answer.left_out,
            )
            return
        yield Line(note=f"{name}: write permission of {topics} taken; waiting until nothing came for "
                        f"{QUIET_S:g} s")  # fmt: skip
        drained = await _quiet(admin, own[0], timeout)
        readers = await admin.brokers.readers(own[0].address)
        yield View(
            {**facts, "topics": answer.found, "drained": drained, "readers": list(map(plain, readers))},
            [Table("", readers, READERS, optional=True)],
            lines=[_verdict(name, readers, drained=drained, timeout=timeout)],
            left_out=answer.left_out,
            failed=not drained,
        )


async def _quiet(admin: Admin, broker: BrokerInfo, timeout: int) -> bool:
    """Wait until no message has arrived for a while; returns whether that was within the timeout."""
    from orbitmq.runtime.system import system_runtime

    clock = system_runtime().clock
    begun = last = clock.monotonic()
    before = (await admin.brokers.runtime(broker.address)).get(ARRIVED)
    while (now := clock.monotonic()) - last < QUIET_S:
        if now - begun >= timeout:
            return False
        await clock.sleep(min(LOOK_S, QUIET_S))
        count = (await admin.brokers.runtime(broker.address)).get(ARRIVED)
        if count != before:
            before, last = count, clock.monotonic()
    return True


def _verdict(name: str, readers: Sequence[Reader], *, drained: bool, timeout: int) -> str:
    if not drained:
        return f"{name} still got messages after {timeout} s; undo with: orbitmq broker drain {name} --undo"
    behind = [one for one in readers if one.lag]
    if behind:
        unread = counted(sum(one.lag for one in behind), "message")
        return f"nothing comes to {name}; {unread} there not read by {counted(len(behind), 'group')}"
    return f"nothing comes to {name}, and no group has unread messages there: it can be stopped"


def _facts(broker: BrokerInfo) -> dict[str, object]:
    return {"broker": broker.name, "broker_id": broker.broker_id, "address": broker.address}
