"""The rows of the record ``operate``, in the order of its page."""

from __future__ import annotations

from benchmarks.operate import client, console, everything, metrics, rules, signatures, strangers, tls

ROWS = {
    module.ROW.key: module.ROW
    for module in (metrics, signatures, rules, tls, strangers, everything, console, client)
}
