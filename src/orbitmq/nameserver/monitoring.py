"""The name server's health and its metrics, by HTTP or exported. RocketMQ's name server has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from orbitmq.monitoring.certificates import write_end
from orbitmq.monitoring.collection import Collection
from orbitmq.monitoring.exports import KINDS, Exports
from orbitmq.monitoring.exposition import CONTENT_TYPE, Exposition
from orbitmq.monitoring.listen import listen
from orbitmq.monitoring.process import Process
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.handlers import Handlers
from orbitmq.nameserver.routes import RouteTable
from orbitmq.runtime.seam import Runtime
from orbitmq.runtime.server_tls import ServerTls
from orbitmq.runtime.tasks import Background
from orbitmq.settings.exports import DISABLE

if TYPE_CHECKING:
    from orbitmq.monitoring.http import HttpAnswer, HttpListener, Page

# With more broker names than this, brokers are only counted, without a series each.
MAX_NAMES = 10_000
MAX_SERIES = MAX_NAMES + 100
_LABELS: Final = {"node_type": "nameserver"}


class NameServerMonitoring:
    """Serves or exports the metrics, if the settings require it.

    Attributes:
        port: where it listens; 0 when it does not.
    """

    def __init__(
        self,
        runtime: Runtime,
        config: NameServerConfig,
        handlers: Handlers,
        routes: RouteTable,
        tls: ServerTls,
    ) -> None:
        self._runtime = runtime
        self._process = Process(runtime.clock, runtime.host)
        self._background: Background | None = None
        self._exports: Exports | None = None
        self._config = config
        self._handlers = handlers
        self._routes = routes
        self._tls = tls
        self._listener: HttpListener | None = None
        self.port = 0

    async def start(self) -> None:
        """Listen or export, if the settings require it.

        Raises:
            StartError: the port is in use, a library is not installed, or a file holds no token.
        """
        config = self._config
        kind = config.metrics_exporter
        if kind == DISABLE:
            return
        self._background = Background("monitoring")
        if kind in KINDS:
            self._exports = Exports(self._runtime, kind, config.exports, self._collected, MAX_SERIES)
            self._background.spawn(self._exports.run(), "export")
        else:
            self._listener, self.port = await listen(
                self._runtime,
                config.metrics_host,
                config.metrics_port,
                config.metrics_token_file,
                self._pages,
            )
        self._background.spawn(self._process.watch(), "loop")

    async def stop(self) -> None:
        """Stop listening, or exporting."""
        background, self._background = self._background, None
        if background is not None:
            await background.stop()
        exports, self._exports = self._exports, None
        if exports is not None:
            exports.close()
        listener, self._listener = self._listener, None
        self.port = 0
        if listener is not None:
            await listener.stop()

    def _pages(self) -> Mapping[str, Page]:
        from orbitmq.monitoring import health

        return {**health.pages(self._reasons), "/metrics": self._metrics}

    def _reasons(self) -> Sequence[str]:
        if self._handlers.waits_for_brokers:
            return ["waits for brokers to register (needWaitForService, waitSecondsForService)"]
        return []

    def _metrics(self) -> HttpAnswer:
        from orbitmq.monitoring.http import HttpAnswer

        text = Exposition(dict(_LABELS), MAX_SERIES)
        self._write(text)
        return HttpAnswer(200, list(text.parts()), CONTENT_TYPE)

    async def _collected(self, limit: int) -> Collection:
        delta = {"aggregation": "delta"} if self._config.exports.in_delta else {}
        collection = Collection({**_LABELS, **delta}, limit)
        self._write(collection)
        return collection

    def _write(self, text: Exposition) -> None:
        names: dict[tuple[str, str], int] = {}
        for member in self._routes.members():
            key = member.cluster, member.group
            names[key] = names.get(key, 0) + 1
        for name, kind, meaning, value in (
            ("orbitmq_ready", "gauge", "1 when it answers route queries, as /readyz",
             int(not self._reasons())),
            ("orbitmq_nameserver_brokers", "gauge", "Brokers that are registered", sum(names.values())),
            ("orbitmq_nameserver_topics", "gauge", "Topics that have a route", self._routes.topic_number),
            ("orbitmq_nameserver_registrations_total", "counter", "Registrations of brokers",
             self._handlers.registrations),
            ("orbitmq_nameserver_route_queries_total", "counter", "Route queries",
             self._handlers.route_queries),
        ):  # fmt: skip
            text.family(name, kind, meaning).add(value)
        self._process.write(text)
        write_end(text, self._tls.ends_ms, self._tls.files.cert)
        members = text.family(
            "orbitmq_nameserver_broker_members", "gauge", "Brokers of this name that are registered"
        )
        for (cluster, group), count in list(names.items())[:MAX_NAMES]:
            members.add(count, cluster=cluster, broker=group)
