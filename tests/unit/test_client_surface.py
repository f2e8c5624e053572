"""What ``import orbitmq`` offers, and what it costs."""

from __future__ import annotations

import ast
import copy
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import orbitmq
import orbitmq.client


def test_every_public_name_is_there() -> None:
    for module in (orbitmq, orbitmq.client):
        for name in module.__all__:
            assert getattr(module, name).__name__ == name
            assert name in dir(module)
        assert sorted(module.__all__) == sorted(module._HOMES)
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = orbitmq.Nothing
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = orbitmq.client.Nothing


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


# Never reach a user, as little as private ones: the command line's own, and the test loop's.
INTERNAL_ERRORS = {"UsageError", "FormatError", "SimulationStuckError"}


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
    for error in (orbitmq.TransportError, orbitmq.WireError, orbitmq.MessageFormatError, orbitmq.StartError):
        assert issubclass(error, orbitmq.OrbitError)
    lost = pickle.loads(pickle.dumps(orbitmq.ConnectionLostError("gone", "h:1")))
    assert (str(lost), lost.address) == ("gone", "h:1")
