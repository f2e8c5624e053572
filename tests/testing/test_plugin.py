"""The pytest plugin as users meet it: a pytest of its own runs test files of theirs."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCKS = re.findall(
    r"^```python\n(.*?)^```$", (ROOT / "docs" / "testing.md").read_text(), re.MULTILINE | re.DOTALL
)


def run_file(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    """Run one test file in a new process, where pytest finds the plugin by itself."""
    pytester.makepyfile(source)
    return pytester.runpytest_subprocess(*options, timeout=180)


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    found = {entry.value for entry in entry_points(group="pytest11") if entry.name == "orbitmq"}
    assert found == {"orbitmq.testing.plugin"}, "install the checkout again: make setup"


def test_a_pytest_that_uses_no_fixture_loads_nothing_of_orbitmq() -> None:
    program = (
        "import sys, pytest, orbitmq.testing.plugin\n"
        "print(sorted(name for name in sys.modules if name.startswith('orbitmq')))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = ["orbitmq", "orbitmq._lazy", "orbitmq._speed", "orbitmq.testing", "orbitmq.testing.plugin"]
    assert done.stdout.strip() == str(loaded)


def test_the_examples_of_the_documentation_run(pytester: pytest.Pytester) -> None:
    assert len(BLOCKS) == 4
    for number, block in enumerate(BLOCKS):
        pytester.makepyfile(**{f"test_block_{number}": block})
    done = pytester.runpytest_subprocess(
        "-p", "no:asyncio", "-p", "no:anyio", "--strict-markers", timeout=180
    )
    done.assert_outcomes(passed=6)


ASYNC_TESTS = """
    import asyncio
    import pytest
    from orbitmq.testing.machine.virtual_loop import VirtualLoop

    def loop_name():
        return type(asyncio.get_running_loop()).__name__

    async def test_ours(orbitmq_runtime):
        await orbitmq_runtime.clock.sleep(3600)
        assert loop_name() == "VirtualLoop"

    class TestOurs:
        async def test_method(self, orbitmq_loop, tmp_path):
            assert loop_name() == "VirtualLoop"
            assert tmp_path.exists()

    {mark}
    async def test_theirs():
        assert loop_name() != "VirtualLoop"

    def test_plain(orbitmq_loop):
        async def name():
            return loop_name()
        assert orbitmq_loop.run(name()) == "VirtualLoop"
"""


@pytest.mark.parametrize(
    ("package", "mark", "options"),
    [
        ("pytest_asyncio", "@pytest.mark.asyncio", ("-p", "no:anyio")),
        ("pytest_asyncio", "", ("-p", "no:anyio", "-o", "asyncio_mode=auto")),
        ("anyio", "@pytest.mark.anyio\n    @pytest.mark.parametrize('anyio_backend', ['asyncio'])",
         ("-p", "no:asyncio")),
    ],
    ids=["asyncio-strict", "asyncio-auto", "anyio"],
)  # fmt: skip
def test_plugins_that_run_coroutines_keep_theirs_and_we_keep_ours(
    pytester: pytest.Pytester, package: str, mark: str, options: tuple[str, ...]
) -> None:
    pytest.importorskip(package)
    done = run_file(pytester, ASYNC_TESTS.format(mark=mark), *options)
    done.assert_outcomes(passed=4)


def test_a_coroutine_without_our_fixtures_is_left_to_pytest(pytester: pytest.Pytester) -> None:
    done = run_file(pytester, "async def test_x(): ...", "-p", "no:asyncio", "-p", "no:anyio")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*async def functions are not natively supported*"])


def test_failures_timeouts_and_wrong_options_are_told(pytester: pytest.Pytester) -> None:
    done = run_file(
        pytester,
        """
        import asyncio
        import pytest

        async def test_fails(orbitmq_loop):
            assert 1 + 1 == 3

        @pytest.mark.orbitmq(limit_s=5)
        async def test_hangs(orbitmq_loop):
            await asyncio.Event().wait()

        @pytest.mark.orbitmq(broker=2)
        async def test_misspelt(orbitmq_world): ...

        @pytest.mark.orbitmq(2)
        async def test_unnamed(orbitmq_world): ...

        @pytest.mark.orbitmq(settings={"noSuchKey": "1"})
        async def test_setting(orbitmq_world): ...
        """,
        "-p", "no:asyncio", "-p", "no:anyio",
    )  # fmt: skip
    done.assert_outcomes(failed=2, errors=3)
    done.stdout.fnmatch_lines_random(
        [
            "*assert (1 + 1) == 3*",
            "*TimeoutError*",
            "*pytest.mark.orbitmq has no option 'broker'; expected brokers, limit_s, replicas, settings*",
            "*pytest.mark.orbitmq takes named options only, got (2,)*",
            "*ClusterError*noSuchKey*",
        ]
    )


def test_the_nearest_mark_wins_and_the_seed_can_be_given(pytester: pytest.Pytester) -> None:
    done = run_file(
        pytester,
        """
        import pytest

        pytestmark = pytest.mark.orbitmq(brokers=2, settings={"fileReservedTime": "9"})
        drawn = []

        async def test_of_the_module(orbitmq_world):
            assert len(orbitmq_world.brokers) == 2

        @pytest.mark.orbitmq(brokers=3)
        async def test_of_its_own(orbitmq_world):
            assert len(orbitmq_world.brokers) == 3
            async with orbitmq_world.admin() as admin:
                address = (await admin.brokers.list())[0].address
                assert (await admin.brokers.settings(address))["fileReservedTime"] == "9"

        @pytest.mark.parametrize("orbitmq_seed", [1, 2, 1])
        async def test_draws(orbitmq_runtime):
            drawn.append(orbitmq_runtime.random.random())

        def test_drawn():
            assert drawn[0] == drawn[2] != drawn[1]
        """,
        "-p", "no:asyncio", "-p", "no:anyio",
    )  # fmt: skip
    done.assert_outcomes(passed=6)


def test_a_broker_on_real_sockets_stops_and_starts(pytester: pytest.Pytester) -> None:
    done = run_file(
        pytester,
        """
        import pytest
        from orbitmq import Message, SendError
        from orbitmq.errors import OrbitError
        from orbitmq.sync import Producer

        def test_it(orbitmq_cluster):
            cluster = orbitmq_cluster
            before = cluster.brokers
            assert cluster.grpc == before["broker-a"]
            with Producer("p", name_servers=cluster.name_server, retries=0) as producer:
                producer.send(Message("t", b"x"))
                cluster.stop_broker("broker-a")
                assert cluster.brokers == {}
                with pytest.raises(OrbitError, match="no broker runs"):
                    cluster.grpc
                with pytest.raises(SendError):
                    producer.send(Message("t", b"x"))
                cluster.start_broker("broker-a")
                assert cluster.brokers == before
                producer.send(Message("t", b"x"))
        """,
        "-p", "no:asyncio", "-p", "no:anyio",
    )  # fmt: skip
    done.assert_outcomes(passed=1)
