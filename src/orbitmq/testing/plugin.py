"""The pytest plugin. pytest loads it by its entry point; the package ``orbitmq`` itself does not need pytest.

Other modules of OrbitMQ are imported only when a test uses a fixture.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Generator, Iterator
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.testing import RunningCluster, SimulatedLoop, SimulatedRuntime, World

LOOP_FIXTURE = "orbitmq_loop"
CLUSTER_OPTIONS = frozenset({"brokers", "replicas", "settings"})
LOOP_OPTIONS = frozenset({"limit_s"})


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "orbitmq(brokers=1, replicas=1, settings={}, limit_s=86400): the cluster of orbitmq_cluster or "
        "orbitmq_world, and the virtual seconds a test may take",
    )


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run an ``async def`` test on the virtual loop if it uses a fixture of that loop, and only then."""
    before = pyfuncitem.obj
    function = _coroutine_function(pyfuncitem) if LOOP_FIXTURE in pyfuncitem.fixturenames else None
    if function is None:
        return (yield)
    loop = cast("SimulatedLoop", pyfuncitem.funcargs[LOOP_FIXTURE])
    # A plain function takes the item's place, so that other plugins do not run the coroutine.
    pyfuncitem.obj = lambda **arguments: loop.run(function(**arguments))
    try:
        return (yield)
    finally:
        pyfuncitem.obj = before


def _coroutine_function(item: pytest.Function) -> Callable[..., Coroutine[Any, Any, object]] | None:
    """The test's own function if it is ``async def``, even if pytest-asyncio's automatic mode has
    wrapped it.
    """
    function = item.obj
    if not inspect.iscoroutinefunction(function) and item.get_closest_marker("asyncio") is not None:
        function = getattr(function, "__wrapped__", function)
    return function if inspect.iscoroutinefunction(function) else None


def _options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The options: those of the fixture's own parameter, else of the nearest mark that has some."""
    found: dict[str, Any] = {}
    for mark in reversed(list(request.node.iter_markers("orbitmq"))):
        if mark.args:
            raise pytest.UsageError(f"pytest.mark.orbitmq takes named options only, got {mark.args!r}")
        found.update(mark.kwargs)
    found.update(getattr(request, "param", None) or {})
    unknown = found.keys() - CLUSTER_OPTIONS - LOOP_OPTIONS
    if unknown:
        raise pytest.UsageError(
            f"pytest.mark.orbitmq has no option {min(unknown)!r}; "
            f"expected {', '.join(sorted(CLUSTER_OPTIONS | LOOP_OPTIONS))}"
        )
    return found


def _some(options: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in names}


@pytest.fixture
def orbitmq_seed() -> int:
    """The seed of the simulated machines; parametrize this name to run a test with several seeds."""
    return 0


@pytest.fixture
def orbitmq_loop(request: pytest.FixtureRequest, orbitmq_seed: int) -> Iterator[SimulatedLoop]:
    """The virtual loop. An ``async def`` test that uses it, or a fixture that depends on it, runs on it."""
    from orbitmq.testing import SimulatedLoop

    loop = SimulatedLoop(seed=orbitmq_seed, **_some(_options(request), LOOP_OPTIONS))
    yield loop
    loop.close()


@pytest.fixture
def orbitmq_runtime(orbitmq_loop: SimulatedLoop) -> SimulatedRuntime:
    """A machine in memory on the virtual loop: clock, disk, network, randomness."""
    from orbitmq.testing import simulated_runtime

    async def make() -> SimulatedRuntime:
        return simulated_runtime()

    return orbitmq_loop.run(make())


@pytest.fixture
def orbitmq_world(
    request: pytest.FixtureRequest, orbitmq_loop: SimulatedLoop, orbitmq_runtime: SimulatedRuntime
) -> World:
    """A cluster in memory on virtual time. Options: ``pytest.mark.orbitmq(brokers=2, settings={...})``."""
    from orbitmq.testing import World

    return orbitmq_loop.enter(World(orbitmq_runtime, **_some(_options(request), CLUSTER_OPTIONS)))


@pytest.fixture
def orbitmq_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunningCluster]:
    """A cluster on real sockets, with its own ports and folder. Options as for ``orbitmq_world``."""
    from orbitmq.testing import running_cluster

    options = _some(_options(request), CLUSTER_OPTIONS)
    with running_cluster(str(tmp_path / "orbitmq"), **options) as cluster:
        yield cluster
