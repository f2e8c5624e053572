"""Starts the HTTP listener of a server, if what it needs is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from orbitmq.errors import StartError
from orbitmq.runtime.seam import Network
from orbitmq.wire.addresses import joined

if TYPE_CHECKING:
    from orbitmq.monitoring.http import HttpListener, Page


async def listen(
    network: Network, host: str, port: int, pages: Callable[[], Mapping[str, Page]]
) -> tuple[HttpListener, int]:
    """The listener and its port.

    Args:
        pages: makes the page of each path; called when h11 is known to be there.

    Raises:
        StartError: the port is in use, or h11 is not installed.
    """
    try:
        from orbitmq.monitoring.http import HttpListener
    except ImportError as error:
        raise StartError(
            "metricsExporterType=PROM needs h11: pip install 'orbitmq[server]', or set it to DISABLE"
        ) from error
    listener = HttpListener(network, pages())
    try:
        return listener, await listener.start(host, port)
    except OSError as error:
        raise StartError(
            f"cannot listen on {joined(host, port)} (metricsPromExporterHost, metricsPromExporterPort): "
            f"{error.strerror or error}"
        ) from error
