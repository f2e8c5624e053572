"""The broker's HTTP listener, and why the broker is not ready to serve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from orbitmq.broker.component import Component
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.doors import Doors
from orbitmq.broker.events import Events, SettingsChanged
from orbitmq.broker.extension import Unready
from orbitmq.broker.metrics.counted import CountedMetrics
from orbitmq.broker.metrics.figures import Figures
from orbitmq.broker.metrics.scrape import Scrape
from orbitmq.broker.metrics.topics import Topics
from orbitmq.broker.registration import Registration
from orbitmq.broker.role import Role, RoleState
from orbitmq.monitoring.exports import KINDS, Exports
from orbitmq.monitoring.listen import listen
from orbitmq.runtime.log_levels import LogLevels
from orbitmq.runtime.seam import Runtime
from orbitmq.settings.exports import DISABLE
from orbitmq.settings.typed import levels_of
from orbitmq.store import MessageStore

if TYPE_CHECKING:
    from orbitmq.broker.metrics.page import MetricsPage
    from orbitmq.monitoring.http import HttpListener
    from orbitmq.monitoring.http import Page as HttpPage


class Readiness:
    """Whether clients can use this broker.

    Args:
        attached: the reasons of attached parts; grows while parts are attached.
    """

    def __init__(
        self,
        doors: Doors,
        role: RoleState,
        store: MessageStore,
        registration: Registration,
        attached: Sequence[Unready],
    ) -> None:
        self._doors = doors
        self._role = role
        self._store = store
        self._registration = registration
        self._attached = attached

    def serving(self) -> bool:
        """Whether the broker's parts work."""
        return self._doors.router is not None and not self._doors.stopping

    def reasons(self) -> Sequence[str]:
        """Why the broker is not ready, each reason a short text; empty when it is ready."""
        if self._doors.stopping:
            return ["stopping"]
        if self._store.recovered is None:
            return [_recovering(self._store.percent_read)]
        if self._doors.router is None:
            return ["starting"]
        found = []
        if self._role.role is Role.PRE_ONLINE:
            found.append("pre-online: it catches up with the others of its name")
        elif self._registration.name_servers and not self._registration.registered:
            servers = ", ".join(self._registration.name_servers)
            found.append(f"not registered: no name server has taken the registration ({servers})")
        found += [reason for each in self._attached for reason in each()]
        refusal = self._store.refusal
        # A slave takes no messages of producers, but it stores those of its master.
        if refusal is not None:
            found.append(f"takes no messages: {refusal}")
        return found


def _recovering(percent: int | None) -> str:
    if percent is None:
        return "recovering: the store is opened"
    return f"recovering: {percent} % of the log is read"


class BrokerMonitoring(Component):
    """Serves metrics and health over HTTP, or exports metrics, and sets the levels of loggers.

    The first component: it answers during recovery and while others stop.

    Attributes:
        port: where it listens; 0 when it does not.
        readiness: whether clients can use the broker.
    """

    name = "monitoring"

    def __init__(
        self,
        runtime: Runtime,
        config: BrokerConfig,
        events: Events,
        readiness: Readiness,
        figures: Figures,
        counted: CountedMetrics,
        topics: Topics,
    ) -> None:
        self._runtime = runtime
        self._config = config
        self.readiness = readiness
        self._figures = figures
        self._counted = counted
        self._topics = topics
        self._page: MetricsPage | None = None
        self._levels = LogLevels()
        events.subscribe(SettingsChanged, self._settings_changed)
        self._listener: HttpListener | None = None
        self._exports: Exports | None = None
        self.port = 0

    async def start(self) -> None:
        """Set the levels of loggers, and listen or export, as the settings say.

        Raises:
            StartError: the port is in use, a library is not installed, or a file holds no token.
        """
        self._levels.apply(levels_of(self._config.logger_levels))
        kind = self._config.metrics_exporter
        if kind == DISABLE:
            return
        config = self._config
        if kind in KINDS:
            collect = self.scrape().collected
            self._exports = Exports(self._runtime, kind, config.exports, collect, config.metrics_series)
            self._spawn(self._exports.run(), "export")
        else:
            await self._listen()
        self._spawn(self._figures.process.watch(), "loop")

    async def _listen(self) -> None:
        self._listener, self.port = await listen(
            self._runtime,
            self._config.metrics_host,
            self._config.metrics_port,
            self._config.metrics_token_file,
            self._pages,
        )

    def scrape(self) -> Scrape:
        """The reader of all figures of this broker."""
        reasons, serving = self.readiness.reasons, self.readiness.serving
        return Scrape(self._config, self._figures, self._counted, self._topics, reasons, serving)

    def _settings_changed(self, event: SettingsChanged) -> None:
        if "logLevels" in event.keys:
            self._levels.apply(levels_of(self._config.logger_levels))

    def _pages(self) -> Mapping[str, HttpPage]:
        from orbitmq.broker.metrics.page import MetricsPage
        from orbitmq.monitoring import health

        self._page = MetricsPage(self.scrape())
        return {**health.pages(self.readiness.reasons), "/metrics": self._page.answer}

    async def stop(self) -> None:
        await self.end_work()
        self._levels.apply({})
        exports, self._exports = self._exports, None
        if exports is not None:
            exports.close()
        listener, self._listener = self._listener, None
        self.port = 0
        if listener is not None:
            await listener.stop()
        page, self._page = self._page, None
        if page is not None:
            await page.stop()
