"""The pages that say whether a server is well, for load balancers and container platforms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from orbitmq.monitoring.http import ALIVE, HttpAnswer, Page, as_json, text


def pages(reasons: Callable[[], Sequence[str]]) -> Mapping[str, Page]:
    """The two pages of health.

    Args:
        reasons: why the server is not ready, each a short text; none when it is.
    """

    def alive() -> HttpAnswer:
        # This page is made on the event loop: a server whose loop stands still gives none.
        return text(200, "ok")

    def ready() -> HttpAnswer:
        found = list(reasons())
        if found:
            return as_json(503, {"ready": False, "reasons": found})
        return as_json(200, {"ready": True})

    return {ALIVE: alive, "/readyz": ready}
