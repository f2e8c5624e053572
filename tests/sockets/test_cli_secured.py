"""The command line at a server that asks for keys and TLS."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.certificates import Authority, server_context
from tests.sockets.conftest import Command
from tests.sockets.test_blocking_secured import checking


@pytest.mark.behaviour("AU-11")
def test_the_command_line_takes_keys_and_tls_from_the_environment(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    context = server_context(authority.issue("server"))
    with checking(context) as (address, _):
        monkeypatch.setenv("ORBITMQ_TLS_CA", authority.ca)
        monkeypatch.setenv("ORBITMQ_ACCESS_KEY", "app")
        monkeypatch.setenv("ORBITMQ_SECRET_KEY", "pssst")
        said = command("topic", "list", "-n", address, code=1)
        assert "access key 'app' or its secret key is wrong" in said
        assert "pssst" not in said
        monkeypatch.delenv("ORBITMQ_ACCESS_KEY")
        said = command("topic", "list", "-n", address, code=1)
        assert "ORBITMQ_ACCESS_KEY is missing beside ORBITMQ_SECRET_KEY" in said
