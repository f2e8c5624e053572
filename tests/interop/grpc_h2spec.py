"""A cell of `make interop-grpc`: h2spec, the conformance test of HTTP/2, at the gRPC port of a broker.

It sends frames that HTTP/2 allows and frames that it forbids (RFC 7540, of which RFC 9113 changed little, and
RFC 7541), and judges the answers. ``go install`` fetches it into ``build/``. What it asks for and is no fault
stands in :data:`EXCUSED`, each with its reason. An entry that is not needed fails too, unless its outcome
depends on who is faster. On a busy machine more of its tests race with an answer or with the end of the
connection; so the sections of what failed run again, each time with a longer wait for answers.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

from benchmarks.servers import PeerUnavailableError
from tests.interop.grpc_clients import ROOT

SOURCE = "github.com/summerwind/h2spec/cmd/h2spec@latest"
HOME = ROOT / "build" / "h2spec"
INSTALL_S = 300
LIMIT_S = 300
# How long h2spec waits for an answer in each round: a test that waits in vain takes so long.
ANSWERS_S = (1, 2, 4, 8, 8)
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


def faults(found: dict[str, str]) -> dict[str, str]:
    """What is wrong with the outcomes, by section and name."""
    wrong = {name: text for name, text in found.items() if text and name not in EXCUSED}
    needed = [name for name, why in EXCUSED.items() if why is not _CLOSED]
    return wrong | {name: "passes and is excused" for name in needed if not found.get(name)}


def fault(found: dict[str, str]) -> str:
    """What is wrong with the outcomes in one line; empty when nothing is."""
    wrong = faults(found)
    texts = "; ".join(f"{name} ({text})" for name, text in wrong.items())
    return f"{len(wrong)} of {len(found)}: {texts}" if wrong else ""


def judged(run: Callable[[Sequence[str], int], dict[str, str]]) -> dict[str, str]:
    """The outcomes of a whole round and of those of its sections that have a fault.

    What passed in one of the rounds has passed; what failed in one of them was excused for a reason.

    Args:
        run: gives the outcomes of a round of these sections, all when there are none, with so long a wait.
    """
    found = run((), ANSWERS_S[0])
    for answer_s in ANSWERS_S[1:]:
        wrong = faults(found)
        if not wrong:
            break
        for name, text in run(sorted({name.partition(":")[0] for name in wrong}), answer_s).items():
            before = found.get(name, text)
            found[name] = before or text if name in EXCUSED else before and text
    return found


def round_of(endpoint: str, sections: Sequence[str], answer_s: int) -> dict[str, str]:
    """The outcomes of one round of these sections at an endpoint; of all when none are given."""
    host, _, port = endpoint.rpartition(":")
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [str(program()), "-h", host, "-p", port, "-o", str(answer_s), "-S", "-j", str(report)]
        subprocess.run([*command, *sections], capture_output=True, timeout=LIMIT_S, check=False)
        return outcomes(report)


def cells(endpoint: str) -> Iterator[tuple[str, Callable[[], str]]]:
    """One cell, when h2spec can be had; else one line."""
    try:
        program()
    except PeerUnavailableError as error:
        print(f"interop-grpc: left out: {error}")
        return
    yield "h2spec", lambda: fault(judged(partial(round_of, endpoint)))
