"""Spark's cost of finding the format and its schema, before any message is read."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

SCRIPT = """
import sys
from pyspark_rocketmq import DefaultSource
assert DefaultSource.name() == "rocketmq"
assert DefaultSource({"topic": "t"}).schema().fieldNames()
# An option's addresses are checked at once, by a module that knows nothing of the protocol.
small = {"orbitmq.wire", "orbitmq.wire.addresses", "orbitmq.wire.errors"}
heavy = {name for name in sys.modules if name == "pyarrow" or name.startswith("orbitmq.wire")}
print(",".join(sorted(heavy - small)))
"""


def test_neither_pyarrow_nor_the_protocol_is_imported_for_a_schema() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
