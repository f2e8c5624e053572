"""What tasks tell the driver about their reading, beside Spark, whose Python sources cannot fill metrics.

A task sends one datagram at its end, with everything that its process has read for the query so far. So a
lost one costs nothing: the next one holds it too. Nothing is sent unless a listener of
:mod:`orbitmq.spark.progress` has set the property of the session that names its address.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from pyspark import TaskContext

from orbitmq.runtime.datagrams import send_datagram
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.read.tally import Tally

# Local property: "host port token". Spark hands it to queries that are started afterwards, and their tasks.
ADDRESS_PROPERTY = "orbitmq.progress"

# By query and process, since Spark forks: a child must not tell what its parent has read.
_totals: dict[tuple[str, int], Tally] = {}


class Report(NamedTuple):
    """What one process has read for one query."""

    query_id: str
    worker: str
    tally: Tally


def report(tally: Tally) -> None:
    """Add what the running task did, and tell it if somebody listens."""
    context = TaskContext.get()
    address = context.getLocalProperty(ADDRESS_PROPERTY) if context is not None else None
    query_id = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
    if not address or not query_id:
        return
    host = this_worker().host
    total = _totals.setdefault((query_id, host.pid), Tally())
    total.add(tally)
    where, port, token = address.split()
    send_datagram(where, int(port), encode(Report(query_id, f"{host.name}/{host.pid}", total), token))


def encode(made: Report, token: str) -> bytes:
    """A report as it travels."""
    counts = {name: getattr(made.tally, name) for name in Tally.__slots__}
    return json.dumps({"token": token, "query": made.query_id, "worker": made.worker, **counts}).encode()


def decode(data: bytes, token: str) -> Report | None:
    """What :func:`encode` made; ``None``: somebody else sent it."""
    try:
        value: Any = json.loads(data)
        if value["token"] != token:
            return None
        counts = {name: int(value[name]) for name in Tally.__slots__}
        return Report(str(value["query"]), str(value["worker"]), Tally(**counts))
    except (ValueError, KeyError, TypeError):
        return None
