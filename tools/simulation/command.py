"""``python -m tools.simulation``: runs brokers and clients in memory through faults; a seed repeats
each run.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter

from orbitmq.cli.failures import EXIT_FAILED, EXIT_OK, EXIT_USAGE, UsageError, explain
from orbitmq.cli.formats import date
from orbitmq.cli.output import print_json
from orbitmq.message.numbers import is_digits
from orbitmq.runtime import system_runtime
from orbitmq.wording import counted
from tools.simulation.excuses import ENOUGH_SEEDS, Count, added, too_wide
from tools.simulation.many import Verdict, plan_of, run_plan, run_seeds
from tools.simulation.plan import Kind, Plan
from tools.simulation.run import Outcome
from tools.simulation.shadow import Difference, all_of, lines_of
from tools.simulation.shrink import smallest

# Number of failing seeds that are shown individually.
MOST_SHOWN = 20
TODAY, MOST_TODAY = "today:", 100
# Most digits of a seed.
MOST_DIGITS = 18

_KINDS = ", ".join(kind.value for kind in Kind)
_FAULTS = f"Only these kinds of faults, separated by commas: {_KINDS}. Or: all, none."

NAME = "python -m tools.simulation"
EXAMPLES = f"""\
Examples:
  {NAME}                          a run of a seed by chance
  {NAME} --seed 42 --trace        the same run each time, with all that happened
  {NAME} --seeds 0-299            many, in parallel; exit code 1 when a promise is broken
  {NAME} --seeds 0-299,today:10   and ten that are others each day
  {NAME} --seeds 0-99 --faults power,cut
  {NAME} --seeds 0-19 --grpc      the same with gRPC clients
"""

app = App(
    name=NAME,
    help="Run brokers, name servers and clients in memory through faults, and check every promise.\n\n"
    "Two groups of two or three brokers with acting masters, one or two name servers, producers (plain, "
    "ordered, transactional), consumers (push, ordered, pop), delays and timers: the code that serves you, "
    "on a simulated network, disk and clock. The seed decides on everything, so a run repeats exactly.",
    help_format="plaintext",
    help_epilogue=EXAMPLES,
    version_flags=[],
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line ``arguments``, by default that of the process; returns the exit code."""
    try:
        result = app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
    except CycloptsError as error:
        print(f"{NAME}: {' '.join(str(error).split())} (see '{NAME} --help')", file=sys.stderr)
        return EXIT_USAGE
    except BrokenPipeError:
        # The reader of the output is gone, such as `head`; Python would try to write the rest at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except (UsageError, KeyboardInterrupt) as error:
        line, code = explain(error)
        print(f"{NAME}: {line}", file=sys.stderr)
        return code
    return result if isinstance(result, int) else EXIT_OK


