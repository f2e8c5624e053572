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


@pytest.mark.behaviour("CS-01")
def test_the_command_line_takes_keys_and_tls_from_a_context(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with checking(server_context(authority.issue("server"))) as (address, _):
        keys = ["--user", "app", "--secret-command", "echo pssst"]
        command("context", "create", "closed", "-n", address, "--ca", authority.ca, *keys)
        said = command("topic", "list", code=1)
        assert "access key 'app' or its secret key is wrong" in said
        assert "pssst" not in said
        command("context", "create", "clear", "-n", address)
        assert "TLS" in command("topic", "list", "--context", "clear", code=1)
