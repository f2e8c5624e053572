"""Errors for a library that is not installed, and for a module that cannot be loaded."""

from __future__ import annotations

import pytest

from orbitmq.cli.failures import UsageError
from orbitmq.cli.tls import make_ca
from orbitmq.runtime.imports import is_missing


def test_which_failed_imports_are_of_a_library() -> None:
    assert is_missing(ModuleNotFoundError("No module named 'h11'", name="h11"))
    assert is_missing(ImportError("no h11 here"))
    assert not is_missing(ModuleNotFoundError("No module named 'orbitmq.x'", name="orbitmq.x"))
    assert not is_missing(ImportError("undefined symbol", name="orbitmq.wire.scan", path="scan.so"))


@pytest.mark.parametrize(
    ("name", "expected"), [("cryptography", UsageError), ("orbitmq.runtime.authority", ImportError)]
)
def test_a_command_says_what_to_install_only_if_that_helps(
    monkeypatch: pytest.MonkeyPatch, name: str, expected: type[Exception]
) -> None:
    import sys
    from types import ModuleType

    class Failing(ModuleType):
        def __getattr__(self, attribute: str) -> object:
            raise ImportError("cannot be loaded", name=name)

    monkeypatch.setitem(sys.modules, "orbitmq.runtime.authority", Failing("authority"))
    with pytest.raises(expected) as caught:
        make_ca("ca")
    assert ("pip install" in str(caught.value)) == (expected is UsageError)
