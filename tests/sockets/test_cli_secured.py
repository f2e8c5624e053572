"""The command line at a server that requires keys and TLS."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.certificates import DAY, Authority, server_context
from tests.sockets.conftest import Command
from tests.sockets.test_blocking_secured import checking

from orbitmq.cli import contexts
from orbitmq.wire.bodies.route import ClusterInfo
from orbitmq.wire.codes import RequestCode

NO_BROKERS = {int(RequestCode.GET_BROKER_CLUSTER_INFO): ClusterInfo().encode()}


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
        said = command("topic", "list", "-n", address, code=2)
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
        said = command("topic", "list", "--context", "clear", code=1)
        assert "it may ask for TLS: give --ca of 'orbitmq context create' or ORBITMQ_TLS_CA" in said


@pytest.mark.behaviour("CS-03")
def test_certificates_are_checked(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv("ORBITMQ_TLS_CA", authority.ca)
    for days, code, begins in ((60, 0, "OK"), (20.3, 1, "WARNING"), (3.3, 2, "CRITICAL")):
        context = server_context(authority.issue(f"server-{days}", until=days * DAY))
        with checking(context, told=NO_BROKERS) as (address, _):
            said = command("check", "cert", "-n", address, code=code, out=True)
            ends = f"the certificate of name server at {address} ends in {days:.0f} days"
            assert said.startswith(f"{begins}: {ends}")
            assert " | days=" in said
    with checking(server_context(authority.issue("ended", since=-3 * DAY, until=-DAY))) as (address, _):
        said = command("check", "cert", "-n", address, code=2, out=True)
        ended = f"the certificate of {address}, or of its authority, has expired: renew it there"
        assert said == f"CRITICAL: {ended}\n"
    with checking() as (address, _):
        assert "CRITICAL: " in command("check", "cert", "-n", address, code=2, out=True)
    assert command("check", "cert", "-n", "127.0.0.1:1", code=3, out=True).startswith("UNKNOWN: ")


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of an empty file of contexts, which commands take their cluster from."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("NAMESRV_ADDR", contexts.VARIABLE, "ORBITMQ_TLS_CA", "ORBITMQ_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "config" / "orbitmq"


@pytest.mark.behaviour("CS-02")
def test_a_secret_command_that_gives_no_secret_is_one_line(
    command: Command, monkeypatch: pytest.MonkeyPatch, settings: Path
) -> None:
    monkeypatch.setattr(contexts, "SECRET_COMMAND_S", 0.3)
    cases = {
        "false": "failed with exit code 1",
        "sleep 600": "was not done within 0.3 s and was ended",
        "printf 'pssst\\npssst\\n'": "prints 2 lines: it must print the secret alone",
        "true": "prints nothing: it must print the secret",
        "/no/such/program": "cannot be started: /no/such/program: No such file or directory",
    }
    for number, (printing, says) in enumerate(cases.items()):
        name = f"c{number}"
        command("context", "create", name, "-n", "127.0.0.1:1", "--user", "app", "--secret-command", printing)
        said = command("topic", "list", "--context", name, code=1)
        assert said == f"orbitmq topic: the secret command of context {name} {says}\n"
        said = command("check", "dlq", "--context", name, code=3, out=True)
        assert said == f"UNKNOWN: the secret command of context {name} {says}\n"
    (settings / "contexts.json").chmod(0o644)
    assert "is open to other users of this machine (mode 644)" in command("topic", "list", code=2)


@pytest.mark.behaviour("TL-03", "TL-05")
@pytest.mark.usefixtures("settings")
def test_each_fault_of_tls_is_one_line(command: Command, tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path / "stranger", "stranger")
    good, elsewhere = authority.issue("server"), authority.issue("elsewhere", ["10.0.0.5"])
    strange = stranger.issue("app")
    mine = ["--cert", strange.cert, "--key", strange.key]
    mutual = server_context(good, trusts=authority.ca)
    cases = [
        (server_context(good), ["--ca", stranger.ca], "an authority that this client does not trust"),
        (server_context(good), ["--tls"], "an authority that this client does not trust"),
        (server_context(elsewhere), ["--ca", authority.ca], "is for another host"),
        (server_context(good), [], "it may ask for TLS"),
        (None, ["--ca", authority.ca], "it does not speak TLS"),
        (mutual, ["--ca", authority.ca], "certificate of the client"),
        (mutual, ["--ca", authority.ca, *mine], "this client's certificate (--cert of the context or"),
    ]
    for number, (context, options, says) in enumerate(cases):
        with checking(context) as (address, _):
            command("context", "create", f"c{number}", "-n", address, *options)
            said = command("topic", "list", "--context", f"c{number}", code=1)
            assert says in said
            assert "Tls" not in said
            assert len(said.splitlines()) == 1