@app.default
def simulated(
    *,
    seed: int | None = None,
    seeds: str | None = None,
    faults: Annotated[str, Parameter(help=_FAULTS)] = "all",
    trace: Annotated[bool, Parameter(negative=())] = False,
    shrink: bool = True,
    processes: int | None = None,
    shadow: Annotated[bool, Parameter(negative=())] = False,
    grpc: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Run brokers and clients in memory through faults.

    Parameters
    ----------
    seed
        Run this one and show what happened. Default: one by chance.
    seeds
        Run all of these and print one line for each that breaks a promise, then what the checkers excused:
        A-B with both ends, today:N for N seeds of the day's own (UTC), or both, separated by a comma.
    trace
        Of one seed, print the trace also when every promise was kept.
    shrink
        Of one seed that fails, leave out the faults that do not matter, and show that run.
    processes
        Of many seeds: how many processes run them. Default: one for each processor.
    shadow
        Compare what brokers accept of each other's tables with what stamps say, and print the differences.
        For maintainers (docs/decisions/0031).
    grpc
        Two brokers without slaves, and gRPC clients instead of all others.
    json
        Print JSON: one document, or one line for each of many seeds.
    """
    kinds = _kinds(faults)
    if seeds is not None and seed is not None:
        raise UsageError("expected --seed or --seeds, not both")
    if seeds is not None:
        return _many(_seeds(seeds), kinds, processes, shadow=shadow, grpc=grpc, as_json=json)
    if seed is None:
        seed = system_runtime().random.randrange(1_000_000)
    return _one(plan_of(seed, kinds, grpc=grpc), shrink=shrink, trace=trace, shadow=shadow, as_json=json)


def _kinds(text: str) -> list[Kind]:
    if text in ("all", "none"):
        return list(Kind) if text == "all" else []
    known = {kind.value: kind for kind in Kind}
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in known:
            raise UsageError(f"--faults {word}: expected some of {', '.join(known)}, or all, or none")
    return [known[word] for word in words]


def _seeds(text: str) -> list[int]:
    found: dict[int, None] = {}
    for part in text.split(","):
        first, _, last = part.partition("-")
        count = part.removeprefix(TODAY)
        if count != part and _is_number(count) and 1 <= int(count) <= MOST_TODAY:
            found |= dict.fromkeys(seeds_of_day(system_runtime().clock.now_ms(), int(count)))
        elif _is_number(first) and _is_number(last) and int(first) <= int(last):
            found |= dict.fromkeys(range(int(first), int(last) + 1))
        else:
            raise UsageError(
                f"--seeds {text}: expected A-B, for example 0-299, or today:N, N from 1 to {MOST_TODAY}"
            )
    return list(found)


def _is_number(text: str) -> bool:
    return is_digits(text) and len(text) <= MOST_DIGITS


def seeds_of_day(now_ms: int, count: int) -> range:
    """Seeds that differ each day and contain the date: 2026112800 and so on."""
    first = int(date(now_ms).partition("T")[0].replace("-", "")) * MOST_TODAY
    return range(first, first + count)


# ---- one seed


def _one(plan: Plan, *, shrink: bool, trace: bool, shadow: bool, as_json: bool) -> int:
    outcome = run_plan(plan, shadow=shadow)
    if outcome.violations and shrink and len(plan.faults) > 1:
        checkers = {violation.checker for violation in outcome.violations}
        print(
            f"seed {plan.seed} breaks a promise; which of {counted(len(plan.faults), 'fault')} matter?",
            file=sys.stderr,
        )

        def fails(smaller: Plan) -> bool:
            return any(
                violation.checker in checkers for violation in run_plan(smaller, shadow=shadow).violations
            )

        outcome = run_plan(smallest(plan, fails), shadow=shadow)
    if as_json:
        print_json(_as_json(outcome))
    else:
        _show(plan, outcome, trace=trace or bool(outcome.violations))
        if shadow:
            for line in lines_of(all_of(outcome.differences)):
                print(line)
    return EXIT_FAILED if outcome.violations else EXIT_OK


def _show(plan: Plan, outcome: Outcome, *, trace: bool) -> None:
    print(f"seed {plan.seed}: {plan.mode}")
    kept = set(outcome.plan.faults)
    for fault in plan.faults:
        print(f"  {fault.at_s:7.3f} s  {fault}{'' if fault in kept else '  (does not matter)'}")
    if trace:
        print()
        for at_s, who, what in outcome.lines:
            print(f"{at_s:9.3f}  {who:<12} {what}")
    print()
    print(_summary(outcome))
    for rule, count in outcome.excuses.items():
        if count.hidden:
            print(f"excused {count.hidden} by the rule '{rule}' ({', '.join(count.causes)})")
    for violation in outcome.violations:
        print(f"BROKEN  {violation}")


def _summary(outcome: Outcome) -> str:
    return (
        f"{counted(outcome.sent, 'message')} sent, {outcome.acknowledged} acknowledged, "
        f"{counted(outcome.delivered, 'delivery')} in {outcome.virtual_s:.0f} s of simulated time: "
        + (counted(len(outcome.violations), "broken promise") if outcome.violations else "no broken promises")
    )


def _as_json(outcome: Outcome) -> dict[str, object]:
    return {
        "seed": outcome.plan.seed,
        "mode": str(outcome.plan.mode),
        "faults": [{"at_s": fault.at_s, "fault": str(fault)} for fault in outcome.plan.faults],
        "violations": [
            asdict(violation) | {"body": violation.body.decode()} for violation in outcome.violations
        ],
        "trace": [[at_s, who, what] for at_s, who, what in outcome.lines],
        "sent": outcome.sent,
        "acknowledged": outcome.acknowledged,
        "delivered": outcome.delivered,
        "virtual_s": outcome.virtual_s,
    }


# ---- many seeds


def _many(
    seeds: Sequence[int],
    kinds: Sequence[Kind],
    processes: int | None,
    *,
    shadow: bool,
    grpc: bool,
    as_json: bool,
) -> int:
    runtime = system_runtime()
    processes = runtime.host.cores if processes is None else processes
    if processes < 1:
        raise UsageError(f"--processes {processes}: expected 1 or more")
    begin = runtime.clock.monotonic()
    progress = _Progress(len(seeds))
    for verdict in run_seeds(seeds, kinds, processes, shadow=shadow, grpc=grpc):
        if as_json:
            print_json(asdict(verdict), one_line=True)
        elif not verdict.holds and len(progress.failed) < MOST_SHOWN:
            progress.clear()
            print(f"seed {verdict.seed}: {verdict.failure or verdict.violations[0]}")
        progress.add(verdict, runtime.clock.monotonic() - begin)
    progress.clear()
    excuses = added(progress.excuses)
    # The limits of rules apply to runs with all kinds of faults.
    judges = len(seeds) >= ENOUGH_SEEDS and len(kinds) == len(Kind) and not grpc
    wide = list(too_wide(excuses)) if judges else []
    if not as_json:
        progress.summary(seeds, runtime.clock.monotonic() - begin)
        for line in _excused(excuses):
            print(line)
        if shadow:
            for line in lines_of(all_of(progress.differences)):
                print(line)
    for text in wide:
        print(text, file=sys.stderr)
    return EXIT_FAILED if progress.failed or wide else EXIT_OK


def _excused(excuses: Mapping[str, Count]) -> Iterator[str]:
    """The judgements that the checkers excused, as a table."""
    if excuses:
        yield f"{'rule':<26}{'judgements':>11}{'covered':>9}{'share':>8}{'excused':>9}  because of"
    for rule, count in excuses.items():
        causes = ", ".join(f"{cause} {number}" for cause, number in Counter(count.causes).most_common())
        numbers = f"{count.judged:>11}{count.covered:>9}{count.share:>8.2%}{count.hidden:>9}"
        yield f"{rule:<26}{numbers}  {causes}".rstrip()


class _Progress:
    def __init__(self, total: int) -> None:
        self.failed: list[Verdict] = []
        self._total = total
        self._done = self._sent = self._delivered = 0
        self._virtual_s = 0.0
        self.excuses: list[Mapping[str, Count]] = []
        self.differences: list[Difference] = []
        self._shows = sys.stderr.isatty()

    def add(self, verdict: Verdict, seconds: float) -> None:
        self._done += 1
        self._sent += verdict.sent
        self._delivered += verdict.delivered
        self._virtual_s += verdict.virtual_s
        self.excuses.append(verdict.excuses)
        self.differences += verdict.differences
        if not verdict.holds:
            self.failed.append(verdict)
        if self._shows:
            left_s = seconds / self._done * (self._total - self._done)
            done = f"{self._done} of {counted(self._total, 'seed')}"
            text = f"{done}, {len(self.failed)} broken, {left_s:.0f} s left"
            print(f"\r{text:<70}", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._shows:
            print(f"\r{'':<70}\r", end="", file=sys.stderr, flush=True)

    def summary(self, seeds: Sequence[int], seconds: float) -> None:
        print(
            f"seeds {_ranges(seeds)}: {counted(self._done, 'run')} in {seconds:.0f} s, "
            f"{self._virtual_s / 3600:.1f} h of simulated time, {counted(self._sent, 'message')}, "
            f"{self._delivered} deliveries: {len(self.failed) or 'none'} broke a promise"
        )
        checkers = Counter(
            name
            for verdict in self.failed
            for name in {text.partition(":")[0] for text in verdict.violations}
        )
        for name, count in checkers.most_common():
            print(f"  {count:>5}  {name}")
        if self.failed:
            seed = min(verdict.seed for verdict in self.failed)
            print(f"'{NAME} --seed {seed}' shows the smallest run of one that fails")


def _ranges(seeds: Sequence[int]) -> str:
    """Seeds as ranges, such as 0-299."""
    ends = [at for at in range(1, len(seeds)) if seeds[at] != seeds[at - 1] + 1]
    parts = zip([0, *ends], [*ends, len(seeds)], strict=True)
    return ",".join(f"{seeds[begin]}-{seeds[end - 1]}" for begin, end in parts)
