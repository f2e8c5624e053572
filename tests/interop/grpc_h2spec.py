"""A cell of `make interop-grpc`: h2spec, the conformance test of HTTP/2, at the gRPC port of a broker.

It sends frames that HTTP/2 allows and frames that it forbids (RFC 7540, of which RFC 9113 changed little, and
RFC 7541), and judges the answers. ``go install`` fetches it into ``build/``. What it asks for and is no fault
stands in :data:`EXCUSED`, each with its reason. An entry that is not needed fails too, unless its outcome
depends on who is faster. On a busy machine more of its tests race with an answer or with the end of the
connection; so what failed has :data:`ROUNDS` rounds to pass.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.servers import PeerUnavailableError
from tests.interop.grpc_clients import ROOT

SOURCE = "github.com/summerwind/h2spec/cmd/h2spec@latest"
HOME = ROOT / "build" / "h2spec"
INSTALL_S = 300
# Each test that waits for an answer in vain takes one second.
LIMIT_S = 300
ANSWER_S = 1
ROUNDS = 3
# XML 1.0 forbids them; h2spec writes the data of a PING frame as it came.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_NO_DATA = "its GET is no gRPC call: the answer is a list of headers without data"
_CLOSED = "its GET is answered at once, so that the stream may be closed when the rest comes"
_LENGTH = 'Sends a HEADERS frame with the "content-length" header field which does not equal the'
_PRIORITY = "RFC 9113 has no priorities any more (5.3.2)"
# Section and name of a test, and why its failure is no fault.
EXCUSED = {
    "generic/2: Sends a WINDOW_UPDATE frame on half-closed (remote) stream": _NO_DATA,
    "generic/2: Sends a PRIORITY frame on half-closed (remote) stream": _NO_DATA,
    "http2/5.1.2: Sends HEADERS frames that causes their advertised concurrent stream limit to be exceeded": (
        _CLOSED
    ),
    "http2/5.3.1: Sends HEADERS frame that depend on itself": _PRIORITY,
    "http2/5.3.1: Sends PRIORITY frame that depend on itself": _PRIORITY,
    "http2/6.9.1: Sends multiple WINDOW_UPDATE frames increasing the flow control window to above 2^31-1 on a"
    " stream": _CLOSED,
    f"http2/8.1.2.6: {_LENGTH} DATA frame payload length": _CLOSED,
    f"http2/8.1.2.6: {_LENGTH} sum of the multiple DATA frames payload length": _CLOSED,
}


def program() -> Path:
    """h2spec, installed when it is not there yet.

    Raises:
        PeerUnavailableError: there is no Go, or its module proxy cannot be reached.
    """
    found = HOME / "h2spec"
    if found.exists():
        return found
    go = shutil.which("go") or "/usr/local/go/bin/go"
    environment = {**os.environ, "GOBIN": str(HOME)}
    try:
        subprocess.run(
            [go, "install", SOURCE],
            capture_output=True,
            check=True,
            timeout=INSTALL_S,
            env=environment,
        )
    except FileNotFoundError:
        raise PeerUnavailableError("h2spec: there is no Go on this machine") from None
    except subprocess.TimeoutExpired:
        raise PeerUnavailableError(f"h2spec: not installed within {INSTALL_S} s") from None
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise PeerUnavailableError(f"h2spec cannot be installed: {' '.join(said)}") from None
    return found


def outcomes(report: Path) -> dict[str, str]:
    """Each test of h2spec's report that ran by section and name, with its fault; empty: it passed."""
    found = {}
    text = _CONTROL.sub("?", report.read_text(errors="replace"))
    for case in ElementTree.fromstring(text).iter("testcase"):
        if case.find("skipped") is not None:
            continue
        wrong = case.find("failure")
        wrong = case.find("error") if wrong is None else wrong
        name = f"{case.get('package')}: {case.get('classname')}"
        found[name] = "" if wrong is None else " ".join("".join(wrong.itertext()).split())
    return found


def fault(found: dict[str, str]) -> str:
    """What is wrong with the outcomes; empty when nothing is."""
    wrong = [f"{name} ({text})" for name, text in found.items() if text and name not in EXCUSED]
    needed = [name for name, why in EXCUSED.items() if why is not _CLOSED]
    wrong += [f"{name} passes and is excused" for name in needed if not found.get(name)]
    return f"{len(wrong)} of {len(found)}: {'; '.join(wrong)}" if wrong else ""


def best(rounds: Iterable[dict[str, str]]) -> dict[str, str]:
    """The outcomes up to the first round without a fault: what passed in one of the rounds has passed."""
    found: dict[str, str] = {}
    for outcome in rounds:
        found = {name: found.get(name, text) and text for name, text in outcome.items()}
        if not fault(found):
            break
    return found


def run(endpoint: str) -> dict[str, str]:
    """The outcomes of one round at an endpoint."""
    host, _, port = endpoint.rpartition(":")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [str(program()), "-h", host, "-p", port, "-o", str(ANSWER_S), "-S", "-j", str(report)]
        subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)
        return outcomes(report)


def cells(endpoint: str) -> Iterator[tuple[str, Callable[[], str]]]:
    """One cell, when h2spec can be had; else one line."""
    try:
        program()
    except PeerUnavailableError as error:
        print(f"interop-grpc: left out: {error}")
        return
    yield "h2spec", lambda: fault(best(run(endpoint) for _ in range(ROUNDS)))
