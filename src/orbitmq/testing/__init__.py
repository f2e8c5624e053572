"""Whole clusters for tests, of users and of OrbitMQ itself: on real sockets, or in memory on a virtual clock.

:mod:`orbitmq.testing.plugin` provides them as fixtures of pytest; this package itself does not need pytest.

>>> from orbitmq.testing import World, run, running_cluster, simulated_runtime
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orbitmq.testing.cluster import RunningCluster as RunningCluster
    from orbitmq.testing.cluster import running_cluster as running_cluster
    from orbitmq.testing.loop import SimulatedLoop as SimulatedLoop
    from orbitmq.testing.machine.memory_files import Keep as Keep
    from orbitmq.testing.machine.simulated import SimulatedRuntime as SimulatedRuntime
    from orbitmq.testing.machine.simulated import run as run
    from orbitmq.testing.machine.simulated import simulated_runtime as simulated_runtime
    from orbitmq.testing.world import World as World

_HOMES = {
    "Keep": "orbitmq.testing.machine.memory_files",
    "RunningCluster": "orbitmq.testing.cluster",
    "SimulatedLoop": "orbitmq.testing.loop",
    "SimulatedRuntime": "orbitmq.testing.machine.simulated",
    "World": "orbitmq.testing.world",
    "run": "orbitmq.testing.machine.simulated",
    "running_cluster": "orbitmq.testing.cluster",
    "simulated_runtime": "orbitmq.testing.machine.simulated",
}

__all__ = [
    "Keep",
    "RunningCluster",
    "SimulatedLoop",
    "SimulatedRuntime",
    "World",
    "run",
    "running_cluster",
    "simulated_runtime",
]


def __getattr__(name: str) -> Any:
    # Names are imported on first use: pytest imports this package at every start, even if no test needs a
    # fixture.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'orbitmq.testing' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
