"""For all tests: how hypothesis works here, and pytester for the tests of our own pytest plugin."""

from __future__ import annotations

import importlib

import pytest
from hypothesis import settings

from orbitmq.testing import SimulatedRuntime

pytest_plugins = ["pytester"]

# No test judges speed; a busy machine must not fail one.
settings.register_profile("orbitmq", deadline=None)
settings.load_profile("orbitmq")


def pytest_configure(config: pytest.Config) -> None:
    # pytest finds our plugin by its entry point, unless the checkout was installed before there was one.
    if not config.pluginmanager.has_plugin("orbitmq"):
        config.pluginmanager.register(importlib.import_module("orbitmq.testing.plugin"), "orbitmq")


@pytest.fixture
def runtime(orbitmq_runtime: SimulatedRuntime) -> SimulatedRuntime:
    """A machine in memory; an ``async def`` test that asks for it runs on the virtual loop."""
    return orbitmq_runtime
