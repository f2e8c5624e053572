"""The pages that show whether a server is alive and ready, for load balancers and container platforms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from orbitmq.monitoring.http import ALIVE, HttpAnswer, Page, as_json, text


def pages(reasons: Callable[[], Sequence[str]]) -> Mapping[str, Page]:
    """The two health pages.

    Args:
        reasons: returns short texts of why the server is not ready; none if it is ready.
    """

    def alive() -> HttpAnswer:
        # This page is made on the event loop, so a server whose event loop hangs does not answer.
        return text(200, "ok")

    def ready() -> HttpAnswer:
        found = list(reasons())
        if found:
            return as_json(503, {"ready": False, "reasons": found})
        return as_json(200, {"ready": True})

    return {ALIVE: alive, "/readyz": ready}
