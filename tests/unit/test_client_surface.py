"""The names that ``import orbitmq`` offers, and the cost of the import."""

from __future__ import annotations

import ast
import builtins
import collections.abc
import concurrent.futures
import copy
import datetime
import os
import pickle
import random
import re
import subprocess
import sys
import typing
from importlib import import_module
from pathlib import Path

import pytest
from scripts.surface import DOORS, GOLDEN, surface

import orbitmq
import orbitmq.errors

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path.relative_to(ROOT)
    for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.py"))
    if not {"decisions", "behaviours"} & set(path.parts) and path.name != "architecture.md"
)


def test_every_public_name_is_there_and_nothing_else() -> None:
    for module in (orbitmq, orbitmq.errors):
        assert dir(module) == sorted(module.__all__)
        for name in module.__all__:
            assert getattr(module, name) is not None
        with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
            _ = module.Nothing


def test_the_whole_surface_is_as_recorded() -> None:
    """After an intended change, run ``.venv/bin/python scripts/surface.py``."""
    assert GOLDEN.read_text() == surface()


def test_the_room_of_the_clients_is_no_door() -> None:
    with pytest.raises(ImportError):
        exec("from orbitmq.client import Producer")


def imports(text: str) -> set[str]:
    """The modules of OrbitMQ that a text imports, in its examples too."""
    lines = re.findall(
        r"^\s*(?:>>> )?(?:from (orbitmq[\w.]*) import|import (orbitmq[\w.]*))", text, re.MULTILINE
    )
    return {one or other for one, other in lines}


@pytest.mark.parametrize("path", PAGES, ids=str)
def test_pages_and_examples_import_from_the_doors_only(path: Path) -> None:
    text = (ROOT / path).read_text()
    for module in imports(text):
        assert module in DOORS or module.startswith("orbitmq.spark."), module
    # The check includes sentences; orbitmq.client alone is the name of a logger.
    assert re.findall(r"orbitmq\.(?:client|message|runtime|transport|wire)\.\w+", text) == []


# Types whose objects only this package creates, or that only a `with` returns.
NOT_NAMED = {"ClusterClient", "FoundT", "LoopThread", "Processing", "Query", "Tables"}
OPEN_TELEMETRY = {"MeterProvider", "TracerProvider"}
STANDARD = (builtins, collections.abc, concurrent.futures, datetime, random, re, typing)


def test_every_type_of_a_parameter_and_of_a_result_can_be_imported() -> None:
    """Editors and mypy show these names, and a program that annotates its functions needs them."""
    offered = {name for door in DOORS for name in getattr(import_module(door), "__all__", ())}
    lines = GOLDEN.read_text().partition("orbitmq.testing:")[0].splitlines()
    # Programs do not create a Runtime, so its constructor is left out.
    calls = [line for line in lines if "(" in line and "class Runtime(" not in line]
    named = {name for line in calls for name in re.findall(r"\b[A-Z][a-z]+[A-Za-z]*\b", line)}
    standard = {name for module in STANDARD for name in dir(module)}
    assert named - offered - standard - NOT_NAMED - OPEN_TELEMETRY == set()


def mypy_strict(program: Path) -> str:
    """The output of mypy for a user's program."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", str(program)]
    environment = {**os.environ, "MYPYPATH": "src"}
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False
    ).stdout


def test_a_program_that_uses_each_class_passes_mypy_strict() -> None:
    assert "Success" in mypy_strict(Path(__file__).with_name("typed_program.py"))


WRONG = """\
import orbitmq.sync as sync
from orbitmq import Message, NoSuchName
producer = sync.Producer("g")
sync.Producer("g", timeot=1)
number: int = producer.send(Message("t", b""))
producer.send(Message("t", b""), timeout="x")
producer.submit(Message("t", b""), wrong=1)
consumer = sync.Consumer("g")
for message in consumer.messages(auto_ack=False): length: int = message
consumer.run(print, batch="x")
from orbitmq import Consumer, Producer
Producer("g", retries="x")
Producer(group="g", timeout=1)
Consumer("g", invisible_s=3)
from orbitmq.testing import World
async def in_a_test(world: World) -> None:
    world.producer(timeot=1)
    length: int = world.consumer("g")
    world.reader("t", follow=True)
