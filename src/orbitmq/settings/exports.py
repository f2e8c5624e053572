"""The settings of metrics that a server sends by itself, in RocketMQ's keys, for both servers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from orbitmq.settings.typed import ConfigError, Settings, flag, number, one_of, setting

DISABLE: Final = "DISABLE"
PROM: Final = "PROM"
OTLP_GRPC: Final = "OTLP_GRPC"
LOG: Final = "LOG"
exporter = one_of(DISABLE, PROM, OTLP_GRPC, LOG)

_INTERVAL_MS: Final = number(1000, 24 * 3600 * 1000)
_SCHEME: Final = re.compile("https?://")
_NAME: Final = re.compile("[0-9a-z_.-]+")


def _target(key: str, value: str) -> str:
    """``host:port``, with ``https://`` or ``http://`` before it; https is the default."""
    host, colon, port = _SCHEME.sub("", value, count=1).rstrip("/").rpartition(":")
    if value and not (host and colon and port.isdecimal() and 0 < int(port) < 65536 and "/" not in host):
        raise ConfigError(key, value, "https://host:port, or http://host:port without TLS")
    return value


def _headers(key: str, value: str) -> str:
    """``name:value,name:value``, or nothing."""
    for pair in value.split(",") if value else []:
        name, colon, text = pair.strip().partition(":")
        if not (colon and _NAME.fullmatch(name.lower()) and text.isascii() and text.isprintable()):
            raise ConfigError(key, "***", "name:value,name:value, in ASCII")
    return value


@dataclass(frozen=True, slots=True)
class ExportSettings(Settings):
    """The settings of the exporters: address and period of OTLP_GRPC, period of LOG."""

    target: str = setting("", "metricsGrpcExporterTarget", _target)
    header: str = setting("", "metricsGrpcExporterHeader", _headers, secret=True)
    timeout_ms: int = setting(3000, "metricGrpcExporterTimeOutInMills", number(100, 60_000))
    interval_ms: int = setting(60_000, "metricGrpcExporterIntervalInMills", _INTERVAL_MS)
    batch: int = setting(1000, "metricsExportBatchMaxDataPoints", number(1, 100_000))
    log_interval_ms: int = setting(10_000, "metricLoggingExporterIntervalInMills", _INTERVAL_MS)
    in_delta: bool = setting(False, "metricsInDelta", flag)

    def check(self, kind: str) -> None:
        """Refuse OTLP_GRPC without a receiver. (RocketMQ writes an error to its log, and sends nothing.)

        Raises:
            ConfigError: there is no receiver.
        """
        if kind == OTLP_GRPC and not self.target:
            raise ConfigError(
                "metricsExporterType", kind, "metricsGrpcExporterTarget=https://host:port beside it"
            )

    @property
    def endpoint(self) -> str:
        """The receiver, with its scheme."""
        return self.target if _SCHEME.match(self.target) else f"https://{self.target}"

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """The headers of each request."""
        pairs = [pair.strip().partition(":") for pair in self.header.split(",") if pair.strip()]
        return tuple((name.lower(), value) for name, _, value in pairs)
