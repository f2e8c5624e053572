"""A Spark session with the settings that suit messages."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

# This import refuses a PySpark that is too old, with a one-line error.
import orbitmq.spark.versions  # noqa: F401
from orbitmq.errors import ClientStateError
from orbitmq.runtime.worker import this_worker
from orbitmq.spark.read.partitions import CORES_VARIABLE, FILTERS_VARIABLE

FILTERS_SETTING = "spark.sql.python.filterPushdown.enabled"
DEFAULTS = {
    # Measured: 22 % more batch reads per second, and 45 ms less per micro-batch, than with loopback TCP.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # For Spark 4.1 and later; a reader that takes over filters fails without it.
    FILTERS_SETTING: "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}

# The program that starts the Python processes of a local session.
WRAPPER = str(files("orbitmq.spark") / "python.sh")
# The environment variables that the last session of this process set, with their values.
_set_by_a_session: dict[str, str] = {}


def session(app_name: str, *, master: str | None = None, **conf: Any) -> SparkSession:
    """A new session, or the running one.

    Start streaming writes on the thread that created the session: Spark finds Python formats through the
    thread's active session.

    Args:
        app_name: the name in Spark's lists.
        master: as in Spark, such as ``local[2]``; by default the master of ``spark-submit``, else
            ``local[*]``.
        conf: further settings, dots written as double underscores (``spark__sql__shuffle__partitions=2``);
            they override the defaults here.

    Raises:
        ClientStateError: the session is for a cluster, but this process had a local one before, whose JVM
            keeps running with the environment for Spark's Python processes.
    """
    given = {name.replace("__", "."): str(value) for name, value in conf.items()}
    _set_environment(master, given)
    builder = SparkSession.builder.appName(app_name)
    if master is not None:
        builder = builder.master(master)
    quiet = f"-Dlog4j2.configurationFile={files('orbitmq.spark') / 'log4j2.properties'}"
    for name, value in (DEFAULTS | {"spark.driver.extraJavaOptions": quiet} | given).items():
        builder = builder.config(name, value)
    made: SparkSession = builder.getOrCreate()
    return made


def _set_environment(master: str | None, conf: Mapping[str, str]) -> None:
    """Set the variables that Spark's JVM, and through it the Python processes, inherit.

    Variables of the user stay. Those of an earlier session are replaced, since it may have been a local one.
    """
    is_local = master is not None and master.startswith("local")
    if (
        not is_local
        and SparkContext._gateway is not None
        and _set_by_a_session.get("PYSPARK_PYTHON") == WRAPPER
    ):
        raise ClientStateError(
            "this process had a local Spark session: start the session of a cluster in a process of its own"
        )
    cores = cores_of(master or "", conf)
    wanted = {
        # Otherwise Spark would start its workers with the python3 on the PATH, which may not have this
        # package.
        "PYSPARK_PYTHON": _python(is_local=is_local),
        "SPARK_LOCAL_IP": "127.0.0.1" if is_local else "",
        CORES_VARIABLE: str(cores or ""),
        FILTERS_VARIABLE: str({**DEFAULTS, **conf}[FILTERS_SETTING]).lower(),
    }
    for name, value in wanted.items():
        found = os.environ.get(name)
        if found not in (_set_by_a_session.get(name), WRAPPER) and not name.startswith("ORBITMQ_"):
            continue
        _set_by_a_session.pop(name, None)
        os.environ.pop(name, None)
        if value:
            os.environ[name] = _set_by_a_session[name] = value


def _python(*, is_local: bool) -> str:
    """The command for Spark's Python processes, which on this machine need no archive of PySpark."""
    installed = os.path.dirname(pyspark.__file__)
    is_installed = os.path.isdir(installed) and os.environ.get("SPARK_HOME", installed) == installed
    if not (is_local and is_installed and os.access(WRAPPER, os.X_OK)):
        return sys.executable
    os.environ["ORBITMQ_SPARK_PYTHON"] = sys.executable
    return WRAPPER


def cores_of(master: str, conf: Mapping[str, str]) -> int:
    """The number of tasks that run at a time; 0 if neither master nor settings name it."""
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", master)
    if local is not None:
        return this_worker().host.cores if local[1] == "*" else int(local[1] or 1)
    if "spark.cores.max" in conf:
        return int(conf["spark.cores.max"])
    return int(conf.get("spark.executor.instances", 0)) * int(conf.get("spark.executor.cores", 0))
