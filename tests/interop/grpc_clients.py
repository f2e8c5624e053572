"""The official clients of RocketMQ 5 that `make interop-grpc` runs, each a program of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.servers import PeerUnavailableError, classpath
from tests.interop.world import compile_java

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent / "grpc"
PAGE = ROOT / "docs" / "grpc.md"
# The endpoint that the page names.
PAGE_ENDPOINT = "127.0.0.1:8081"
PYTHON_CLIENT = "rocketmq-python-client==5.1.2"
NODE_CLIENT = "rocketmq-client-nodejs@1.0.8"
RUST_CLIENT = "the crate rocketmq 5.0.0"
# The first build compiles some three hundred crates.
RUST_BUILD_S = 1200
LIMIT_S = 180
# The slowest client takes this many messages a second.
SLOWEST = 50

Line = dict[str, Any]


@dataclass(frozen=True)
class Client:
    """One official client.

    Attributes:
        command: starts its program.
        page_command: starts that of docs/grpc.md, at an endpoint.
        test_command: runs a file of tests with this client and OrbitMQ in one process; empty: it cannot.
        lacks: roles that the client offers nothing for.
    """

    name: str
    command: Sequence[str]
    page_command: Callable[[str], Sequence[str]]
    test_command: Sequence[str] = ()
    lacks: frozenset[str] = frozenset()

    def run(self, role: str, endpoint: str, topic: str, group: str, count: int) -> list[Line]:
        done = subprocess.run(
            [*self.command, role, endpoint, topic, group, str(count)],
            capture_output=True,
            text=True,
            timeout=LIMIT_S + count / SLOWEST,
            check=False,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode != 0 or len(lines) < count:
            print(f"{self.name} {role}: {len(lines)} of {count}, exit code {done.returncode}")
            print("\n".join((done.stdout + done.stderr).splitlines()[-15:]))
        return lines


def fault(lines: list[Line], count: int) -> str:
    """What is wrong with what a consumer received; empty when nothing is."""
    bodies = Counter(line["body"] for line in lines)
    missing = [f"body-{number}" for number in range(count) if f"body-{number}" not in bodies]
    twice = [body for body, times in bodies.items() if times > 1]
    wrong = [
        line for line in lines if line["keys"] != line["body"].replace("body", "key") or line["tag"] != "tag"
    ]
    found = []
    if missing:
        found.append(f"{len(missing)} missing ({missing[0]})")
    if twice:
        found.append(f"{len(twice)} twice ({twice[0]})")
    if wrong:
        found.append(f"{len(wrong)} with other keys or tags ({wrong[0]})")
    return ", ".join(found)


def difference(lines: Sequence[Line], expected: set[str]) -> str:
    """What is wrong with the bodies of what a consumer received; empty when nothing is."""
    found = sorted(line["body"] for line in lines)
    return (
        ""
        if found == sorted(expected)
        else f"received {found[:5]} of {len(found)}, not {sorted(expected)[:5]}"
    )


def slug(text: str) -> str:
    """A text as a part of names of topics and groups."""
    return text.replace(" ", "-").replace(".", "_")


def page_program(language: str, endpoint: str) -> str:
    """The program of docs/grpc.md in that language, at that endpoint."""
    program = PAGE.read_text().partition(f"```{language}\n")[2].partition("```")[0]
    assert PAGE_ENDPOINT in program, language
    return program.replace(PAGE_ENDPOINT, endpoint)


def page_test() -> str:
    """The test of docs/grpc.md that runs client and broker in one process."""
    blocks: list[str] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (found,) = [block for block in blocks if "orbitmq_cluster" in block]
    return found


def python_client() -> Client:
    """The Python client, installed when it is not there yet.

    Raises:
        PeerUnavailableError: the package index cannot be reached.
    """
    home = ROOT / "build" / "grpc-python"
    python = home / "bin" / "python"
    ready = home / "ready-with-orbitmq"
    try:
        if not ready.exists():
            subprocess.run([sys.executable, "-m", "venv", str(home)], check=True, timeout=120)
            # OrbitMQ beside it, for the test on the page that runs both in one process.
            install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            packages = [PYTHON_CLIENT, "pytest", "-e", f"{ROOT}[server]"]
            environment = {**os.environ, "ORBITMQ_PURE": "1"}
            subprocess.run([*install, "--retries", "10", *packages], check=True, timeout=600, env=environment)
            ready.touch()
    except (subprocess.SubprocessError, OSError) as error:
        raise PeerUnavailableError(f"{PYTHON_CLIENT} cannot be installed: {error}") from None
    return Client(
        "python 5.1.2",
        [str(python), str(HERE / "python_client.py")],
        lambda endpoint: [str(python), "-c", page_program("python", endpoint)],
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider"],
    )


def node_client() -> Client:
    """The Node client, installed when it is not there yet; docs/grpc.md has no program of it.

    Raises:
        PeerUnavailableError: the package registry cannot be reached, or there is no Node.
    """
    home = ROOT / "build" / "grpc-node"
    modules = home / "node_modules"
    try:
        if not (modules / "rocketmq-client-nodejs").exists():
            home.mkdir(parents=True, exist_ok=True)
            install = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(home)]
            subprocess.run([*install, NODE_CLIENT], check=True, timeout=300)
    except (subprocess.SubprocessError, OSError) as error:
        raise PeerUnavailableError(f"{NODE_CLIENT} cannot be installed: {error}") from None
    command = ["env", f"NODE_PATH={modules}", "node", str(HERE / "node_client.js")]
    return Client("node 1.0.8", command, lambda _: command)


def rust_client() -> Client:
    """The Rust client, compiled when it is not yet; docs/grpc.md has no program of it.

    Raises:
        PeerUnavailableError: there is no cargo, or the crate does not compile or cannot be fetched.
    """
    cargo = shutil.which("cargo") or str(Path.home() / ".cargo" / "bin" / "cargo")
    home = ROOT / "build" / "grpc-rust"
    # A copy: cargo writes its lock file beside the sources.
    shutil.copytree(HERE / "rust", home, dirs_exist_ok=True)
    build = [cargo, "build", "--quiet", "--manifest-path", str(home / "Cargo.toml")]
    # Of the dependencies those versions that the compiler on this machine can read.
    environment = {**os.environ, "CARGO_RESOLVER_INCOMPATIBLE_RUST_VERSIONS": "fallback"}
    try:
        done = subprocess.run(
            build, capture_output=True, text=True, timeout=RUST_BUILD_S, check=False, env=environment
        )
    except FileNotFoundError:
        raise PeerUnavailableError(f"{RUST_CLIENT}: there is no cargo on this machine") from None
    except subprocess.TimeoutExpired:
        raise PeerUnavailableError(f"{RUST_CLIENT}: not compiled within {RUST_BUILD_S} s") from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("error")]
        raise PeerUnavailableError(f"{RUST_CLIENT}: cargo failed: {' '.join(errors[:1])}")
    command = [str(home / "target" / "debug" / "rust_client")]
    return Client("rust 5.0.0", command, lambda _: command, lacks=frozenset({"push", "fail", "recall"}))


def java_client(version: str, folder: Path) -> Client:
    """The Java client of that version; raises as `classpath` does."""
    jars = classpath(f"grpc-client-{version}", HERE / "pom.xml", f"-Drocketmq.client.version={version}")
    classes = folder / f"classes-{version}"
    classes.mkdir(parents=True, exist_ok=True)
    compile_java(classes, jars, [HERE / "Calls.java"])
    java = ["java", "-Xmx128m", "-cp", f"{classes}:{jars}"]

    def page_command(endpoint: str) -> Sequence[str]:
        source = classes / "Hello.java"
        source.write_text(page_program("java", endpoint))
        compile_java(classes, jars, [source])
        return [*java, "Hello"]

    return Client(f"java {version}", [*java, "Calls"], page_command)
