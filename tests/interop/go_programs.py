"""Go programs of the interoperability tests, built with what the Go module proxy serves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from benchmarks.servers import ROOT, PeerUnavailableError, ServerError

# Where Go's own archive puts it, when it is not on the path.
USUAL = Path("/usr/local/go/bin/go")


def go_program(name: str, source: Path, module: str) -> Path:
    """The program of this source, built into `build/`, with the module that it needs (path@version).

    Raises:
        PeerUnavailableError: there is no Go, or the module cannot be fetched.
        ServerError: the program does not compile.
    """
    go = shutil.which("go") or (str(USUAL) if USUAL.exists() else "")
    if not go:
        raise PeerUnavailableError("no go on this machine")
    folder = ROOT / "build" / name
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "program"
    wanted = f"// {module}\n{source.read_text()}"
    made = folder / "main.go"
    if program.exists() and made.exists() and made.read_text() == wanted:
        return program
    if not (folder / "go.mod").exists():
        _run([go, "mod", "init", "orbitmq/interop"], folder)
    if said := _run([go, "get", module], folder):
        raise PeerUnavailableError(f"{module} cannot be fetched: {said}")
    program.unlink(missing_ok=True)
    made.write_text(wanted)
    if said := _run([go, "build", "-mod=mod", "-o", str(program), "."], folder):
        raise ServerError(f"{source.name} does not compile: {said}")
    return program


def _run(command: list[str], folder: Path) -> str:
    """What a command that failed said at last; empty when it worked."""
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, timeout=600)
    return (done.stderr.strip()[-600:] or f"exit code {done.returncode}") if done.returncode else ""
