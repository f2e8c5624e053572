"""All tests, in two processes side by side: one shows what it does, the other when it has ended.

Those in memory keep a processor busy; those with sockets, processes and Spark mostly wait. The tests of
the compiled modules run once more, uncompiled.

    python scripts/run_tests.py MARKS TEST_FILES_OF_COMPILED_MODULES...
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import IO

IN_MEMORY = ("tests/unit", "tests/conversation", "tests/simulation")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")


class Suite:
    """Runs of pytest, one after the other.

    Args:
        runs: options, and what is added to the environment.
        output: where their output goes; ``None``: straight to the terminal.
    """

    def __init__(
        self, name: str, runs: Sequence[tuple[Sequence[str], dict[str, str]]], output: IO[str] | None
    ) -> None:
        self._name = name
        self._waiting = list(runs)
        self._output = output
        self._begin = time.monotonic()
        self._process: subprocess.Popen[bytes] | None = None
        self.failed = False

    def goes_on(self) -> bool:
        """Begin the next run when the one before has ended; whether there is anything left to do."""
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return True
            self.failed |= code != 0
            self._process = None
        if not self._waiting:
            return False
        arguments, environment = self._waiting.pop(0)
        self._process = subprocess.Popen(  # noqa: S603 - pytest and our own arguments
            [*PYTEST, *arguments],
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
        )
        return True

    def show(self) -> None:
        """Print how long it took, and what it said in its file."""
        print(f"test: {self._name}: {time.monotonic() - self._begin:.0f} s", flush=True)
        if self._output is not None:
            self._output.seek(0)
            print(self._output.read(), flush=True)

    def end(self) -> None:
        """Stop the run at work, if there is one."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


def main(arguments: Sequence[str]) -> int:
    marks, *compiled = arguments
    others = [f"--ignore={folder}" for folder in IN_MEMORY]
    at_both_speeds = [
        (["-m", marks, *IN_MEMORY], {}),
        (["-m", "not interop and not spark and not slow", *compiled], {"ORBITMQ_PURE": "1"}),
    ]
    on_sockets = [(["-m", marks, *others, "tests"], {})]
    print("test: those in memory meanwhile, shown when they have ended", flush=True)
    with tempfile.TemporaryFile("w+") as output:
        return run(
            [
                Suite("in memory, and the compiled modules once more uncompiled", at_both_speeds, output),
                Suite("sockets, processes, pages and Spark", on_sockets, None),
            ]
        )


def run(suites: Sequence[Suite]) -> int:
    """Run them side by side and return the exit code."""
    running = list(suites)
    try:
        while running:
            for suite in [each for each in running if not each.goes_on()]:
                suite.show()
                running.remove(suite)
            time.sleep(0.2)
    except KeyboardInterrupt:
        return 130
    finally:
        for suite in suites:
            suite.end()
    return 1 if any(suite.failed for suite in suites) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
