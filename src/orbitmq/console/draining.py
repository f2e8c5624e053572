"""The page that drains a broker before it is stopped: clients send to other brokers, groups go on reading.

It shows whether clients may send to the broker, how long ago the last message arrived, and which groups still
read from it. Two forms take the write permission away and give it back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from orbitmq.admin import Admin, BrokerInfo, IncompleteError, Reader
from orbitmq.console.changing import Change, Cluster, Done, Fields, field_of
from orbitmq.console.model import Block, Column, Facts, Field, Form, Link, Page, Said, Table, path_of, said
from orbitmq.console.rights import ADMIN
from orbitmq.console.risks import drain_risk, typing_field
from orbitmq.errors import OrbitError, TopicNotFoundError, ValidationError
from orbitmq.message.reserved import PERM_WRITE

# A broker counts as drained if no message arrived for this long, as in 'orbitmq broker drain'.
QUIET_S: Final = 10.0
REFRESH_S: Final = 3
# How much of the page's deadline may be spent on requests about the groups, of which there may be thousands.
READERS_S: Final = 1.2
# The most brokers for which the time of the last new message is kept.
MOST_BROKERS: Final = 200
ARRIVED: Final = "msgPutTotalTodayNow"
READERS: Final = (
    Column("group", link="/groups/{group}"),
    Column("members", "number"),
    Column("lag", "number"),
)


class Arrivals:
    """How long no message has arrived at each broker, by its count of messages at each showing. Pure."""

    def __init__(self) -> None:
        # By broker: the count and whether clients may send, and the time (ms) since which both are unchanged.
        self._seen: dict[str, tuple[tuple[str, bool | None], int]] = {}

    def quiet_s(self, at_ms: int, broker: str, count: str, writes: bool | None) -> float:
        """For how many seconds the count and the permission have been the same."""
        now = count, writes
        before, since_ms = self._seen.pop(broker, (now, at_ms))
        if before != now:
            since_ms = at_ms
        self._seen[broker] = now, since_ms
        while len(self._seen) > MOST_BROKERS:
            del self._seen[next(iter(self._seen))]
        return max(0, at_ms - since_ms) / 1000


async def drain(admin: Admin, address: str, arrivals: Arrivals, now_ms: int) -> Page:
    """The page of draining the broker at this address, with all brokers of its name."""
    every = await admin.brokers.list()
    found = [one for one in every if one.address == address]
    if not found:
        return Page("brokers", address, said("no_broker_at", "bad", address=address))
    name = found[0].name
    own = _of_name(every, name)
    state, writes, readers = await asyncio.gather(
        admin.brokers.runtime(own[0].address), _writes(admin, name), _readers(admin, own[0].address)
    )
    quiet_s = arrivals.quiet_s(now_ms, name, state.get(ARRIVED, ""), writes)
    unread = None if readers is None else sum(one.lag for one in readers)
    facts = Facts(
        (
            ("writes", {True: "yes", False: "no", None: ""}[writes], "text"),
            ("quiet_for", quiet_s, "seconds"),
            ("unread", unread, "number"),
        )
    )
    rows = [{"group": one.group, "members": one.members, "lag": one.lag} for one in readers or ()]
    notes = [] if readers is not None else [said("readers_unknown")]
    blocks: list[Block] = [
        facts,
        Table("readers", READERS, rows, "no_readers_there", long=True),
        *([_take(every, name)] if writes is not False else []),
        *([_give(name)] if writes is not True else []),
    ]
    waits = writes is False and quiet_s < QUIET_S
    return Page(
        "brokers",
        f"{name} ({address})",
        _sentence(name, writes, quiet_s, unread),
        blocks,
        (Link("the_broker", path_of("brokers", address)),),
        notes,
        refresh_s=REFRESH_S if waits else 0,
    )


def _sentence(name: str, writes: bool | None, quiet_s: float, unread: int | None) -> Said:
    if writes is None:
        return said("drain_unknown", "warn", name=name)
    if writes:
        return said("drain_open", name=name)
    if quiet_s < QUIET_S:
        return said("drain_waits", "warn", name=name, s=f"{QUIET_S:g}")
    if unread is None:
        return said("drain_quiet", "warn", name=name)
    return (
        said("drain_unread", "warn", name=name, n=unread) if unread else said("drain_done", "good", name=name)
    )


def _of_name(every: Sequence[BrokerInfo], name: str) -> Sequence[BrokerInfo]:
    """The registered brokers of a name, the one with the lowest id first.

    Raises:
        ValidationError: no broker has the name, or brokers of several clusters have it, all of which would
            lose the permission.
    """
    own = sorted((one for one in every if one.name == name), key=lambda one: one.broker_id)
    if not own:
        raise ValidationError(f"broker: no broker {name[:80]} is registered")
    if len({one.cluster for one in own}) > 1:
        raise ValidationError(f"broker: brokers of several clusters have the name {name[:80]}")
    return own


async def _writes(admin: Admin, name: str) -> bool | None:
    """Whether routes let clients send to the brokers of a name, by the route of their first writable topic;
    ``None`` if they have no such topic.
    """
    topics = (await admin.topics.settings()).found
    for topic, brokers in topics.items():
        if name in brokers and brokers[name].perm & PERM_WRITE:
            try:
                routes = await admin.topics.route(topic)
            except TopicNotFoundError:
                continue
            return any(one.broker_name == name and one.writable for one in routes)
    return None


async def _readers(admin: Admin, address: str) -> Sequence[Reader] | None:
    """The groups that still have messages to read from the broker; ``None`` if the answers take too long."""
    try:
        async with asyncio.timeout(READERS_S):
            return await admin.brokers.readers(address)
    except (TimeoutError, OrbitError):
        return None


def _take(every: Sequence[BrokerInfo], name: str) -> Form:
    risk = drain_risk(every, name)
    return Form(
        "/do/broker-drain",
        "take_writes",
        (Field("broker", "hidden", name), typing_field(risk.wanted)),
        post=True,
        title="drain",
        note=risk.why,
        needs=ADMIN,
        danger=True,
    )


def _give(name: str) -> Form:
    return Form(
        "/do/broker-drain-undo",
        "give_writes",
        (Field("broker", "hidden", name),),
        post=True,
        title="drain_undo",
        note=said("note_give_writes", name=name),
        needs=ADMIN,
    )


async def take_writes(cluster: Cluster, fields: Fields) -> Done:
    return await _changed(cluster, field_of(fields, "broker"), takes=True)


async def give_writes(cluster: Cluster, fields: Fields) -> Done:
    return await _changed(cluster, field_of(fields, "broker"), takes=False)


async def _changed(cluster: Cluster, name: str, *, takes: bool) -> Done:
    """Take or give the write permission of the brokers of a name, at every name server."""
    brokers = cluster.admin.brokers
    own = _of_name(await brokers.list(), name)
    writes = await _writes(cluster.admin, name)
    answer = await (brokers.take_writes if takes else brokers.give_writes)(name)
    if answer.left_out:
        raise IncompleteError(answer, f"the write permission of {name} is not changed at all name servers")
    before = {True: "read+write", False: "read", None: ""}[writes]
    after = f"{'read' if takes else 'read+write'}, {answer.found} topics"
    text = said("done_drain" if takes else "done_drain_undo", "good", name=name, n=answer.found)
    return Done(text, path_of("brokers", own[0].address, "drain"), name, before, after)


DRAIN_CHANGES: Final = {
    "broker-drain": Change(ADMIN, "broker", take_writes),
    "broker-drain-undo": Change(ADMIN, "broker", give_writes),
}
