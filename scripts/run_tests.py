"""All tests, in runs of pytest side by side: one lane shows what it does, the others when all have ended.

Tests with sockets wait four fifths of their time, the others keep a processor busy. So two lanes compute, and
a third one begins with the tests that wait; the lane that is through first goes on with what is left.
The tests of the compiled modules run once more, uncompiled.

    python scripts/run_tests.py MARKS TEST_FILES_OF_COMPILED_MODULES...
    python scripts/run_tests.py --quick [ROOM]

With ORBITMQ_RECORD set the seconds of each part are kept in benchmarks/results/tests.json. ORBITMQ_LEFT_OUT
names files of tests/sockets that are left out.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
# Folders with a run of their own. Those that compute: the longest first, so that the lanes end together.
COMPUTING = ("simulation", "spark", "docs", "conversation")
WAITING = "sockets"
RECORD = Path("benchmarks/results/tests.json")
EXAMPLES = "tests/docs/test_readme.py::test_an_example_prints_what_its_page_says"


@dataclass(frozen=True)
class Run:
    """One command: its words, and what is added to the environment."""

    name: str
    command: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)


class Lane:
    """Runs of pytest, one after the other.

    Args:
        take: gives the next run, as long as there is one.
        output: where their output goes; ``None``: straight to the terminal.
    """

    def __init__(self, take: Callable[[], Run], output: IO[str] | None) -> None:
        self._take = take
        self._output = output
        self._process: subprocess.Popen[bytes] | None = None
        self._name, self._begin = "", 0.0
        self.seconds: dict[str, int] = {}
        self.failed: list[str] = []

    def goes_on(self, runs: deque[Run]) -> bool:
        """Begin the next run when the one before has ended; whether there is anything left to do."""
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return True
            self.failed += [self._name] * (code != 0)
            self.seconds[self._name] = round(time.monotonic() - self._begin)
            self._process = None
        if not runs:
            return False
        run = self._take()
        self._name, self._begin = run.name, time.monotonic()
        self._process = subprocess.Popen(  # noqa: S603 - our own commands
            run.command,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **run.environment},
        )
        return True

    def show(self) -> None:
        """Print what its runs said in its file."""
        if self._output is not None:
            self._output.seek(0)
            print(self._output.read(), flush=True)

    def end(self) -> None:
        """Stop the run at work, if there is one."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()


def all_runs(marks: str, compiled: Sequence[str]) -> deque[Run]:
    """The runs in the order in which computing lanes take them; the waiting lane takes the last one first."""

    def of(name: str) -> Run:
        return Run(f"tests/{name}", [*PYTEST, "-m", marks, f"tests/{name}"])

    uncompiled = [*PYTEST, "-m", "not interop and not spark and not slow", *compiled]
    others = [f"--ignore=tests/{name}" for name in (*COMPUTING, "unit", WAITING)]
    first, second = halves(WAITING)
    return deque(
        [
            *map(of, COMPUTING),
            # It is about what the source means, which other seeds do not change; those run compiled.
            Run(
                "the compiled modules once more, uncompiled",
                uncompiled,
                {"ORBITMQ_PURE": "1", "ORBITMQ_SEEDS": os.environ.get("ORBITMQ_SEEDS", "0.25")},
            ),
            of("unit"),
            Run("the other folders", [*PYTEST, "-m", marks, *others, "tests"]),
            Run(f"the rest of tests/{WAITING}", [*PYTEST, "-m", marks, *second]),
            Run(f"every other file of tests/{WAITING}", [*PYTEST, "-m", marks, *first]),
        ]
    )


def halves(folder: str) -> tuple[list[str], list[str]]:
    """Every other file of a folder, and the rest; without those that ORBITMQ_LEFT_OUT names."""
    left_out = os.environ.get("ORBITMQ_LEFT_OUT", "").split()
    files = sorted(set(map(str, Path("tests", folder).glob("test_*.py"))).difference(left_out))
    return files[::2], files[1::2]


def quick_runs(room: str) -> deque[Run]:
    """What a minute shows: the unit tests, five seeds, the README's first example, a room's conversations."""
    first, second = halves("unit")
    runs = [
        Run("every other file of tests/unit", [*PYTEST, *first]),
        Run("five seeds", [sys.executable, "-m", "tools.simulation", "--seeds", "0-4"]),
        Run("the README's first example", [*PYTEST, f"{EXAMPLES}[README.md 1]"]),
    ]
    if room:
        files = sorted(str(path) for path in Path("tests/conversation").glob(f"test_*{room}*.py"))
        if not files:
            raise SystemExit(f"quick: no test of tests/conversation has {room!r} in its name")
        runs.append(Run(f"conversations of {room}", [*PYTEST, *files]))
    runs.append(Run("the rest of tests/unit", [*PYTEST, *second]))
    return deque(runs)


def main(arguments: Sequence[str]) -> int:
    if arguments[0] == "--quick":
        return run_all(quick_runs("".join(arguments[1:])), lanes=2)
    return run_all(all_runs(arguments[0], arguments[1:]), lanes=3)


def run_all(runs: deque[Run], lanes: int) -> int:
    """Run them in lanes, of which the first takes the last run first; the exit code."""
    print(f"test: {lanes} runs side by side; all but one are shown when all have ended", flush=True)
    begin = time.monotonic()
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(1, lanes)]
        all_lanes = [Lane(runs.pop, None), *(Lane(runs.popleft, file) for file in files)]
        try:
            while [lane for lane in all_lanes if lane.goes_on(runs)]:
                time.sleep(0.2)
        except KeyboardInterrupt:
            return 130
        finally:
            for lane in all_lanes:
                lane.end()
        for lane in all_lanes:
            lane.show()
    failed = [name for lane in all_lanes for name in lane.failed]
    seconds = {name: taken for lane in all_lanes for name, taken in lane.seconds.items()}
    seconds["all of it"] = round(time.monotonic() - begin)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor_s = round(used.ru_utime + used.ru_stime)
    for name, taken in seconds.items():
        print(f"test: {name}: {taken} s{', FAILED' if name in failed else ''}", flush=True)
    print(f"test: processors worked for {processor_s} s", flush=True)
    if os.environ.get("ORBITMQ_RECORD") and not failed:
        about = {"cpus": os.cpu_count(), "load": os.getloadavg()[2], "taken": time.strftime("%Y-%m-%d %H:%M")}
        record = {**about, "processor_seconds": processor_s, "seconds": seconds}
        RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
