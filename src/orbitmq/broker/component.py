"""The parts of a broker that start and stop, in order, also at a change of role."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from orbitmq.broker.role import EVERY_ROLE, Role
from orbitmq.runtime.seam import Clock
from orbitmq.runtime.tasks import Background, every

log = logging.getLogger(__name__)

C = TypeVar("C", bound="Component")


class StoredTable(Protocol):
    """A table with a file. Its changes are written and applied through the change feed."""

    def file_text(self) -> Iterator[str]:
        """The text of the table's file in small pieces; the table may change between two pieces."""
        ...

    def restore(self, content: Mapping[str, Any]) -> None:
        """Take over the content of a table file."""
        ...


@dataclass(frozen=True, slots=True)
class Table:
    """A table that is kept on disk as ``config/<name>.json``.

    Attributes:
        name: the name of its file, and its name in the change feed.
        parts: other names of the change feed whose changes belong in this file.
        after: tables whose changes must be on disk before later changes of this one.
        private: whether only the broker's own user may read its file.
    """

    name: str
    source: StoredTable
    parts: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    private: bool = False


class Component:
    """A part of a broker that starts and stops.

    Attributes:
        name: for log lines and task names.
        runs_as: the roles in which it works; it is stopped when the broker takes another role.
        stop_limit_s: the time limit of its stop; then the broker goes on without it. ``None``: no limit.
    """

    name: str = "component"
    runs_as: frozenset[Role] = EVERY_ROLE
    stop_limit_s: float | None = 10.0
    _background: Background | None = None

    def tables(self) -> Sequence[Table]:
        """The tables of this component. They are read before the first component that serves starts."""
        return ()

    async def start(self) -> None:
        """Begin. May be called again after :meth:`stop`."""

    async def stop(self) -> None:
        """End. The next start has to do the work that is left undone."""
        await self.end_work()

    def _spawn(self, work: Coroutine[Any, Any, Any], what: str) -> asyncio.Task[Any]:
        """Run ``work`` as a background task until :meth:`end_work`."""
        if self._background is None:
            self._background = Background(self.name)
        return self._background.spawn(work, what)

    def _every(
        self,
        clock: Clock,
        seconds: float,
        function: Callable[[], Awaitable[object] | object],
        *,
        first_s: float | None = None,
    ) -> None:
        """Call ``function`` again and again until :meth:`end_work`, see ``runtime.tasks.every``."""
        self._spawn(every(clock, seconds, function, first_s=first_s), function.__name__)

    async def end_work(self) -> None:
        """Cancel the background work and return when it has ended."""
        background, self._background = self._background, None
        if background is not None:
            await background.stop()


class ComponentLifecycle:
    """Starts components in their order and stops them in reverse order."""

    def __init__(self, components: Sequence[Component]) -> None:
        self._components = tuple(components)
        self._running: list[Component] = []
        self._names: tuple[str, ...] = ()
        self._changing = asyncio.Lock()

    @property
    def running(self) -> tuple[str, ...]:
        """The names of the components at work, in the order in which they started."""
        return self._names

    def find(self, kind: type[C]) -> C:
        """The first component of a class, running or not.

        Raises:
            LookupError: there is no such component.
        """
        for component in self._components:
            if isinstance(component, kind):
                return component
        raise LookupError(f"no component is a {kind.__name__}")

    async def start(self, role: Role) -> None:
        """Start the components that work in ``role``.

        Raises:
            BaseException: a component did not start; the ones started before it still have to be stopped.
        """
        async with self._changing:
            await self._start_missing(role)

    async def change_role(self, role: Role) -> None:
        """Stop the components that do not work in ``role``, then start those that do."""
        async with self._changing:
            for component in [c for c in reversed(self._running) if role not in c.runs_as]:
                await self._stop(component)
            await self._start_missing(role)

    async def _start_missing(self, role: Role) -> None:
        for component in self._components:
            if role in component.runs_as and component not in self._running:
                # Note it first: a component that started only in part must be stopped, too.
                self._running.append(component)
                self._note_names()
                await component.start()

    async def stop(self) -> None:
        """Stop all components, the last first. A failure, or a stop that takes too long, is only logged."""
        async with self._changing:
            for component in reversed(self._components):
                if component in self._running:
                    await self._stop(component)

    async def kill(self) -> None:
        """End all background work and leave everything as it is, as the end of the process would."""
        for component in reversed(self._running):
            await component.end_work()
        self._running.clear()
        self._note_names()

    def _note_names(self) -> None:
        self._names = tuple(component.name for component in self._running)

    async def _stop(self, component: Component) -> None:
        self._running.remove(component)
        self._note_names()
        try:
            async with asyncio.timeout(component.stop_limit_s):
                await component.stop()
        except TimeoutError:
            log.error("%s did not stop within %s s", component.name, component.stop_limit_s)
        except Exception:
            log.exception("%s did not stop cleanly", component.name)
