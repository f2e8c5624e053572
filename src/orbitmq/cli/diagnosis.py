"""The findings of ``orbitmq doctor``, computed from collected facts. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orbitmq.message.numbers import whole_number
from orbitmq.transport.address import parse_address

if TYPE_CHECKING:
    from orbitmq.admin import BrokerInfo

# With fewer descriptors a server allows fewer connections than its default of 10,000.
FEWEST_DESCRIPTORS = 14_000
SLOWEST_PUT_MS = 100.0
FARTHEST_CLOCK_S = 5.0
_SPAN = re.compile(r"\[ (\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds \]")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. ``fix``: what to do; empty if everything is right."""

    check: str
    where: str
    text: str
    fix: str = ""

    @property
    def fine(self) -> bool:
        return not self.fix


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts about this machine. ``open_file``: the fault of the file of contexts; empty if there is none."""

    compiled: bool
    uvloop: bool
    descriptors: int
    open_file: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """Facts about one broker. ``problem``: the reason why it did not answer, or refused (``refuses``).
    ``asked_ms``, ``answered_ms``: the times of the request for its status and of the answer.
    """

    broker: BrokerInfo
    problem: str = ""
    asked_ms: int = 0
    answered_ms: int = 0
    status: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    refuses: bool = False
    closed: bool = False


def findings(machine: Machine, brokers: Sequence[Seen]) -> list[Finding]:
    """All findings: of this machine, then of each broker."""
    return [
        *_of_machine(machine),
        *_versions(brokers),
        *(one for seen in brokers for one in _of_broker(seen)),
    ]


def without_brokers(problem: str) -> Finding:
    """The finding when there is no broker to look at."""
    fix = "start servers, or say where they are: --name-servers or --context"
    return Finding("brokers", "the cluster", problem, fix)


def _of_machine(machine: Machine) -> Iterator[Finding]:
    here = "this machine"
    compiled = "compiled" if machine.compiled else "not compiled: brokers are several times slower"
    fix = "install a wheel for this Python, or run make build in a checkout"
    yield Finding("compiled modules", here, compiled, "" if machine.compiled else fix)
    loop = "uvloop" if machine.uvloop else "asyncio's own: brokers are slower"
    yield Finding("event loop", here, loop, "" if machine.uvloop else "pip install 'orbitmq[server]'")
    few = machine.descriptors < FEWEST_DESCRIPTORS
    fix = f"set LimitNOFILE=65536 in the unit of a broker, or ulimit -Hn {FEWEST_DESCRIPTORS} in its shell"
    text = "unlimited" if machine.descriptors >= 2**31 else f"{machine.descriptors:,}"
    yield Finding(
        "file descriptors", here, f"{text} at most for a broker that is started here", fix if few else ""
    )
    fix = "chmod 600 the file, and change the keys that were in it" if machine.open_file else ""
    yield Finding("file modes", here, machine.open_file or "contexts are closed to other users", fix)


def _versions(brokers: Sequence[Seen]) -> Iterator[Finding]:
    found = sorted({seen.status.get("brokerVersionDesc", "unknown") for seen in brokers if not seen.problem})
    if found:
        fix = "upgrade the others: orbitmq broker drain, stop, start" if len(found) > 1 else ""
        yield Finding("versions", "all brokers", ", ".join(found), fix)


def _of_broker(seen: Seen) -> Iterator[Finding]:
    broker = seen.broker
    where = f"{broker.name}:{broker.broker_id}"
    if seen.refuses:
        yield Finding("address", where, f"{broker.address} answers")
        fix = "use the keys of a user who may: orbitmq acl allow USER --resource 'Cluster:*' Get"
        yield Finding("rights", where, f"it refuses: {seen.problem}", fix)
        return
    if seen.problem:
        fix = "start it; or, when it runs, set brokerIP1 to an address that clients reach, or open the port"
        if seen.closed:
            fix = "something listens there: do what the text says, or look at the broker's log"
        who = "it" if broker.address in seen.problem else broker.address
        yield Finding("address", where, f"{who} does not answer: {seen.problem}", fix)
        return
    yield Finding("address", where, f"{broker.address} answers")
    yield from _clock(seen, where)
    yield from _flush(seen, where)
    yield from _doors(seen, where)


def _clock(seen: Seen, where: str) -> Iterator[Finding]:
    """Check the broker's clock, which is its start time plus its uptime, to the second."""
    started = whole_number(seen.status.get("bootTimestamp", ""))
    span = _SPAN.search(seen.status.get("runtime", ""))
    if started is None or span is None:
        return
    days, hours, minutes, seconds = map(int, span.groups())
    there_ms = started + (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
    # The time that the broker took for its answer does not count as an error of its clock.
    off = (there_ms - min(max(there_ms, seen.asked_ms), seen.answered_ms)) / 1000
    if abs(off) > FARTHEST_CLOCK_S:
        side = "ahead of" if off > 0 else "behind"
        fix = "let NTP set both clocks: times of messages and delays follow the broker's"
        yield Finding("clock", where, f"{abs(off):,.0f} s {side} this machine", fix)
    else:
        yield Finding("clock", where, "as on this machine, to some seconds")


def _flush(seen: Seen, where: str) -> Iterator[Finding]:
    try:
        took = float(seen.status["putLatency99"])
    except (KeyError, ValueError):
        return
    if not took:
        yield Finding("flush time", where, "no send was measured yet")
        return
    slow = took > SLOWEST_PUT_MS
    fix = "put the log on a faster disk, or set flushDiskType=ASYNC_FLUSH when replicas keep copies"
    yield Finding("flush time", where, f"99 of 100 sends were stored within {took:g} ms", fix if slow else "")


def _doors(seen: Seen, where: str) -> Iterator[Finding]:
    asks = "true" in (seen.settings.get("authenticationEnabled"), seen.settings.get("aclEnable"))
    local = parse_address(seen.broker.address)[0] in ("127.0.0.1", "::1", "localhost")
    if local:
        yield Finding("open doors", where, "reached from its own machine only")
    elif asks and seen.settings.get("authMode") == "observe":
        text = "counts what it would refuse, and refuses nothing: authMode=observe"
        fix = "when orbitmq acl refusals shows nothing that should be allowed: orbitmq broker config set "
        yield Finding("open doors", where, text, f"{fix}{seen.broker.name} authMode=enforce")
    elif asks:
        yield Finding("open doors", where, "requires keys")
    elif seen.settings:
        does = "read and write" if seen.settings.get("protectedMode") == "true" else "read, write and delete"
        text = f"everybody who reaches {seen.broker.address} may {does}: it requires no keys"
        yield Finding(
            "open doors", where, text, "set authenticationEnabled=true, or close the port to strangers"
        )
