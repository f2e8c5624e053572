"""Makes the changes that forms request.

A dangerous change is made only if its target was typed. Each change is written into the audit log, also if it
failed or its browser disconnected. A reset is kept for a while, so that it can be undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from orbitmq.console.audit import Audit
from orbitmq.console.changing import Change, Cluster, Done, Fields, typed
from orbitmq.console.model import Link, path_of
from orbitmq.console.rights import OPERATOR
from orbitmq.console.risks import RISKS, Risk
from orbitmq.console.sessions import Plan, Session
from orbitmq.console.ways import ClusterOfPages
from orbitmq.durations import instant
from orbitmq.errors import OrbitError

# The time limit of a change, which may send requests to several servers in turn.
CHANGE_S: Final = 15.0
# The most resets that can be undone.
MOST_UNDOS: Final = 100


@dataclass(frozen=True, slots=True)
class Wish:
    """A change that a form requests.

    Attributes:
        name: the name of the change.
        cluster, address: the name of the cluster, and the browser's address, for the audit log.
        asks: whether the target of a dangerous change can be asked for; a program gets an error instead.
    """

    name: str
    change: Change
    fields: Fields
    session: Session
    cluster: str
    address: str
    asks: bool


class Maker:
    """Makes changes.

    Args:
        now_ms: the clock, in milliseconds since 1970.
    """

    def __init__(self, audit: Audit, now_ms: Callable[[], int]) -> None:
        self._audit, self._now_ms = audit, now_ms
        # The resets that can be undone, by name, each with its cluster.
        self._undos: dict[str, tuple[str, Plan]] = {}
        self._changing: set[asyncio.Task[Done | Risk]] = set()

    async def close(self) -> None:
        """Cancel the changes under way."""
        for task in list(self._changing):
            task.cancel()
        await asyncio.gather(*self._changing, return_exceptions=True)

    async def make(self, wish: Wish, own: ClusterOfPages) -> Done | Risk:
        """Make a change, even if the browser disconnects; or return the risk that has to be confirmed first.

        Raises:
            ValidationError: a field is wrong, or the target was not typed.
            OrbitError: the cluster refuses the change, or does not answer.
            TimeoutError: the change took too long, and may still be made.
        """
        task = asyncio.ensure_future(self._make(wish, own))
        self._changing.add(task)
        task.add_done_callback(self._changing.discard)
        done = await asyncio.shield(task)
        if isinstance(done, Done) and done.undo is not None and done.undo.moves:
            at_ms = self._now_ms()
            self._undos[f"{at_ms}-{len(self._undos)}"] = wish.cluster, replace(done.undo, at_ms=at_ms)
            while len(self._undos) > MOST_UNDOS:
                del self._undos[next(iter(self._undos))]
        return done

    async def _make(self, wish: Wish, own: ClusterOfPages) -> Done | Risk:
        fields, session = wish.fields, wish.session
        target, outcome, done = fields.get(wish.change.target, ""), "not confirmed", None
        try:
            async with asyncio.timeout(CHANGE_S):
                risk = await RISKS[wish.name](own.admin, fields) if wish.name in RISKS else None
                if risk is not None and wish.asks and "typed" not in fields:
                    outcome = ""
                    return risk
                if risk is not None:
                    typed(fields, risk.wanted)
                cluster = Cluster(own.admin, own.producer, lambda plan: session.plans.pop(plan, None))
                done = await wish.change.make(cluster, fields)
            target, outcome = done.target, "done"
            return done
        except TimeoutError:
            outcome = f"no answer within {CHANGE_S:g} s; it may still be made"
            raise
        except OrbitError as error:
            outcome = str(error)
            raise
        finally:
            own.asker.forget()
            if outcome:
                self._audit.note(
                    user=session.user,
                    address=wish.address,
                    cluster=wish.cluster,
                    change=wish.name,
                    target=target,
                    before=done.before if done else "",
                    after=done.after if done else "",
                    outcome=outcome,
                )

    def undo(self, cluster: str, name: str) -> Plan | None:
        """The moves that undo the reset of this name in that cluster."""
        of, plan = self._undos.get(name, ("", None))
        return plan if of == cluster else None

    def undo_links(self, cluster: str, group: str) -> list[Link]:
        """The link that undoes the last reset of a group, if that reset is kept."""
        found = [
            (name, plan) for name, (of, plan) in self._undos.items() if of == cluster and plan.group == group
        ]
        return [
            Link(
                "undo",
                path_of("groups", group, "undo", of=name),
                OPERATOR,
                {"at": f"{instant(plan.at_ms):%H:%M:%S}"},
            )
            for name, plan in found[-1:]
        ]
