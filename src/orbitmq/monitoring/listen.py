"""Starts the HTTP listener of a server, if h11 is installed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from orbitmq.errors import StartError
from orbitmq.runtime.imports import is_missing
from orbitmq.runtime.listening import cannot_listen
from orbitmq.runtime.seam import Files, Runtime
from orbitmq.settings.exports import PROM
from orbitmq.wire.addresses import is_loopback

if TYPE_CHECKING:
    from orbitmq.monitoring.http import HttpListener, Page


async def listen(
    runtime: Runtime, host: str, port: int, token_file: str, pages: Callable[[], Mapping[str, Page]]
) -> tuple[HttpListener, int]:
    """Start a listener; returns it and its port.

    Args:
        token_file: the file with the bearer token that requests need; empty if they need none.
        pages: makes the page of each path; called only if h11 is installed.

    Raises:
        StartError: the port is in use, h11 is not installed, or the file has no token.
    """
    try:
        from orbitmq.monitoring.http import HttpListener
    except ImportError as error:
        if not is_missing(error):
            raise
        raise StartError(
            "metricsExporterType=PROM needs h11: pip install 'orbitmq[server]', or set it to DISABLE"
        ) from error
    token = _token(runtime.files, token_file) if token_file else b""
    listener = HttpListener(runtime.network, pages(), token)
    try:
        return listener, await listener.start(host, port)
    except OSError as error:
        settings = "metricsPromExporterHost, metricsPromExporterPort"
        raise cannot_listen(host, port, settings, error) from error


def _token(files: Files, path: str) -> bytes:
    try:
        token = files.read_bytes(path).strip()
    except OSError as error:
        raise StartError(f"cannot read metricsTokenFile={path}: {error.strerror or error}") from error
    if not re.fullmatch(rb"[!-~]{16,1024}", token):
        raise StartError(
            f"metricsTokenFile={path} holds no token: expected one line of 16 to 1024 printable ASCII "
            "characters without spaces, as `openssl rand -hex 32` prints it"
        )
    return token


def advice(exporter: str, host: str, token_file: str) -> list[str]:
    """A warning if programs on other machines can read the metrics without a token."""
    if exporter != PROM or token_file or is_loopback(host):
        return []
    return [
        f"metricsPromExporterHost={host} without metricsTokenFile: everybody who reaches that port reads the "
        "names of topics and groups"
    ]
