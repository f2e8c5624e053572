"""Many seeds in parallel processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tools.simulation.excuses import Count
from tools.simulation.grpc_plan import MODE as GRPC
from tools.simulation.grpc_plan import make_grpc_plan
from tools.simulation.grpc_run import simulate_grpc
from tools.simulation.parallel import in_processes
from tools.simulation.plan import Kind, Plan, make_plan
from tools.simulation.run import Outcome, simulate
from tools.simulation.shadow import Difference


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one seed.

    Attributes:
        violations: a line for each broken promise.
        failure: the error, if the run itself failed.
        excuses: the checkers' excuses, by rule.
        differences: see ``Outcome``.
    """

    seed: int
    mode: str
    faults: int
    violations: tuple[str, ...]
    failure: str = ""
    virtual_s: float = 0.0
    sent: int = 0
    acknowledged: int = 0
    delivered: int = 0
    excuses: Mapping[str, Count] = field(default_factory=dict)
    differences: tuple[Difference, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether every promise was kept."""
        return not self.violations and not self.failure


def plan_of(seed: int, kinds: Sequence[Kind], *, grpc: bool = False) -> Plan:
    """The plan of a seed; with ``grpc`` for a run in which all clients speak gRPC."""
    return make_grpc_plan(seed, kinds) if grpc else make_plan(seed, kinds)


def run_plan(plan: Plan, *, shadow: bool = False) -> Outcome:
    """Run a plan, with or without gRPC clients."""
    return simulate_grpc(plan) if plan.mode == GRPC else simulate(plan, shadow=shadow)


def run_seed(seed: int, kinds: Sequence[Kind], *, shadow: bool = False, grpc: bool = False) -> Verdict:
    """Run one seed; an error of the run is part of the verdict."""
    plan = plan_of(seed, kinds, grpc=grpc)
    try:
        outcome = run_plan(plan, shadow=shadow)
    except Exception as error:
        return Verdict(seed, str(plan.mode), len(plan.faults), (), repr(error))
    return Verdict(
        seed,
        str(plan.mode),
        len(plan.faults),
        tuple(map(str, outcome.violations)),
        "",
        outcome.virtual_s,
        outcome.sent,
        outcome.acknowledged,
        outcome.delivered,
        outcome.excuses,
        outcome.differences,
    )


def run_seeds(
    seeds: Iterable[int],
    kinds: Sequence[Kind],
    processes: int,
    *,
    shadow: bool = False,
    grpc: bool = False,
) -> Iterator[Verdict]:
    """Run many seeds; yields the verdicts in the order in which the runs end."""
    return in_processes(partial(run_seed, kinds=tuple(kinds), shadow=shadow, grpc=grpc), seeds, processes)