from orbitmq.admin import Admin
async def administrate(admin: Admin) -> None:
    Admin(timeot=1)
    await admin.topics.create("t", queue=1)
    number: int = await admin.topics.list()
with sync.Admin("h:1", timeout=1) as blocking:
    number = blocking.topics.list()
    blocking.topics.create("t", queues="x")
    blocking.groups.lag(topic="t")
    print(blocking.topics.list(cluster="c")[0].upper())
"""


def test_mypy_sees_the_types_of_constructors_and_of_blocking_clients(tmp_path: Path) -> None:
    """Constructors are generated from options, and blocking methods from async ones: mypy finds wrong calls
    of each.
    """
    program = tmp_path / "wrong.py"
    program.write_text(WRONG)
    found = {int(line.split(":")[1]) for line in mypy_strict(program).splitlines() if ": error:" in line}
    assert found == {2, 4, 5, 6, 7, 9, 10, 12, 14, 17, 18, 22, 23, 24, 26, 27, 28}


def test_importing_the_package_loads_nothing_else() -> None:
    code = "import sys, orbitmq; print(sorted({'orbitmq.client', 'msgspec', 'asyncio'} & {*sys.modules}))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert output.stdout.strip() == "[]"


def test_errors_tell_their_facts() -> None:
    attempt = orbitmq.errors.Attempt("a", "", 1, 0.0123, 10003, "gone")
    assert str(attempt) == "a[1] at ?: gone (12 ms)"
    error = orbitmq.SendError(orbitmq.errors.SendErrorKind.REFUSED, "t", "text", attempts=[attempt])
    assert error.brokers_tried == ["a"]
    assert issubclass(orbitmq.ValidationError, ValueError)
    assert "code 5: no remark" in str(orbitmq.errors.BrokerError(5, None, "h:1"))


def test_errors_can_be_copied_and_pickled() -> None:
    error = orbitmq.SendError(orbitmq.errors.SendErrorKind.TIMEOUT, "t", "text", code=3, remark="r")
    for same in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (str(same), same.kind, same.topic, same.code) == ("text", error.kind, "t", 3)


# Like private errors, these never reach a user: those of the command line, the test loop and gRPC.
INTERNAL_ERRORS = {
    "UsageError",
    "FormatError",
    "SimulationStuckError",
    "CallError",
    "Http2Error",
    "NotGrpcError",
    "UnusableError",
    "DamagedLineError",
    "PlainAclError",
    "PlainChangeError",
}


def test_one_root_for_every_error_that_can_be_caught() -> None:
    bases: dict[str, set[str]] = {}
    for path in Path(orbitmq.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Error") and node.name[0] != "_":
                assert node.name not in bases, f"{node.name} is defined twice"
                bases[node.name] = {base.id for base in node.bases if isinstance(base, ast.Name)}

    def is_ours(name: str) -> bool:
        return name == "OrbitError" or any(is_ours(base) for base in bases.get(name, ()))

    assert len(bases) > 30
    assert {name for name in bases if not is_ours(name)} == INTERNAL_ERRORS


def test_one_except_clause_catches_transport_protocol_and_message_errors() -> None:
    for error in (orbitmq.TransportError, orbitmq.errors.MessageFormatError, orbitmq.errors.StartError):
        assert issubclass(error, orbitmq.OrbitError)
    lost = pickle.loads(pickle.dumps(orbitmq.errors.ConnectionLostError("gone", "h:1")))
    assert (str(lost), lost.address) == ("gone", "h:1")
