"""For all tests: how hypothesis works here, and pytester for the tests of our own pytest plugin."""

from __future__ import annotations

import importlib
import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import settings

from orbitmq.testing import SimulatedRuntime

pytest_plugins = ["pytester"]

# A shell that starts the tests in the background lets them, and all their children, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No test judges speed; a busy machine must not fail one.
settings.register_profile("orbitmq", deadline=None)
settings.load_profile("orbitmq")


def pytest_configure(config: pytest.Config) -> None:
    # pytest finds our plugin by its entry point, unless the checkout was installed before there was one.
    if not config.pluginmanager.has_plugin("orbitmq"):
        config.pluginmanager.register(importlib.import_module("orbitmq.testing.plugin"), "orbitmq")


# What a version of PySpark lacks, or does no longer, may be skipped: `make test-spark` runs it with another.
OF_OTHER_VERSIONS = ("another version of PySpark",)
# `make test-spark` installs these for the newest PySpark, and sets ORBITMQ_TEST_SPARK.
OF_TEST_SPARK = (
    "moto",
    "grpc_status",
    "pyspark[pipelines]",
    "pyspark[connect]",
    "deltalake",
    "pyiceberg",
    "sqlalchemy",
)


def must_not_be_skipped(reason: str) -> bool:
    """Whether a test skipped for this reason fails: where ORBITMQ_CI is set, nothing may be missing."""
    allowed = OF_OTHER_VERSIONS if os.environ.get("ORBITMQ_TEST_SPARK") else OF_OTHER_VERSIONS + OF_TEST_SPARK
    return bool(os.environ.get("ORBITMQ_CI")) and not any(words in reason for words in allowed)


def _fail_when_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if must_not_be_skipped(reason):
            report.outcome = "failed"
            report.longrepr = f"skipped where ORBITMQ_CI says that nothing may be missing: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _fail_when_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _fail_when_skipped(report)
    return report


@pytest.fixture
def runtime(orbitmq_runtime: SimulatedRuntime) -> SimulatedRuntime:
    """A machine in memory; an ``async def`` test that asks for it runs on the virtual loop."""
    return orbitmq_runtime
