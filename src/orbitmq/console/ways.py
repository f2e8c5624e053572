"""Finds and makes the page of a path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from orbitmq.admin import Admin
from orbitmq.client.consumer.options import ReaderStart
from orbitmq.client.consumer.reader import Reader
from orbitmq.client.producer.producer import Producer
from orbitmq.console import (
    access,
    brokers,
    charts,
    clients,
    cloning,
    draining,
    groups,
    letters,
    messages,
    timers,
    topics,
    traces,
)
from orbitmq.console.asking import REQUEST_S, Asker, Sight
from orbitmq.console.history import History
from orbitmq.console.model import Link, Page
from orbitmq.console.overview import overview
from orbitmq.console.rights import OPERATOR, VIEWER, may
from orbitmq.console.sessions import Plan, Session
from orbitmq.errors import OrbitError, ValidationError

Query = Mapping[str, str]
Makes = Callable[[], Awaitable[Page]]
# The group of the producer by which the console sends messages.
PRODUCER_GROUP: Final = "orbitmq_console"
MOST_CHOSEN: Final = 100
# The most searches at the same time, each of which may read 100,000 messages.
MOST_SEARCHES: Final = 8


class ClusterOfPages:
    """One cluster, with the clients of one identity.

    Args:
        options: the options of all clients: name servers, credentials, TLS, the runtime.
        monotonic: the clock, in seconds.
    """

    def __init__(self, options: Mapping[str, Any], monotonic: Callable[[], float]) -> None:
        self._options = options
        self.admin = Admin(**options, timeout=REQUEST_S)
        self.asker = Asker(self.admin, monotonic)
        self.history = History()
        self.arrivals = draining.Arrivals()
        self.searching = 0

    def reader(self, topic: str, *, start: ReaderStart, tags: str, sql: str | None) -> Reader:
        return Reader(topic, start=start, tags=tags, sql=sql, **self._options)

    def producer(self) -> Producer:
        return Producer(PRODUCER_GROUP, **self._options)

    async def close(self) -> None:
        await self.admin.close()


@dataclass(frozen=True, slots=True)
class Asked:
    """A request for a page.

    Attributes:
        cluster: the cluster's name.
        parts: the parts of the path; the first is a menu entry.
    """

    cluster: str
    parts: tuple[str, ...]
    query: Query
    chosen: tuple[str, ...]
    session: Session
    now_ms: int

    def note_stopped(self, path: str) -> None:
        """Keep the address that continues the search that the browser stopped; empty without one."""
        self.session.stopped[self.cluster] = path

    def with_stopped(self, page: Page) -> Page:
        """The page, with a link that continues the last stopped search; the link is shown once."""
        path = self.session.stopped.pop(self.cluster, "")
        return replace(page, links=(*page.links, Link("continue_stopped", path))) if path else page


async def overview_of(cluster: ClusterOfPages, now_ms: int) -> Page | str:
    """The first page of a cluster, or the reason why it cannot be made."""
    make = partial(overview, history=cluster.history, now_ms=now_ms)
    try:
        return await cluster.asker.page(("overview",), make)
    except OrbitError as error:
        return str(error)


async def page_of(cluster: ClusterOfPages, asked: Asked, undo: Callable[[str], Plan | None]) -> Page | None:
    """The requested page; ``None`` if the path names none."""
    parts = asked.parts
    if parts[:1] == ("messages",):
        return await _messages(cluster, asked)
    if len(parts) < 2:
        return await _list(cluster, asked, parts[0] if parts else "")
    if len(parts) == 2:
        return await _one(cluster, asked, *parts)
    return await _part(cluster, asked, undo) if len(parts) == 3 else None


async def _list(cluster: ClusterOfPages, asked: Asked, first: str) -> Page | None:
    """The page of a menu entry, or of the thing that its query names."""
    query = asked.query
    if first == "timers" and query.get("id"):
        return await timers.timer(cluster.admin, query["id"].strip())
    if first == "traces":
        return await _trace(cluster, query["id"], query) if query.get("id") else traces.trace_form()
    if first == "clients":
        group = query.get("group", "").strip()
        return await cluster.asker.page((first, group), lambda sight: clients.clients(sight.admin, group))
    makers: Mapping[str, Callable[[Sight], Awaitable[Page]]] = {
        "": partial(overview, history=cluster.history, now_ms=asked.now_ms),
        "charts": partial(charts.charts, history=cluster.history, now_ms=asked.now_ms),
        "topics": partial(topics.topics, history=cluster.history, now_ms=asked.now_ms),
        "groups": groups.groups,
        "dead-letters": lambda sight: letters.all_letters(sight.admin),
        "brokers": partial(brokers.brokers, history=cluster.history, now_ms=asked.now_ms),
        "timers": lambda sight: timers.timers(sight.admin),
        "access": lambda sight: access.access(sight.admin),
    }
    key = asked.parts or ("overview",)
    return await cluster.asker.page(key, makers[first]) if first in makers else None


async def _one(cluster: ClusterOfPages, asked: Asked, first: str, name: str) -> Page | None:
    """The page of one topic, group or other thing."""
    admin, query, parts = cluster.admin, asked.query, asked.parts
    if first == "clients":
        stacks, role = bool(query.get("stacks")), query.get("role", "consumer")
        return await clients.client(admin, name, query.get("id", ""), role, stacks=stacks)
    if first == "traces":
        return await _trace(cluster, name, query)
    if first == "brokers":
        key = query.get("key", "").strip()
        return await cluster.asker.page(
            (*parts, key),
            lambda sight: brokers.broker(sight.admin, name, key, cluster.history, asked.now_ms),
        )
    if (first, name) in FIXED:
        return FIXED[first, name]()
    if (first, name) == ("access", "~test"):
        return await access.tested(admin, query)
    if (first, name) == ("topics", "~delete"):
        return await _deleting(admin, asked.chosen)
    makers: Mapping[str, Callable[[Admin, str], Awaitable[Page]]] = {
        "topics": partial(topics.topic, history=cluster.history, now_ms=asked.now_ms),
        "groups": groups.group,
        "dead-letters": partial(letters.letters, reader=cluster.reader, now_ms=asked.now_ms),
        "access": access.one_user,
    }
    if first not in makers:
        return None
    return await cluster.asker.page(parts, lambda sight: makers[first](sight.admin, name))


FIXED: Final[Mapping[tuple[str, str], Callable[[], Page]]] = {
    ("topics", "~new"): topics.new_topic,
    ("groups", "~new"): groups.new_group,
}


async def _part(cluster: ClusterOfPages, asked: Asked, undo: Callable[[str], Plan | None]) -> Page | None:
    """A page about one thing for one purpose: a form, or a question before a change."""
    admin, (first, name, part) = cluster.admin, asked.parts
    if (first, part) == ("brokers", "drain"):
        return await cluster.asker.page(
            asked.parts, lambda sight: draining.drain(sight.admin, name, cluster.arrivals, asked.now_ms)
        )
    if (first, part) == ("groups", "clone"):
        return await cloning.page(admin, name, asked.query)
    if (first, part) == ("dead-letters", "again"):
        return letters.again(name, _chosen(asked.chosen, "dead letters"))
    if (first, part) == ("topics", "send"):
        return topics.sending(name)
    if (first, part) == ("groups", "reset"):
        if not asked.query.get("to"):
            return await groups.reset_form(admin, name, asked.query)
        answer = await groups.planned(admin, name, asked.query, asked.now_ms)
        plan = Plan(name, tuple(answer.found))
        return groups.preview(plan, asked.session.keep(plan), answer.left_out)
    if (first, part) == ("groups", "undo"):
        back = undo(asked.query.get("of", ""))
        if back is None or back.group != name:
            raise ValidationError("of: this reset is not kept any more")
        now = await admin.groups.plan(name, {one.queue: one.to for one in back.moves})
        plan = Plan(name, tuple(now.found))
        return groups.preview(plan, asked.session.keep(plan), now.left_out)
    makers: Mapping[tuple[str, str], Callable[[Admin, str], Awaitable[Page]]] = {
        ("topics", "edit"): topics.edit_topic,
        ("groups", "edit"): groups.edit_group,
        ("groups", "delete"): groups.deleting,
    }
    return await makers[first, part](admin, name) if (first, part) in makers else None


async def _trace(cluster: ClusterOfPages, message_id: str, query: Query) -> Page:
    given = message_id.strip(), query.get("topic", "").strip()
    return await cluster.asker.page(("traces", *given), lambda sight: traces.trace(sight.admin, *given))


async def _deleting(admin: Admin, chosen: tuple[str, ...]) -> Page:
    if not chosen:
        raise ValidationError("chosen: no topic is chosen")
    return await topics.deleting(admin, _chosen(chosen, "topics"))


def _chosen(chosen: tuple[str, ...], what: str) -> tuple[str, ...]:
    if len(chosen) > MOST_CHOSEN:
        raise ValidationError(f"chosen: {len(chosen)} {what}: at most {MOST_CHOSEN} at once")
    return chosen


async def _messages(cluster: ClusterOfPages, asked: Asked) -> Page | None:
    query, bodies = asked.query, may(asked.session.role, VIEWER)
    item = asked.parts[1] if len(asked.parts) > 1 else query.get("id", "").strip()
    if len(asked.parts) > 2:
        return None
    if item:
        form = query.get("form", "text")
        return await messages.message(
            cluster.admin,
            item,
            query.get("topic", "").strip(),
            form,
            bodies=bodies,
            operates=may(asked.session.role, OPERATOR),
        )
    if cluster.searching >= MOST_SEARCHES:
        raise ValidationError(f"{MOST_SEARCHES} searches are under way: wait until one has ended")
    cluster.searching += 1
    try:
        page = await messages.messages(
            cluster.admin, cluster.reader, query, bodies, asked.now_ms, asked.note_stopped
        )
    finally:
        cluster.searching -= 1
    return asked.with_stopped(page)
